package query

import (
	"context"
	"iter"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/schema"
)

// Leads lists an account's leads, newest first, without metadata. The error is ErrCursor for a cursor of another list.
func (r *Reader) Leads(ctx context.Context, account string, filter LeadFilter, p Page) (List[Lead], error) {
	if exact, whole := filter.exact(); whole && r.claims != nil && p.Cursor == "" {
		if list, err := r.Leads(ctx, account, exact, p); err != nil || len(list.Items) > 0 {
			return list, err
		}
	}
	s := filter.selection(account, `SELECT `+schema.LeadColumns+` FROM views.lead`, `created_at DESC, lead_id DESC`)
	kind := cursorOf(leadCursor, account)
	after, err := s.olderThan(`lead_id`, kind, p.Cursor)
	if err != nil {
		return List[Lead]{}, err
	}
	if err := r.owning(ctx, &s, account, filter); err != nil {
		return List[Lead]{}, err
	}
	next := func(l Lead) string { return newestCursor{time.Time(l.CreatedAt), l.LeadID}.encode(kind) }
	if s.none || !filter.searches() {
		return page(ctx, r, s, p.Limit, scanListedLead, next)
	}
	plan, err := r.planOf(ctx, account, filter)
	if err != nil {
		return List[Lead]{}, err
	}
	if !after.IsZero() {
		after = after.Add(time.Millisecond) // others of that moment may follow
	}
	found := newSearch(s, account, filter, plan, after, p.Limit)
	err = pgx.BeginTxFunc(ctx, r.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		return found.run(ctx, tx)
	})
	if err != nil {
		return List[Lead]{}, schema.Unavailable(err)
	}
	return found.found.list(next), nil
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
	if exact.Email, err = lead.ParseEmail(filter.Q); err == nil {
		return exact, true
	}
	exact.Phone, err = lead.ParsePhone(filter.Q, filter.Region)
	return exact, err == nil
}

func (filter LeadFilter) selection(account, from, order string) selection {
	s := selection{from: from, order: order}
	filter.narrow(&s, account, "")
	return s
}

// Filters that have an index each.
const (
	bySource = "source"
	byStatus = "status"
)

// narrow adds the filter's conditions. If the search is to use the index of source or of status, the other condition is written
// such that PostgreSQL uses no index for it. The text search comes last, because the other conditions cost a fifth of it.
func (filter LeadFilter) narrow(s *selection, account, by string) {
	source, status, search := bySource, byStatus, "search"
	switch by {
	case bySource:
		status += ` || ''`
	case byStatus:
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
		s.and(`phone = ANY (?)`, lead.PhoneForms(filter.Phone))
	}
	s.equal(`email`, filter.Email)
	if filter.Q != "" {
		s.none = s.none || strings.Contains(filter.Q, "\n") // is in no name, and stands between them in what is searched
		s.and(search+` LIKE ?`, contains(schema.Searched(filter.Q)))
	}
	s.within(`created_at`, filter.CreatedSince, filter.CreatedUntil)
}

// olderThan makes a list, ordered by created_at and an id, newest first, go on after a cursor. It returns the cursor's time.
func (s *selection) olderThan(id, kind, cursor string) (after time.Time, err error) {
	if cursor == "" {
		return after, nil
	}
	last, err := decodeNewest(kind, cursor)
	if err != nil {
		return after, err
	}
	s.and(`(created_at, `+id+`) < (?, ?)`, last.createdAt, last.id)
	return last.createdAt, nil
}

// Lead returns one lead with its metadata, even if it was joined into another. The error is ErrNotFound when the account has no
// such lead.
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
	return NewLead(state), err
}

// LeadAsOf returns a lead as it was at a moment: the fold of its stream up to and including that millisecond. The error is
// ErrNotFound when the account had no such lead then.
func (r *Reader) LeadAsOf(ctx context.Context, account, id string, at time.Time) (Lead, error) {
	if !event.ValidID(id) {
		return Lead{}, ErrNotFound
	}
	state, err := r.foldLead(ctx, id, at)
	if err != nil {
		return Lead{}, err
	}
	if state.Account != account || state.Phase != lead.Live && state.Phase != lead.Departed {
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
	s := selection{order: `position`, from: sourceColumns}
	s.and(`lead_id = ?`, id)
	s.and(`account = ?`, account)
	if err := s.goOn(`>`, cursorOf(sourceCursor, account), p.Cursor); err != nil {
		return List[SourceEntry]{}, err
	}
	list, err := pageByPosition(ctx, r, s, cursorOf(sourceCursor, account), p.Limit, scanSourceEntry)
	if err != nil || len(list.Items) > 0 {
		return list, err
	}
	state, err := r.leadState(ctx, account, id)
	switch {
	case err == nil && state.Phase == lead.Departed:
		return departedSources(state, p)
	case err == nil && p.Cursor == "": // every lead came from somewhere: the history is behind the view of leads
		err = ErrNotFound
	}
	return list, err
}

func scanSourceEntry(row pgx.CollectableRow) (placed[SourceEntry], error) {
	var e placed[SourceEntry]
	err := row.Scan(&e.position, &e.item.LeadID, &e.item.Source, &e.item.FirstSeenAt, &e.item.LastSeenAt,
		&e.item.Arrivals, &e.item.Credential, jsonOf{&e.item.Metadata}, &e.item.IP, &e.item.UserAgent, &e.item.RequestID, jsonOf{&e.item.Changed})
	return e, err
}

// newCredential splits a credential as events write it: token:{tokenId} or jwt:{sub}. A subject may contain colons.
func newCredential(written string) Credential {
	kind, id, _ := strings.Cut(written, ":")
	return Credential{Kind: kind, ID: id}
}

// ScanText reads a column.
func (c *Credential) ScanText(written pgtype.Text) error {
	*c = newCredential(written.String)
	return nil
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
	return events.list(func(e Event) string { return encodeOrdinal(cursorOf(eventCursor, account), int64(e.Revision)) }), nil
}

// read returns events of a stream. The error is ErrNotFound if the stream is another account's, or its lead was erased, which the
// last event of the stream shows: nothing follows an erasure.
func (r *Reader) read(ctx context.Context, account, stream string, from eventstore.Revision, limit int) (events part[Event], err error) {
	events.limit = limit
	for recorded, err := range r.store.Read(ctx, stream, from) {
		if err != nil {
			return events, err
		}
		if recorded.Metadata.Account != account || erasure(recorded) {
			return events, ErrNotFound
		}
		if !events.takes() {
			break
		}
		events.add(newEvent(recorded), len(recorded.Data))
	}
	if !events.more {
		return events, nil
	}
	last, err := r.store.Last(ctx, stream)
	if err == nil && erasure(last) {
		err = ErrNotFound
	}
	return events, err
}

func newEvent(r eventstore.Recorded) Event {
	return Event{
		ID: r.ID.String(), Type: event.PublicName(r.Type), Revision: r.Revision, Position: r.Position,
		At: Timestamp(r.At), Actor: r.Metadata.Actor, RequestID: r.Metadata.RequestID, Data: said(r),
	}
}

// said returns the data of an event, with times as in all answers: the stored data of a join have times with only the decimals that
// they need.
func said(r eventstore.Recorded) jsontext.Value {
	if r.Type == (event.LeadJoined{}).EventType() {
		if joined, err := r.Decode(); err == nil {
			if data, err := json.Marshal(joined, json.Deterministic(true), asAnswered); err == nil {
				return data
			}
		}
	}
	return jsontext.Value(r.Data)
}

var asAnswered = json.WithMarshalers(json.MarshalFunc(func(t time.Time) ([]byte, error) { return Timestamp(t).MarshalJSON() }))
