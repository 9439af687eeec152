// Package lead decides what an arrival means: who the person is, whether the arrival opens a lead, merges into one
// or is refused, and what then changes.
//
// It is pure. The command handler passes in the leads that own the arrival's phone and email, and appends the decision.
package lead

import (
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/eventstore/event"
)

// Phase is where a lead is in its life.
type Phase int

// A lead's phases.
const (
	Unborn Phase = iota
	Live
	Departed // into another lead, which it is now part of
	Erased   // its person has been forgotten
)

// State is a fold of a lead's stream.
type State struct {
	Phase            Phase                     `json:",omitzero"`
	ID               string                    `json:",omitzero"`
	Revision         int64                     `json:",omitzero"` // of the latest fact folded
	Account          string                    `json:",omitzero"`
	ContactUID       string                    `json:",omitzero"`
	Name             string                    `json:",omitzero"`
	NameDerived      bool                      `json:",omitzero"` // made of the email or phone, because no name is known
	Phone            string                    `json:",omitzero"`
	Email            string                    `json:",omitzero"`
	Phones           []string                  `json:",omitzero"` // folds of every number the lead ever had and that was not released: each finds it
	Emails           []string                  `json:",omitzero"` // likewise
	Status           string                    `json:",omitzero"`
	Temperature      string                    `json:",omitzero"`
	OpportunityID    string                    `json:",omitzero"`
	OpportunityValue string                    `json:",omitzero"` // exact decimal; empty when there is no opportunity
	Source           string                    `json:",omitzero"` // the first touch
	Sources          []SourceEntry             `json:",omitzero"`
	CustomFields     map[string]jsontext.Value `json:",omitzero"`
	Metadata         map[string]jsontext.Value `json:",omitzero"`
	VisitorIDs       []string                  `json:",omitzero"`
	Joined           []string                  `json:",omitzero"` // ids of leads that are part of this one
	JoinedInto       string                    `json:",omitzero"` // id of the lead that this one departed into
	CreatedAt        time.Time                 `json:",omitzero"`
	UpdatedAt        time.Time                 `json:",omitzero"`
}

// SourceEntry is one source in a lead's history: how it came first, and how often since.
type SourceEntry struct {
	Source      string                    `json:"source"`
	FirstSeenAt time.Time                 `json:"firstSeenAt"`
	LastSeenAt  time.Time                 `json:"lastSeenAt"`
	Arrivals    int                       `json:"arrivals"`
	Credential  string                    `json:"credential"` // jwt:{sub} or token:{tokenId}, of the first arrival
	Metadata    map[string]jsontext.Value `json:"metadata"`   // as given
	IP          string                    `json:"ip"`
	UserAgent   string                    `json:"userAgent"`
	RequestID   string                    `json:"requestId"`
	Changed     []string                  `json:"changed"`
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
	if s.Phase == Unborn {
		revision = 0
	}
	s.evolve(fact)
	s.Revision = revision
}

func (s *State) evolve(fact *event.Fact) {
	if _, erased := fact.Data.(event.LeadErased); erased || fact.Erased || s.Phase == Erased {
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
	case event.LeadDeparted:
		s.depart(fact, &data)
	case event.LeadJoined:
		s.join(fact, &data)
	}
}

func (s *State) create(fact *event.Fact, data *event.LeadCreated) {
	*s = State{
		Phase: Live, ID: event.LeadID(fact.Stream), Account: fact.Metadata.Account,
		ContactUID: data.ContactUID, Name: data.Name, NameDerived: data.NameDerived,
		Phone: data.Phone, Email: data.Email, Phones: with(nil, FoldPhone(data.Phone)), Emails: with(nil, data.Email),
		Status: data.Status, Temperature: data.Temperature,
		OpportunityID: data.OpportunityID, OpportunityValue: data.OpportunityValue,
		Source: data.Source, CustomFields: data.CustomFields,
		Metadata:   overlay(nil, data.Metadata, data.IP, data.UserAgent),
		VisitorIDs: with(nil, data.VisitorID),
		CreatedAt:  fact.At, UpdatedAt: fact.At,
	}
	s.Sources = []SourceEntry{NewSourceEntry(fact, data.Source, data.Metadata, data.IP, data.UserAgent, data.Changed)}
}

func (s *State) merge(fact *event.Fact, data *event.LeadMerged) {
	if data.Name != "" {
		s.Name, s.NameDerived = data.Name, false
	}
	if data.OpportunityID != "" {
		s.OpportunityID = data.OpportunityID
	}
	replace(&s.Phone, data.Phone)
	replace(&s.Email, data.Email)
	replace(&s.Status, data.Status)
	replace(&s.Temperature, data.Temperature)
	replace(&s.OpportunityValue, data.OpportunityValue)
	s.Phones, s.Emails = with(s.Phones, FoldPhone(data.Phone)), with(s.Emails, data.Email)
	s.VisitorIDs = withVisitor(s.VisitorIDs, data.VisitorID)
	s.CustomFields = union(s.CustomFields, data.CustomFields)
	s.Metadata = overlay(s.Metadata, data.Metadata, data.IP, data.UserAgent)
	s.see(fact, data)
	s.UpdatedAt = fact.At
}

func (s *State) update(fact *event.Fact, data *event.LeadUpdated) {
	if data.Name != "" {
		s.Name, s.NameDerived = data.Name, false
	}
	replace(&s.Status, data.Status)
	replace(&s.Temperature, data.Temperature)
	replace(&s.OpportunityID, data.OpportunityID)
	replace(&s.OpportunityValue, data.OpportunityValue)
	s.CustomFields = without(union(s.CustomFields, data.CustomFields), data.RemovedFields)
	s.UpdatedAt = fact.At
}

// see adds an arrival to the source history: as a new entry, or to the entry of the same source.
func (s *State) see(fact *event.Fact, data *event.LeadMerged) {
	for i := range s.Sources {
		if s.Sources[i].Source == data.Source {
			s.Sources[i].LastSeenAt = fact.At
			s.Sources[i].Arrivals++
			return
		}
	}
	s.Sources = append(s.Sources, NewSourceEntry(fact, data.Source, data.Metadata, data.IP, data.UserAgent, data.Changed))
}

// NewSourceEntry is the history entry that an arrival from a new source opens.
func NewSourceEntry(fact *event.Fact, source string, metadata map[string]jsontext.Value, ip, userAgent string, changed []string) SourceEntry {
	return SourceEntry{
		Source: source, FirstSeenAt: fact.At, LastSeenAt: fact.At, Arrivals: 1,
		Credential: fact.Metadata.Credential, Metadata: metadata, IP: ip, UserAgent: userAgent,
		RequestID: fact.Metadata.RequestID, Changed: changed,
	}
}

// HasSource reports whether the lead ever arrived from a source.
func (s State) HasSource(source string) bool {
	return slices.ContainsFunc(s.Sources, func(e SourceEntry) bool { return e.Source == source })
}

// SetBy returns of a lead what one fact set: all that its creation did, and of an arrival that merged or a change by hand only the
// values that it gave. The ids and times stay, and the source is that of the arrival. The rest is empty.
func (s State) SetBy(fact event.Data) State {
	var given event.LeadMerged
	switch fact := fact.(type) {
	case event.LeadCreated:
		return s
	case event.LeadMerged:
		given = fact
	case event.LeadUpdated:
		given = event.LeadMerged{
			Name: fact.Name, Status: fact.Status, Temperature: fact.Temperature, OpportunityValue: fact.OpportunityValue,
			CustomFields: fact.CustomFields,
		}
	}
	set := State{
		Phase: s.Phase, ID: s.ID, Revision: s.Revision, Account: s.Account, ContactUID: s.ContactUID, Source: given.Source,
		Name: given.Name, Phone: given.Phone, Email: given.Email, Status: given.Status, Temperature: given.Temperature,
		OpportunityValue: given.OpportunityValue, CustomFields: given.CustomFields, CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt,
	}
	if given.OpportunityValue != "" {
		set.OpportunityID = s.OpportunityID
	}
	return set
}

func replace(field *string, value string) {
	if value != "" {
		*field = value
	}
}

// with appends a value that is not there yet.
func with(list []string, value string) []string {
	if value == "" || slices.Contains(list, value) {
		return list
	}
	return append(slices.Clip(list), value)
}

// withVisitor appends a visitor that is not there yet, as long as there are fewer than MaxVisitors. The events have the others too.
func withVisitor(visitors []string, id string) []string {
	if len(visitors) >= MaxVisitors {
		return visitors
	}
	return with(visitors, id)
}

// copyOnWrite is a map that is copied only when a member changes: most arrivals of a person bring nothing new.
type copyOnWrite struct {
	members map[string]jsontext.Value
	own     bool // a copy, or new
}

func (l *copyOnWrite) put(key string, value jsontext.Value) {
	if was, there := l.members[key]; there && string(was) == string(value) {
		return
	}
	if !l.own {
		if l.members = maps.Clone(l.members); l.members == nil {
			l.members = map[string]jsontext.Value{}
		}
		l.own = true
	}
	l.members[key] = value
}

func union(old, latest map[string]jsontext.Value) map[string]jsontext.Value {
	l := copyOnWrite{members: old}
	for key, value := range latest {
		l.put(key, value)
	}
	return l.members
}

func without(fields map[string]jsontext.Value, removed []string) map[string]jsontext.Value {
	if len(removed) == 0 {
		return fields
	}
	left := maps.Clone(fields)
	for _, key := range removed {
		delete(left, key)
	}
	return left
}

// overlay puts an arrival's metadata over the lead's, key by key. That of the first arrival is kept as given; of later ones, empty
// values change nothing. The source is left out because it has its own field, and IP address and user agent are those resolved.
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
		if was, there := old[key]; counts(key, value, old == nil) && (!there || string(was) != string(value)) {
			return true
		}
	}
	return false
}

// erase keeps of a lead whose person is forgotten only that it existed. The result is the same whether the fact is the erasure
// itself or an earlier one that can no longer be read.
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
