// Package lead decides what an arrival means: who the person is, whether the arrival opens a lead, merges into one
// or is refused, and what then changes.
//
// It is pure. The command handler passes in the leads that own the arrival's phone and email, and appends the decision.
package lead

import (
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/contact"
	"github.com/leadlog/leadlog/eventstore/event"
)

// Phase is a stage in the life of a lead.
type Phase int

// A lead's phases.
const (
	NotCreated Phase = iota
	Live
	Joined // into another lead, which it is now part of
	Erased // its person has been forgotten
)

// State is a fold of a lead's stream. Its JSON is that of cached folds and of the view's rows.
type State struct {
	Phase            Phase  `json:"phase,omitzero"`
	ID               string `json:"id,omitzero"`
	Revision         int64  `json:"revision,omitzero"` // of the latest fact folded
	Account          string `json:"account,omitzero"`
	ContactUID       string `json:"contactUID,omitzero"`
	event.LeadFields        // OpportunityValue is empty when there is no opportunity
	NameDerived      bool   `json:"nameDerived,omitzero"` // made of the email or phone, because no name is known

	// folds of every number the lead ever had and that was not released: each finds it
	Phones []string `json:"phones,omitzero"`
	Emails []string `json:"emails,omitzero"` // likewise
	// FirstSeen is when those of them came first that did not come when the lead was created.
	FirstSeen  map[string]time.Time      `json:"firstSeen,omitzero"`
	Source     string                    `json:"source,omitzero"` // the first touch
	Sources    []SourceEntry             `json:"sources,omitzero"`
	Metadata   map[string]jsontext.Value `json:"metadata,omitzero"`
	VisitorIDs []string                  `json:"visitorIds,omitzero"`
	Joined     []string                  `json:"joined,omitzero"` // ids of leads that are part of this one
	// id of the lead that this one was joined into
	JoinedInto string `json:"joinedInto,omitzero"`
	// where else data of this lead are, because it left another
	Origins   []event.SplitOrigin           `json:"origins,omitzero"`
	Consents  map[string]event.ConsentState `json:"consents,omitzero"` // the latest of each purpose
	CreatedAt time.Time                     `json:"createdAt,omitzero"`
	// OpenedAt is when the arrival that created the lead was received, if its fact is later; zero otherwise, and after
	// a split.
	OpenedAt  time.Time `json:"openedAt,omitzero"`
	UpdatedAt time.Time `json:"updatedAt,omitzero"`
	// ArrivedAt is when the latest arrival was received, if no change followed and its fact is later; zero otherwise.
	ArrivedAt time.Time `json:"arrivedAt,omitzero"`
}

// ActiveAt is when the lead last arrived or was changed.
func (s State) ActiveAt() time.Time {
	if s.ArrivedAt.IsZero() {
		return s.UpdatedAt
	}
	return s.ArrivedAt
}

// active sets the time of the latest fact, and the time of the activity that it records.
func (s *State) active(fact *event.Fact, at time.Time) {
	if before := s.ActiveAt(); at.Before(before) {
		at = before
	}
	if s.UpdatedAt, s.ArrivedAt = fact.At, at; !at.Before(fact.At) {
		s.ArrivedAt = time.Time{}
	}
}

// SourceEntry is one source in a lead's history: how it came first, and how often since.
type SourceEntry struct {
	Source      string    `json:"source"`
	FirstSeenAt time.Time `json:"firstSeenAt"`
	LastSeenAt  time.Time `json:"lastSeenAt"`
	Arrivals    int       `json:"arrivals"`
	// jwt:{sub}, token:{tokenId} or intake:{id}, of the first arrival
	Credential string                    `json:"credential"`
	Metadata   map[string]jsontext.Value `json:"metadata"` // as given
	IP         string                    `json:"ip"`
	UserAgent  string                    `json:"userAgent"`
	RequestID  string                    `json:"requestId"`
	Changed    []string                  `json:"changed"`
}

// Evolve folds one fact into the state. It does not change the state that it is given.
func Evolve(s State, fact event.Fact) State {
	if _, merged := fact.Data.(event.LeadMerged); merged {
		s.Sources = slices.Clone(s.Sources)
	}
	return Fold(s, fact)
}

// Fold is Evolve for folding a whole stream. It may change the state that it is given, which must not be used any more.
func Fold(s State, fact event.Fact) State {
	s.fold(&fact)
	return s
}

// fold works in place, so that the state and the fact, half a kilobyte each, are not copied for every fact.
func (s *State) fold(fact *event.Fact) {
	revision := s.Revision + 1
	if s.Phase == NotCreated {
		revision = 0
	}
	s.evolve(fact)
	s.Revision = revision
}

func (s *State) evolve(fact *event.Fact) {
	if _, erased := fact.Data.(event.LeadErased); erased || fact.Erased {
		s.erase(fact)
		return
	}
	if split, is := fact.Data.(event.LeadSplit); is {
		s.split(fact, &split)
		return
	}
	if s.Phase == Erased {
		s.erase(fact)
		return
	}
	switch data := fact.Data.(type) {
	case event.LeadCreated:
		s.create(fact, &data)
	case event.LeadMerged:
		s.merge(fact, &data)
	case event.LeadUpdated:
		s.update(fact, &data)
	case event.LeadReleased:
		s.release(fact, &data)
	case event.LeadConsented:
		s.active(fact, fact.At)
	case event.LeadJoinedInto:
		s.joinInto(fact, &data)
	case event.LeadJoined:
		s.join(fact, &data)
	}
	if given, at := ConsentsOf(fact); given != nil {
		s.consent(given, at, fact.ID.String())
	}
}

func (s *State) create(fact *event.Fact, data *event.LeadCreated) {
	*s = State{
		Phase: Live, ID: event.LeadID(fact.Stream), Account: fact.Metadata.Account, ContactUID: data.ContactUID,
		LeadFields: data.LeadFields, NameDerived: data.NameDerived,
		Phones: with(nil, contact.FoldPhone(data.Phone)), Emails: with(nil, data.Email), Source: data.Source,
		Metadata: overlay(nil, data.Metadata, data.IP, data.UserAgent), VisitorIDs: with(nil, data.VisitorID),
		CreatedAt: fact.At,
	}
	switch claim.Kind(data.Shared) {
	case claim.Phone:
		s.Phones = nil
	case claim.Email:
		s.Emails = nil
	}
	s.see(data.SeenAt(fact.At), s.Phones, s.Emails)
	s.active(fact, data.SeenAt(fact.At))
	if seen := data.SeenAt(fact.At); seen.Before(fact.At) {
		s.OpenedAt = seen
	}
	s.Sources = []SourceEntry{CreatedSourceEntry(fact, data)}
}

func (s *State) merge(fact *event.Fact, data *event.LeadMerged) {
	s.set(&data.LeadFields)
	s.addContacts(data.SeenAt(fact.At), contact.FoldPhone(data.Phone), data.Email)
	s.VisitorIDs = withVisitor(s.VisitorIDs, data.VisitorID)
	s.Metadata = overlay(s.Metadata, data.Metadata, data.IP, data.UserAgent)
	s.addSource(fact, data)
	s.active(fact, data.SeenAt(fact.At))
}

func (s *State) update(fact *event.Fact, data *event.LeadUpdated) {
	s.set(&data.LeadFields)
	s.CustomFields = without(s.CustomFields, data.RemovedFields)
	s.active(fact, fact.At)
}

// addSource adds an arrival to the source history: as a new entry, or to the entry of the same source.
func (s *State) addSource(fact *event.Fact, data *event.LeadMerged) {
	for i := range s.Sources {
		if s.Sources[i].Source == data.Source {
			if seen := data.SeenAt(fact.At); seen.After(s.Sources[i].LastSeenAt) { // a resubmitted arrival may be older
				s.Sources[i].LastSeenAt = seen
			}
			s.Sources[i].Arrivals++
			return
		}
	}
	s.Sources = append(s.Sources, MergedSourceEntry(fact, data))
}

// CreatedSourceEntry is the history entry of the arrival that created a lead.
func CreatedSourceEntry(fact *event.Fact, data *event.LeadCreated) SourceEntry {
	return newSourceEntry(fact, data.SeenAt(fact.At), data.Source, data.Metadata, data.IP, data.UserAgent, data.Changed)
}

// MergedSourceEntry is the history entry that an arrival from a new source opens.
func MergedSourceEntry(fact *event.Fact, data *event.LeadMerged) SourceEntry {
	return newSourceEntry(fact, data.SeenAt(fact.At), data.Source, data.Metadata, data.IP, data.UserAgent, data.Changed)
}

func newSourceEntry(
	fact *event.Fact, seen time.Time, source string, metadata map[string]jsontext.Value, ip, userAgent string,
	changed []string,
) SourceEntry {
	return SourceEntry{
		Source: source, FirstSeenAt: seen, LastSeenAt: seen, Arrivals: 1,
		Credential: fact.Metadata.Credential, Metadata: metadata, IP: ip, UserAgent: userAgent,
		RequestID: fact.Metadata.RequestID, Changed: changed,
	}
}

// HasSource reports whether the lead ever arrived from a source.
func (s State) HasSource(source string) bool {
	return slices.ContainsFunc(s.Sources, func(e SourceEntry) bool { return e.Source == source })
}

// SetBy returns the lead with only the values that one fact set: all values of its creation, and those given by an
// arrival that merged or by a change by hand. The ids and times stay, and the source is that of the arrival. The rest
// is empty.
func (s State) SetBy(fact event.Data) State {
	set := State{
		Phase: s.Phase, ID: s.ID, Revision: s.Revision, Account: s.Account, ContactUID: s.ContactUID,
		CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt,
	}
	switch fact := fact.(type) {
	case event.LeadCreated:
		return s
	case event.LeadMerged:
		set.Source, set.LeadFields = fact.Source, fact.LeadFields
	case event.LeadUpdated:
		set.LeadFields = fact.LeadFields
	}
	if set.OpportunityID = ""; set.OpportunityValue != "" {
		set.OpportunityID = s.OpportunityID
	}
	return set
}

// with appends a value that is not there yet.
func with(list []string, value string) []string {
	if value == "" || slices.Contains(list, value) {
		return list
	}
	return append(slices.Clip(list), value)
}

// withVisitor appends a visitor that is not there yet, as long as there are fewer than MaxVisitors. The events have the
// others too.
func withVisitor(visitors []string, id string) []string {
	if len(visitors) >= MaxVisitors {
		return visitors
	}
	return with(visitors, id)
}

// overlay merges an arrival's metadata into the lead's, key by key. Metadata of the first arrival are kept as given;
// empty values of later ones change nothing. The source is left out because it has its own field, and ip and userAgent
// replace the given ones.
func overlay(old, given map[string]jsontext.Value, ip, userAgent string) map[string]jsontext.Value {
	first := old == nil
	l := copyOnWrite{members: old}
	if first {
		l = copyOnWrite{make(map[string]jsontext.Value, len(given)+2), true}
	}
	for key, value := range given {
		if counts(key, value, first) {
			l.put(key, value)
		}
	}
	if ip != "" && !quotes(l.members[keyIP], ip) {
		l.put(keyIP, quote(ip))
	}
	if userAgent != "" && !quotes(l.members[keyUserAgent], userAgent) {
		l.put(keyUserAgent, quote(userAgent))
	}
	return l.members
}

func counts(key string, value jsontext.Value, first bool) bool {
	return key != keySource && key != keyIP && key != keyUserAgent && (first || !empty(value))
}

// overlays reports whether overlay would change anything, given an arrival's metadata.
func overlays(old, given map[string]jsontext.Value) bool {
	for key, value := range given {
		if was, known := old[key]; counts(key, value, old == nil) && (!known || string(was) != string(value)) {
			return true
		}
	}
	return false
}

// erase empties a lead whose person is forgotten; only its existence stays. The result is the same whether the fact is
// the erasure itself or an earlier one that can no longer be read.
func (s *State) erase(fact *event.Fact) {
	gone := State{
		Phase: Erased, ID: event.LeadID(fact.Stream), Account: fact.Metadata.Account, ContactUID: s.ContactUID,
		Revision: s.Revision, CreatedAt: s.CreatedAt, UpdatedAt: fact.At,
	}
	if created, ok := fact.Data.(event.LeadCreated); ok {
		gone.ContactUID, gone.CreatedAt = created.ContactUID, fact.At
	}
	*s = gone
}
