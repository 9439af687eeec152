package query

import (
	"context"
	"errors"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/contact"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/schema"
)

// Lead is a lead as answers show it. Metadata is in the answers of GET alone.
type Lead struct {
	lead.Record
	Joined     []string  `json:"joined,omitzero"`     // leads that are part of this one, in answers of GET
	JoinedInto string    `json:"joinedInto,omitzero"` // the lead that this one is part of, likewise
	Contacts   *Contacts `json:"contacts,omitzero"`   // in answers of GET
	Reached    int       `json:"-"`                   // how many phones, or emails, find it, whichever are more
	CreatedAt  Timestamp `json:"createdAt"`
	UpdatedAt  Timestamp `json:"updatedAt"`
	// Consents says of each purpose whether its latest consent was granted. Nil in answers to captures and changes.
	Consents map[string]bool `json:"consents,omitzero"`
}

// NewLead returns a lead as the answer to a capture shows it, without metadata.
func NewLead(s lead.State) Lead {
	return Lead{
		Record: s.Record(), CreatedAt: Timestamp(s.CreatedAt), UpdatedAt: Timestamp(s.UpdatedAt),
		Reached: max(len(s.Phones), len(s.Emails)),
	}
}

// Contacts are the phones and emails that find a lead.
type Contacts struct {
	Phones []Contact `json:"phones"`
	Emails []Contact `json:"emails"`
}

// Contact is a phone or email that finds a lead.
type Contact struct {
	Value       string    `json:"value"`
	FirstSeenAt Timestamp `json:"firstSeenAt"`
	Current     bool      `json:"current"` // the lead shows it
}

// NewContacts returns the contacts of a lead.
func NewContacts(s lead.State) *Contacts {
	phones, emails := s.Contacts()
	return &Contacts{newContactList(phones), newContactList(emails)}
}

func newContactList(contacts []lead.Contact) []Contact {
	list := make([]Contact, len(contacts))
	for i, c := range contacts {
		list[i] = Contact{c.Value, Timestamp(c.FirstSeenAt), c.Current}
	}
	return list
}

// NewListedLead returns a lead as lists show it.
func NewListedLead(s lead.State) Lead {
	l := NewLead(s)
	l.Consents = s.Granted()
	return l
}

// LeadFilter selects leads. Empty fields select all.
type LeadFilter struct {
	Status          string // in any letter case
	Source          string // the first touch
	LeadTemperature string
	// part of name, phone or email, in any letter case; a whole phone or email finds only its lead, if there is one
	Q            string
	Whole        bool      // Q is not a part, but a whole name, phone or email
	Region       string    // the account's, by which a phone in Q is read
	Phone        string    // E.164, as contact.ParsePhone makes it: the caller knows the account's region
	Email        string    // canonical, as contact.ParseEmail makes it
	Contacts     int       // at least so many phones, or emails, find it
	Consent      string    // purpose of a consent
	Withdrawn    bool      // the latest of Consent is a withdrawal
	CreatedSince time.Time // inclusive
	CreatedUntil time.Time // exclusive
}

// Event is one event of a stream.
type Event struct {
	ID        string              `json:"id"`
	Type      string              `json:"type"` // public: without version
	Revision  eventstore.Revision `json:"revision"`
	Position  eventstore.Position `json:"position"`
	At        Timestamp           `json:"at"`
	Actor     string              `json:"actor"`
	RequestID string              `json:"requestId"`
	Data      jsontext.Value      `json:"data"`
}

// Leads lists an account's leads, newest first, without metadata. A page of a search may have fewer leads than its
// limit, or none, and be followed by others. The error is ErrCursor for a cursor of another list.
func (r *Reader) Leads(ctx context.Context, account string, filter LeadFilter, p Page) (List[Lead], error) {
	if exact, whole := filter.exact(); whole && r.claims != nil && p.Cursor == "" {
		if list, err := r.Leads(ctx, account, exact, p); err != nil || len(list.Items) > 0 {
			return list, err
		}
	}
	s := filter.selection(account, `SELECT `+schema.LeadColumns+` FROM views.lead`, `created_at DESC, lead_id DESC`)
	kind := cursorOf(leadCursor, account)
	before, err := s.olderThan(`lead_id`, kind, p.Cursor)
	if err != nil {
		return List[Lead]{}, err
	}
	if err := r.addOwners(ctx, &s, account, filter); err != nil {
		return List[Lead]{}, err
	}
	next := func(l Lead) string { return newestCursor{time.Time(l.CreatedAt), l.LeadID}.encode(kind) }
	if s.none || !filter.searches() {
		return page(ctx, r, s, p.Limit, scanListedLead, next)
	}
	var found found
	err = pgx.BeginTxFunc(ctx, r.pool, pgx.TxOptions{
		IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly,
	}, func(tx pgx.Tx) error {
		found, err = r.search(ctx, tx, account, filter, s, before, p.Limit)
		return err
	})
	if err != nil {
		return List[Lead]{}, schema.Unavailable(err)
	}
	list := found.list(next)
	if !found.reach.IsZero() {
		list.NextCursor, list.Reach = newestCursor{found.reach, lowestID}.encode(kind), Timestamp(found.reach)
	}
	return list, nil
}

// LeadsAll yields everything that Leads lists, in constant memory. It ends after yielding an error.
func (r *Reader) LeadsAll(ctx context.Context, account string, filter LeadFilter) iter.Seq2[Lead, error] {
	return All(func(p Page) (List[Lead], error) { return r.Leads(ctx, account, filter, p) })
}

// exact returns the filter for the lead whose phone or email is Q, if Q is a whole phone or email.
func (filter LeadFilter) exact() (exact LeadFilter, whole bool) {
	if filter.Q == "" || filter.Phone != "" || filter.Email != "" {
		return filter, false
	}
	var err error
	exact = filter
	exact.Q = ""
	if exact.Email, err = contact.ParseEmail(filter.Q); err == nil {
		return exact, true
	}
	exact.Phone, err = contact.ParsePhone(filter.Q, filter.Region, contact.Hint{})
	return exact, err == nil
}

func (filter LeadFilter) selection(account, from, order string) selection {
	s := selection{from: from, order: order}
	filter.addConditions(&s, account, "")
	return s
}

// addConditions adds the filter's conditions. If by names an index, conditions that have another are written such that
// PostgreSQL does not use it. The text search is the last one, because the other conditions cost a fifth of it.
func (filter LeadFilter) addConditions(s *selection, account, by string) {
	source, status, search := bySource, byStatus, "search"
	if by == bySource || by == byCreation {
		status += ` || ''`
	}
	if by == byStatus || by == byCreation {
		source += ` || ''`
	}
	if filter.Status+filter.Source+filter.LeadTemperature != "" {
		search += ` || ''`
	}
	s.and(`account = ?`, account)
	s.equal(status, strings.ToLower(filter.Status))
	s.equal(source, filter.Source)
	s.equal(`temperature`, strings.ToLower(filter.LeadTemperature))
	if filter.Phone != "" {
		s.and(`phone = ANY (?)`, contact.PhoneForms(filter.Phone))
	}
	s.equal(`email`, filter.Email)
	if filter.Contacts > 1 {
		s.and(`contacts > 1`) // as the index of these few leads has it
	}
	if filter.Contacts > 0 {
		s.and(`contacts >= ?`, filter.Contacts)
	}
	if filter.Consent != "" {
		s.and(`state -> 'consents' -> ?::text ->> 'granted' = ?`, filter.Consent, strconv.FormatBool(!filter.Withdrawn))
	}
	if filter.Q != "" {
		s.none = s.none || strings.Contains(filter.Q, "\n") // names have none; the searched text separates them by it
		filter.addText(s, search)
	}
	s.within(`created_at`, filter.CreatedSince, filter.CreatedUntil)
}

// addText adds the condition on the text. A whole value is one of the lines of the searched text.
func (filter LeadFilter) addText(s *selection, search string) {
	text := schema.Searched(filter.Q)
	s.and(search+` LIKE ?`, contains(text))
	if filter.Whole {
		s.and(`E'\n' || `+search+` || E'\n' LIKE ?`, contains("\n"+text+"\n"))
	}
}

// olderThan restricts a list, ordered by created_at and an id, newest first, to the rows after a cursor. All of them
// were created before the returned time.
func (s *selection) olderThan(id, kind, cursor string) (before time.Time, err error) {
	if cursor == "" {
		return before, nil
	}
	last, err := decodeNewest(kind, cursor)
	if err != nil {
		return before, err
	}
	s.and(`(created_at, `+id+`) < (?, ?)`, last.createdAt, last.id)
	if last.id == lowestID {
		return last.createdAt, nil
	}
	return last.createdAt.Add(time.Millisecond), nil // others of that moment may follow
}

// Lead returns one lead with its metadata, even if it was joined into another. The error is ErrNotFound when the
// account has no such lead.
func (r *Reader) Lead(ctx context.Context, account, id string) (Lead, error) {
	if !event.ValidID(id) {
		return Lead{}, ErrNotFound
	}
	state, err := r.leadState(ctx, account, id)
	if err != nil {
		return Lead{}, err
	}
	return r.wholeLead(ctx, state, time.Time{})
}

func scanListedLead(row pgx.CollectableRow) (Lead, error) {
	state, err := scanState(row)
	return NewListedLead(state), err
}

// LeadAsOf returns a lead as it was at a moment: the fold of its stream up to and including that millisecond. The error
// is ErrNotFound when the account had no such lead then.
func (r *Reader) LeadAsOf(ctx context.Context, account, id string, at time.Time) (Lead, error) {
	if !event.ValidID(id) {
		return Lead{}, ErrNotFound
	}
	state, err := r.foldLead(ctx, id, at)
	if err != nil {
		return Lead{}, err
	}
	if state.Account != account || state.Phase != lead.Live && state.Phase != lead.Joined {
		return Lead{}, ErrNotFound
	}
	return r.wholeLead(ctx, state, at)
}

func scanState(row pgx.CollectableRow) (state lead.State, err error) {
	var found schema.LeadRow
	if err := row.Scan(found.Into()...); err != nil {
		return state, err
	}
	return found.State()
}

// erasure reports whether an event erased its lead, or was erased with it.
func erasure(r eventstore.Recorded) bool { return r.Erased || r.Type == event.LeadErased{}.EventType() }

// LeadSources lists where a lead came from, oldest first. The errors are ErrNotFound and ErrCursor.
func (r *Reader) LeadSources(ctx context.Context, account, id string, p Page) (List[SourceEntry], error) {
	if !event.ValidID(id) {
		return List[SourceEntry]{}, ErrNotFound
	}
	s := selection{from: firstTouches, order: `position`, then: sourceEntries + `t.position`}
	s.and(`?::text COLLATE "C" IS NOT NULL AND position IN (`+schema.TouchesOf("views.", "$1")+`)`, id)
	s.and(`account = ?`, account)
	s.and(`first AND NOT erased`)
	list, err := pageByPosition(ctx, r, s, cursorOf(sourceCursor, account), p, scanSourceEntry)
	if err != nil || len(list.Items) > 0 {
		return list, err
	}
	state, err := r.leadState(ctx, account, id)
	switch {
	case err == nil && state.Phase == lead.Joined:
		return joinedSources(state, p)
	case err == nil && p.Cursor == "": // every lead has a source: the view of the history lags behind that of leads
		err = ErrNotFound
	}
	return list, err
}

// LeadEvents lists the events of a lead's stream, oldest first. The errors are ErrNotFound and ErrCursor.
func (r *Reader) LeadEvents(ctx context.Context, account, id string, p Page) (List[Event], error) {
	if !event.ValidID(id) {
		return List[Event]{}, ErrNotFound
	}
	var from eventstore.Revision
	if p.Cursor != "" {
		last, err := decodeOrdinal(cursorOf(eventCursor, account), p.Cursor)
		if err != nil {
			return List[Event]{}, err
		}
		from = eventstore.Revision(last) + 1
	}
	stream := event.LeadStream(id)
	events, err := r.read(ctx, account, stream, from, p.Limit)
	if err != nil {
		return List[Event]{}, err
	}
	if len(events.items) == 0 {
		first, err := r.read(ctx, account, stream, 0, 1)
		if err == nil && len(first.items) == 0 {
			err = ErrNotFound
		}
		return List[Event]{}, err
	}
	return events.list(func(e Event) string {
		return encodeOrdinal(cursorOf(eventCursor, account), int64(e.Revision))
	}), nil
}

// read returns events of a stream. The error is ErrNotFound if the stream is another account's, or its lead was erased,
// which the last event of the stream shows, because no event follows an erasure. Events of before a split may be erased
// with the lead that left.
func (r *Reader) read(
	ctx context.Context, account, stream string, from eventstore.Revision, limit int,
) (events pageBuilder[Event], err error) {
	events.limit = limit
	lost := false
	for recorded, err := range r.store.Read(ctx, stream, from) {
		if err != nil {
			return events, err
		}
		if recorded.Metadata.Account != account || recorded.Type == (event.LeadErased{}).EventType() {
			return events, ErrNotFound
		}
		if !events.hasRoom() {
			break
		}
		lost = lost || recorded.Erased
		events.add(NewEvent(recorded), len(recorded.Data))
	}
	if !events.more && !lost {
		return events, nil
	}
	last, err := r.store.Last(ctx, stream)
	if err == nil && erasure(last) {
		err = ErrNotFound
	}
	return events, err
}

// NewEvent returns an event as callers see it.
func NewEvent(r eventstore.Recorded) Event {
	return Event{
		ID: r.ID.String(), Type: event.PublicName(r.Type), Revision: r.Revision, Position: r.Position,
		At: Timestamp(r.At), Actor: r.Metadata.Actor, RequestID: r.Metadata.RequestID, Data: jsontext.Value(r.Data),
	}
}

// A lead that was joined into another is in no view, so no list shows it and no report counts it. Requests for its id
// are answered from its stream.

// leadState finds a lead in the view or, if it was joined into another, on the log. The error is ErrNotFound if the
// account never had it.
func (r *Reader) leadState(ctx context.Context, account, id string) (lead.State, error) {
	state, err := one(ctx, r, scanState,
		`SELECT `+schema.LeadColumns+` FROM views.lead WHERE lead_id = $1 AND account = $2`, id, account)
	if !errors.Is(err, ErrNotFound) {
		return state, err
	}
	state, err = r.foldLead(ctx, id, time.Time{})
	if err == nil && (state.Phase != lead.Joined || state.Account != account) {
		err = ErrNotFound
	}
	return state, err
}

// leadFolds are the rules of the cache of folded leads, for past states and joined leads. An erasure makes the folded
// events unreadable.
var leadFolds = eventstore.FoldRules[lead.State]{
	Evolve:    lead.Fold,
	Cacheable: func(s lead.State) bool { return s.Phase == lead.Live || s.Phase == lead.Joined },
	Long:      128, Memory: 4 << 20,
}

// foldLead folds a lead's stream up to a moment, inclusive; the zero time is now. An erased lead is erased at any time.
func (r *Reader) foldLead(ctx context.Context, id string, until time.Time) (lead.State, error) {
	if until.IsZero() {
		until = endOfTime
	}
	state, end, err := r.leads.LoadAt(ctx, r.store, event.LeadStream(id), until)
	if err != nil {
		return lead.State{}, err
	}
	if erasure(end) { // an erased lead is treated as if it had never existed
		return lead.State{Phase: lead.Erased}, nil
	}
	return state, nil
}

// endOfTime is behind the time of every event.
var endOfTime = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// newWholeLead shows a lead with its metadata, the leads that were joined into it, and the lead that it was joined into
// first.
func newWholeLead(s lead.State) Lead {
	l := NewListedLead(s)
	if l.Metadata = s.Metadata; l.Metadata == nil {
		l.Metadata = map[string]jsontext.Value{}
	}
	l.Joined, l.JoinedInto, l.Contacts = s.Joined, s.JoinedInto, NewContacts(s)
	return l
}

// wholeLead is newWholeLead, but JoinedInto names the lead at the end of all joins up to a moment; the zero time is
// now.
func (r *Reader) wholeLead(ctx context.Context, s lead.State, until time.Time) (Lead, error) {
	l := newWholeLead(s)
	for range maxJoins {
		if l.JoinedInto == "" {
			break
		}
		next, err := r.foldLead(ctx, l.JoinedInto, until)
		if err != nil {
			return Lead{}, err
		}
		if next.JoinedInto == "" {
			break
		}
		l.JoinedInto = next.JoinedInto
	}
	return l, nil
}

// maxJoins bounds how many joins are followed.
const maxJoins = 100

// joinedSources returns the sources of a lead that was joined into another, as of the join. The view only has those of
// the surviving lead.
func joinedSources(s lead.State, p Page) (List[SourceEntry], error) {
	kind, after := cursorOf(sourceCursor, s.Account), int64(0)
	if p.Cursor != "" {
		var err error
		if after, err = decodeOrdinal(kind, p.Cursor); err != nil {
			return List[SourceEntry]{}, err
		}
	}
	entries := []positioned[SourceEntry]{}
	for i, of := range s.Sources {
		number := int64(i + 1)
		if number <= after {
			continue
		}
		metadata, err := event.AppendJSON(nil, of.Metadata)
		if err != nil {
			return List[SourceEntry]{}, err
		}
		entry := SourceEntry{
			LeadID: s.ID, Source: of.Source, FirstSeenAt: Timestamp(of.FirstSeenAt),
			LastSeenAt: Timestamp(of.LastSeenAt), Arrivals: of.Arrivals, Credential: newCredential(of.Credential),
			Metadata: metadata, IP: of.IP, UserAgent: of.UserAgent, RequestID: of.RequestID, Changed: of.Changed,
		}
		if entry.Changed == nil {
			entry.Changed = []string{}
		}
		entries = append(entries, positioned[SourceEntry]{number, entry})
	}
	return itemsOf(cut(entries, p.Limit, func(e positioned[SourceEntry]) string {
		return encodeOrdinal(kind, e.position)
	})), nil
}

// WithClaims lets the Reader find a lead by phone or email on the log, where a claim names its owner. Without it, every
// row of the account is read: the view has no index on phones and emails, because maintaining an index of random keys
// would be the most expensive part of a capture.
//
// Cursors that are sealed then are those of every process with the same key.
func WithClaims(names claim.Names) Option {
	return func(r *Reader) { r.claims, r.tags = &names, names }
}

// addOwners adds the condition that a lead is the one that the claims on the filter's phone and email name. A lead
// keeps the claims on values that it had before, so the filter's own conditions on phone and email stay.
func (r *Reader) addOwners(ctx context.Context, s *selection, account string, filter LeadFilter) error {
	if r.claims == nil {
		return nil
	}
	for kind, value := range map[claim.Kind]string{claim.Phone: filter.Phone, claim.Email: filter.Email} {
		if value == "" {
			continue
		}
		claimed, _, err := eventstore.Load(ctx, r.store, r.claims.Stream(account, kind, value), claim.Evolve)
		if err != nil {
			return err
		}
		s.and(`lead_id = ?`, claimed.Holder)
	}
	return nil
}
