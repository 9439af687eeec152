package attribution

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/eventstore/event"
)

// Channel has the values of a touch for each key, empty for none.
type Channel struct{ Source, Medium, Campaign, UTMSource, Intake, Credential string }

// Key returns the value of a key.
func (c Channel) Key(by Key) string {
	switch by {
	case ByMedium:
		return c.Medium
	case ByCampaign:
		return c.Campaign
	case ByUTMSource:
		return c.UTMSource
	case ByIntake:
		return c.Intake
	case ByCredential:
		return c.Credential
	}
	return c.Source
}

// TouchCredential returns the credential of an event as touches have it: user:{sub} for jwt:{sub}.
func TouchCredential(credential string) string {
	if subject, ok := strings.CutPrefix(credential, "jwt:"); ok {
		return "user:" + subject
	}
	return credential
}

// EventCredential reverses TouchCredential.
func EventCredential(credential string) string {
	if subject, ok := strings.CutPrefix(credential, "user:"); ok {
		return "jwt:" + subject
	}
	return credential
}

// Ledger folds the events of one account into the histories of its leads.
type Ledger struct {
	by       Key
	leads    map[string]*History
	linked   map[string][]string // by lead, the streams of the visitors that it is linked with
	visitors map[string]*visitor // by stream
	won      Won
	arrivals map[int64]arrived // by position
	costs    Costs
}

type visitor struct {
	visits []Touch
	leads  []string
}

// NewLedger returns an empty ledger, of touches with one key.
func NewLedger(by Key) *Ledger {
	return &Ledger{
		by: by, leads: map[string]*History{}, linked: map[string][]string{}, visitors: map[string]*visitor{},
		arrivals: map[int64]arrived{}, costs: Costs{},
	}
}

// Add folds an event, and returns the leads whose histories it changed. Events must be added in log order; those that
// attribution does not need are ignored. No personal member is read, so an event of an erased person counts as before.
func (l *Ledger) Add(fact *event.Fact, position int64) (leads []string) {
	id := event.LeadID(fact.Stream)
	switch data := fact.Data.(type) {
	case event.LeadCreated:
		l.arrive(id, fact, position, data.Source, data.Campaign, data.ArrivalRef, data.Visitor)
		l.set(id, data.SeenAt(fact.At), position, data.LeadFields)
	case event.LeadMerged:
		l.arrive(id, fact, position, data.Source, data.Campaign, data.ArrivalRef, data.Visitor)
		l.set(id, fact.At, position, data.LeadFields)
	case event.LeadUpdated:
		l.set(id, fact.At, position, data.LeadFields)
	case event.LeadJoined:
		l.move(data.From, id, position, nil)
		l.set(id, fact.At, position, event.LeadFields{OpportunityValue: data.OpportunityValue})
		from := l.Lead(data.From)
		from.Stages = append(from.Stages, Stage{position, fact.At.UnixMilli(), NoStage})
		return []string{id, data.From}
	case event.LeadSplit:
		l.set(id, data.StatusAt, position, event.LeadFields{
			Status: data.Status, OpportunityValue: cmp.Or(data.OpportunityValue, "0"),
		})
		if data.Into != "" {
			l.move(id, data.Into, position, data.Touches)
			return []string{id, data.Into}
		}
	case event.VisitorActed:
		if data.Touch {
			return l.visit(fact, position, &data)
		}
		return nil
	case event.AccountConfigured:
		l.won = append(l.won, NewWonStages(position, data.WonStagesOrDefault()))
		return nil
	case event.SpendSet:
		l.costs.Set(data)
		return nil
	default:
		return nil
	}
	return []string{id}
}

// Lead returns a lead's history, an empty one if no event of the lead was added.
func (l *Ledger) Lead(id string) *History {
	h := l.leads[id]
	if h == nil {
		h = &History{}
		l.leads[id] = h
	}
	return h
}

// Won returns the stages that count as a conversion.
func (l *Ledger) Won() Won { return l.won }

// Costs returns what days of advertising cost.
func (l *Ledger) Costs() Costs { return l.costs }

// Leads yields all leads, in the order of their ids.
func (l *Ledger) Leads() iter.Seq2[string, *History] {
	return func(yield func(string, *History) bool) {
		for _, id := range slices.Sorted(maps.Keys(l.leads)) {
			if !yield(id, l.leads[id]) {
				return
			}
		}
	}
}

func (l *Ledger) arrive(
	id string, fact *event.Fact, position int64, source string, of event.Campaign, kept event.ArrivalRef,
	visitor string,
) {
	key := Channel{
		source, of.UTMMedium, of.UTMCampaign, of.UTMSource, kept.IntakeID, TouchCredential(fact.Metadata.Credential),
	}.Key(l.by)
	h := l.Lead(id)
	h.Touches = append(h.Touches, Seen{Touch: Touch{kept.SeenAt(fact.At).UnixMilli(), position, key}, Since: position})
	l.arrivals[position] = arrived{fact.ID.String(), visitor}
	l.link(id, visitor, position)
}

func (l *Ledger) set(id string, at time.Time, position int64, fields event.LeadFields) {
	h := l.Lead(id)
	if fields.Status != "" {
		h.Stages = append(h.Stages, Stage{position, at.UnixMilli(), account.FoldStage(fields.Status)})
	}
	if units, ok := ParseValue(fields.OpportunityValue); ok && fields.OpportunityValue != "" {
		h.Values = append(h.Values, Value{position, units})
	}
}

// move gives arrivals of one lead to another, with the visitors that they are linked with: those that a split names, or
// all.
func (l *Ledger) move(from, into string, position int64, touches []string) {
	h, source := l.Lead(into), l.Lead(from)
	for i := range source.Touches {
		t := &source.Touches[i]
		if arrived := l.arrivals[t.Position]; !t.Visit && t.Until == 0 &&
			(touches == nil || slices.Contains(touches, arrived.id)) {
			t.Until = position
			h.Touches = append(h.Touches, Seen{Touch: t.Touch, Since: position})
			l.link(into, arrived.visitor, position)
		}
	}
	for _, stream := range slices.Clone(l.linked[from]) {
		if !slices.ContainsFunc(source.Touches, func(t Seen) bool {
			return !t.Visit && t.Until == 0 && l.arrivals[t.Position].visitor == stream
		}) {
			l.unlink(from, stream, position)
		}
	}
}

// arrived is the event of an arrival.
type arrived struct{ id, visitor string }

// link gives a lead all visits of a visitor.
func (l *Ledger) link(id, stream string, position int64) {
	if stream == "" || slices.Contains(l.linked[id], stream) {
		return
	}
	l.linked[id] = append(l.linked[id], stream)
	v := l.visitor(stream)
	v.leads = append(v.leads, id)
	h := l.Lead(id)
	for _, t := range v.visits {
		if i := slices.IndexFunc(h.Touches, func(of Seen) bool {
			return of.Visit && of.Position == t.Position
		}); i >= 0 {
			h.Touches[i].Until = 0 // it was linked before
			continue
		}
		h.Touches = append(h.Touches, Seen{Touch: t, Since: position, Visit: true})
	}
}

// unlink ends the visits of a visitor that no arrival of the lead is linked with any more.
func (l *Ledger) unlink(id, stream string, position int64) {
	gone := func(other string) bool { return other == stream }
	l.linked[id] = slices.DeleteFunc(l.linked[id], gone)
	v := l.visitor(stream)
	v.leads = slices.DeleteFunc(v.leads, func(other string) bool { return other == id })
	h := l.Lead(id)
	for i := range h.Touches {
		t := &h.Touches[i]
		if t.Visit && t.Until == 0 && slices.ContainsFunc(v.visits, func(visit Touch) bool {
			return visit.Position == t.Position
		}) {
			t.Until = position
		}
	}
}

func (l *Ledger) visitor(stream string) *visitor {
	v := l.visitors[stream]
	if v == nil {
		v = &visitor{}
		l.visitors[stream] = v
	}
	return v
}

func (l *Ledger) visit(fact *event.Fact, position int64, data *event.VisitorActed) []string {
	key := Channel{
		"", data.UTMMedium, data.UTMCampaign, data.UTMSource, "", TouchCredential(fact.Metadata.Credential),
	}.Key(l.by)
	v := l.visitor(fact.Stream)
	t := Touch{data.At.UnixMilli(), position, key}
	v.visits = append(v.visits, t)
	for _, id := range v.leads {
		h := l.Lead(id)
		h.Touches = append(h.Touches, Seen{Touch: t, Since: position, Visit: true})
	}
	return v.leads
}
