package query

import (
	"context"
	"errors"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/schema"
)

// A lead that was joined into another is in no view, so no list shows it and no report counts it. Its stream still says what it
// was, and requests for its id are answered from there.

// leadState finds a lead in the view or, if it has departed, on the log. The error is ErrNotFound if the account never had it.
func (r *Reader) leadState(ctx context.Context, account, id string) (lead.State, error) {
	state, err := one(ctx, r, scanState, `SELECT `+schema.LeadColumns+` FROM views.lead WHERE lead_id = $1 AND account = $2`, id, account)
	if !errors.Is(err, ErrNotFound) {
		return state, err
	}
	state, err = r.foldLead(ctx, id, time.Time{})
	if err == nil && (state.Phase != lead.Departed || state.Account != account) {
		err = ErrNotFound
	}
	return state, err
}

// leadFolds says how leads are folded, and which folds are cached, when somebody asks how a lead was earlier or for one that has
// departed. The folded facts become unreadable when the person is forgotten.
var leadFolds = eventstore.FoldRules[lead.State]{
	Evolve: lead.Fold,
	Keep:   func(s lead.State) bool { return s.Phase == lead.Live || s.Phase == lead.Departed },
	Long:   128, Memory: 4 << 20,
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
	l := NewLead(s)
	if l.Metadata = s.Metadata; l.Metadata == nil {
		l.Metadata = map[string]jsontext.Value{}
	}
	l.Joined, l.JoinedInto = s.Joined, s.JoinedInto
	return l
}

// wholeLead is newWholeLead, but JoinedInto names the lead at the end of all joins up to a moment; the zero time is now.
func (r *Reader) wholeLead(ctx context.Context, s lead.State, until time.Time) (Lead, error) {
	l := newWholeLead(s)
	for range longestWay {
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

// longestWay bounds how many joins are followed.
const longestWay = 100

// departedSources returns the sources of a departed lead, as they were when it departed. The view has only those of the lead that
// it is part of now.
func departedSources(s lead.State, p Page) (List[SourceEntry], error) {
	kind, after := cursorOf(sourceCursor, s.Account), int64(0)
	if p.Cursor != "" {
		var err error
		if after, err = decodeOrdinal(kind, p.Cursor); err != nil {
			return List[SourceEntry]{}, err
		}
	}
	entries := []placed[SourceEntry]{}
	for i, of := range s.Sources {
		place := int64(i + 1)
		if place <= after {
			continue
		}
		entry := SourceEntry{
			LeadID: s.ID, Source: of.Source, FirstSeenAt: Timestamp(of.FirstSeenAt), LastSeenAt: Timestamp(of.LastSeenAt),
			Arrivals: of.Arrivals, Credential: newCredential(of.Credential), Metadata: of.Metadata, IP: of.IP,
			UserAgent: of.UserAgent, RequestID: of.RequestID, Changed: of.Changed,
		}
		if entry.Metadata == nil {
			entry.Metadata = map[string]jsontext.Value{}
		}
		if entry.Changed == nil {
			entry.Changed = []string{}
		}
		entries = append(entries, placed[SourceEntry]{place, entry})
	}
	return unplaced(cut(entries, p.Limit, func(e placed[SourceEntry]) string { return encodeOrdinal(kind, e.position) })), nil
}
