package verify

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/leadlog/leadlog/command/visitor"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// erasure is the erasure of a lead.
type erasure struct {
	account  string
	position eventstore.Position
	fact     event.LeadErased
}

// forgotten is a visitor who was forgotten without a lead: all activities before a position, or some of them.
type forgotten struct {
	account  string
	position eventstore.Position
	all      bool
}

// noteErasure records the erased leads, and the leads and visitors with events that cannot be opened.
func (r *reading) noteErasure(e eventstore.Recorded, data event.Data) {
	if d, ok := data.(event.LeadErased); ok {
		r.erased[event.LeadID(e.Stream)] = erasure{e.Metadata.Account, e.Position, d}
		r.lived = append(r.lived, []any{int64(e.Position), e.Stream, false})
	}
	if e.Erased && !e.Damaged {
		r.noteClosed(e)
	} else if _, ok := data.(event.ArrivalReceived); ok {
		r.kept[e.Stream] = struct{}{}
	}
	r.noteGone(e.Stream, e.Metadata.Account, e.Position, data)
}

// closed is a stream with events that cannot be opened.
type closed struct {
	account string
	visitor.Loss
}

func (r *reading) noteClosed(e eventstore.Recorded) {
	of, known := r.closed[e.Stream]
	if !known && !(r.gone[e.Stream] && strings.HasPrefix(e.Stream, event.LeadPrefix)) {
		of = &closed{account: e.Metadata.Account}
		r.closed[e.Stream] = of
	}
	if of != nil {
		of.Unread(e.LostKey)
	}
}

// noteGone records the subjects of an erasure. The key of a visitor that the erasure names is destroyed before visitor.forgotten is
// appended. Later activities have a new key.
func (r *reading) noteGone(stream, account string, position eventstore.Position, data event.Data) {
	switch d := data.(type) {
	case event.LeadErased:
		streams := append([]string{stream}, d.Visitors...)
		for _, id := range d.Leads {
			streams = append(streams, event.LeadStream(id))
		}
		for _, gone := range streams {
			if strings.HasPrefix(gone, event.LeadPrefix) {
				delete(r.closed, gone)
			}
			r.gone[gone] = true
		}
	case event.ArrivalDiscarded:
		if d.Reason == event.DiscardedByOwner || d.Reason == event.DiscardedErased {
			r.noteDeleted(stream, account)
		}
	case event.ArrivalExpired:
		r.noteDeleted(stream, account)
	case event.VisitorForgotten:
		if of := r.closed[stream]; of != nil {
			of.Forgotten(d)
		}
		if !r.gone[stream] { // otherwise it is part of the lead's erasure
			r.forgotten[stream] = forgotten{account, position, len(d.Keys) == 0}
		}
		delete(r.gone, stream)
	}
}

// noteDeleted records that the content of an arrival was deleted. Its key is destroyed before the fact, and no personal data follows.
func (r *reading) noteDeleted(stream, account string) {
	delete(r.closed, stream)
	if _, kept := r.kept[stream]; kept {
		delete(r.kept, stream)
		r.returned[stream] = account
	}
}

// unread returns the streams that cannot be opened although they were not erased.
func (r *reading) unread() (streams []string) {
	for stream, of := range r.closed {
		if len(of.Keys) > 0 && !r.gone[stream] {
			streams = append(streams, stream)
		}
	}
	slices.Sort(streams)
	return streams
}

// lost reports leads and visitors whose key is missing although they were not erased, neither before nor while the log was read.
func (r *reading) lost(ctx context.Context, store eventstore.Store) (findings []string, err error) {
	if len(r.unread()) == 0 {
		return nil, nil
	}
	head, err := store.Head(ctx)
	if err != nil {
		return nil, err
	}
	erasures := eventstore.Filter{Types: event.Types(event.LeadErased{}, event.VisitorForgotten{}, event.ArrivalDiscarded{}, event.ArrivalExpired{})}
	for page, err := range eventstore.ReadTo(ctx, store, r.last, head, erasures) {
		if err != nil {
			return nil, err
		}
		for _, e := range page.Events {
			data, err := event.Decode(e.Type, e.Data)
			if err != nil {
				return nil, err
			}
			r.noteGone(e.Stream, e.Metadata.Account, e.Position, data)
		}
	}
	for _, stream := range r.unread() {
		if len(findings) == r.limit {
			break
		}
		who := stream
		if id, isLead := strings.CutPrefix(stream, event.LeadPrefix); isLead {
			who = "lead " + id
		}
		findings = append(findings, fmt.Sprintf("%s of account %s cannot be read: its key is not there, and it was not erased", who, r.closed[stream].account))
	}
	return findings, nil
}

// unerased reports erasures that a killed process left unfinished.
func (v Verification) unerased(ctx context.Context, r reading) error {
	if v.Unerased == nil || v.Unfinished == nil || v.HasKeys == nil {
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(r.erased)) {
		e := r.erased[id]
		leads := append([]string{id}, e.fact.Leads...)
		unfinished, err := v.Unfinished(ctx, e.account, leads, e.fact.Visitors, e.position)
		if err != nil {
			return err
		}
		if unfinished {
			v.Unerased(Leftover{Lead: id, Account: e.account, Message: fmt.Sprintf("lead-%s was erased, but rows derived from it remain", id)})
		}
	}
	for _, stream := range slices.Sorted(maps.Keys(r.forgotten)) {
		f := r.forgotten[stream]
		var before eventstore.Position // 0 for some activities, since the views do not show which
		if f.all {
			before = f.position
		}
		unfinished, err := v.Unfinished(ctx, f.account, nil, []string{stream}, before)
		if err != nil {
			return err
		}
		if unfinished {
			v.Unerased(Leftover{Visitor: stream, Account: f.account, Message: fmt.Sprintf("%s was forgotten, but rows derived from it remain", stream)})
		}
	}
	for _, stream := range slices.Sorted(maps.Keys(r.returned)) {
		held, err := v.HasKeys(ctx, stream)
		if err != nil {
			return err
		}
		if held {
			v.Unerased(Leftover{Arrival: event.ArrivalID(stream), Account: r.returned[stream], Message: stream + " was deleted, but its key is there again"})
		}
	}
	return nil
}
