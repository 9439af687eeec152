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

// forgottenVisitor is a visitor who was forgotten without a lead: all activities before a position, or some of them.
type forgottenVisitor struct {
	account  string
	position eventstore.Position
	all      bool
}

// noteErasure records the erased leads, and the leads and visitors with events that cannot be opened.
func (r *logReader) noteErasure(e eventstore.Examined, data event.Data) {
	if d, ok := data.(event.LeadErased); ok {
		r.erased[event.LeadID(e.Stream)] = erasure{e.Metadata.Account, e.Position, d}
		r.lived = append(r.lived, []any{int64(e.Position), e.Stream, false})
	}
	if e.Erased && e.Damage == "" {
		r.noteUnreadable(e.Recorded)
	} else if _, ok := data.(event.ArrivalReceived); ok {
		r.readableArrivals[e.Stream] = struct{}{}
	}
	r.noteErasedStreams(e.Stream, e.Metadata.Account, e.Position, data)
}

// unreadableStream is a stream with events that cannot be opened.
type unreadableStream struct {
	account string
	visitor.Loss
}

func (r *logReader) noteUnreadable(e eventstore.Recorded) {
	of, known := r.unreadable[e.Stream]
	if !known && !(r.erasedStreams[e.Stream] && strings.HasPrefix(e.Stream, event.LeadPrefix)) {
		of = &unreadableStream{account: e.Metadata.Account}
		r.unreadable[e.Stream] = of
	}
	if of != nil {
		of.Unread(e.KeyID)
	}
}

// noteErasedStreams records the streams that an event erases. The key of a visitor that the erasure names is destroyed
// before visitor.forgotten is appended. Later activities have a new key.
func (r *logReader) noteErasedStreams(stream, account string, position eventstore.Position, data event.Data) {
	switch d := data.(type) {
	case event.LeadErased:
		streams := append([]string{stream}, d.Visitors...)
		for _, id := range d.Leads {
			streams = append(streams, event.LeadStream(id))
		}
		for _, erased := range streams {
			if strings.HasPrefix(erased, event.LeadPrefix) {
				delete(r.unreadable, erased)
			}
			r.erasedStreams[erased] = true
		}
		for _, origin := range d.Origins { // events of before a split
			delete(r.unreadable, event.LeadStream(origin.LeadID))
		}
	case event.ArrivalDiscarded:
		if d.Reason == event.DiscardedByOwner || d.Reason == event.DiscardedErased {
			r.noteDeleted(stream, account)
		}
	case event.ArrivalExpired:
		r.noteDeleted(stream, account)
	case event.VisitorForgotten:
		if of := r.unreadable[stream]; of != nil {
			of.Forgotten(d)
		}
		if !r.erasedStreams[stream] { // otherwise it is part of the lead's erasure
			r.forgotten[stream] = forgottenVisitor{account, position, len(d.Keys) == 0}
		}
		delete(r.erasedStreams, stream)
	}
}

// noteDeleted records that the content of an arrival was deleted. Its key is destroyed before the fact, and no personal
// data follows.
func (r *logReader) noteDeleted(stream, account string) {
	delete(r.unreadable, stream)
	if _, readable := r.readableArrivals[stream]; readable {
		delete(r.readableArrivals, stream)
		r.restoredArrivals[stream] = account
	}
}

// lostStreams returns the streams that cannot be opened although they were not erased.
func (r *logReader) lostStreams() (streams []string) {
	for stream, of := range r.unreadable {
		if len(of.Keys) > 0 && !r.erasedStreams[stream] {
			streams = append(streams, stream)
		}
	}
	slices.Sort(streams)
	return streams
}

// lostKeys reports leads, visitors and arrivals whose key is missing although they were not erased, neither before nor
// while the log was read.
func (r *logReader) lostKeys(ctx context.Context, store eventstore.Store) (findings []string, err error) {
	if len(r.lostStreams()) == 0 {
		return nil, nil
	}
	head, err := store.Head(ctx)
	if err != nil {
		return nil, err
	}
	erasures := eventstore.Filter{
		Types: event.Types(event.LeadErased{}, event.VisitorForgotten{}, event.ArrivalDiscarded{},
			event.ArrivalExpired{}),
	}
	for page, err := range eventstore.ReadTo(ctx, store, r.last, head, erasures) {
		if err != nil {
			return nil, err
		}
		for _, e := range page.Events {
			data, err := event.Decode(e.Type, e.Data)
			if err != nil {
				return nil, err
			}
			r.noteErasedStreams(e.Stream, e.Metadata.Account, e.Position, data)
		}
	}
	for _, stream := range r.lostStreams() {
		if len(findings) == r.limit {
			break
		}
		who := stream
		if id, isLead := strings.CutPrefix(stream, event.LeadPrefix); isLead {
			who = "lead " + id
		}
		findings = append(findings,
			fmt.Sprintf("%s of account %s cannot be read: its key is missing, and it was not erased", who,
				r.unreadable[stream].account))
	}
	return findings, nil
}

// unerased reports erasures that a killed process left unfinished.
func (v Verification) unerased(ctx context.Context, r logReader) error {
	if v.Unerased == nil || v.Unfinished == nil || v.HasKeys == nil {
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(r.erased)) {
		e := r.erased[id]
		leads := append([]string{id}, e.fact.Leads...)
		unfinished, err := v.Unfinished(ctx, e.account, leads, e.fact.Origins, e.fact.Visitors, e.position)
		if err != nil {
			return err
		}
		if unfinished {
			v.Unerased(UnfinishedErasure{
				Lead: id, Account: e.account,
				Message: fmt.Sprintf("lead-%s was erased, but its key or rows derived from it remain", id),
			})
		}
	}
	for _, stream := range slices.Sorted(maps.Keys(r.forgotten)) {
		f := r.forgotten[stream]
		var before eventstore.Position // 0 for some activities, since the views do not show which
		if f.all {
			before = f.position
		}
		unfinished, err := v.Unfinished(ctx, f.account, nil, nil, []string{stream}, before)
		if err != nil {
			return err
		}
		if unfinished {
			v.Unerased(UnfinishedErasure{
				Visitor: stream, Account: f.account,
				Message: fmt.Sprintf("%s was forgotten, but its key or rows derived from it remain", stream),
			})
		}
	}
	for _, stream := range slices.Sorted(maps.Keys(r.restoredArrivals)) {
		has, err := v.HasKeys(ctx, stream)
		if err != nil {
			return err
		}
		if has {
			v.Unerased(UnfinishedErasure{
				Arrival: event.ArrivalID(stream), Account: r.restoredArrivals[stream],
				Message: stream + " was deleted, but its key was restored",
			})
		}
	}
	return nil
}
