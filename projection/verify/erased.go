package verify

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// erasure is that of a lead, of an account.
type erasure struct {
	account  string
	position eventstore.Position
	fact     event.LeadErased
}

// noteErasure remembers which leads were erased, and which leads have events that cannot be opened.
func (r *reading) noteErasure(e eventstore.Recorded, data event.Data) {
	id, isLead := strings.CutPrefix(e.Stream, event.LeadPrefix)
	if !isLead {
		return
	}
	switch d := data.(type) {
	case event.LeadErased:
		r.erased[id] = erasure{e.Metadata.Account, e.Position, d}
		r.lived = append(r.lived, []any{int64(e.Position), e.Stream, false})
		r.noteGone(id, d)
	default:
		if e.Erased && !e.Damaged && !r.gone[id] {
			r.closed[id] = true
		}
	}
}

// noteGone remembers the leads of an erasure.
func (r *reading) noteGone(id string, erased event.LeadErased) {
	for _, gone := range append(erased.Leads, id) {
		delete(r.closed, gone)
		r.gone[gone] = true
	}
}

// lost reports leads whose key is gone although they were not erased, not even while the log was read.
func (r *reading) lost(ctx context.Context, store eventstore.Store) (findings []string, err error) {
	if len(r.closed) == 0 {
		return nil, nil
	}
	head, err := store.Head(ctx)
	if err != nil {
		return nil, err
	}
	if head > r.last {
		for item, err := range store.Subscribe(ctx, r.last, eventstore.Filter{Types: event.Types(event.LeadErased{})}) {
			if err != nil {
				return nil, err
			}
			if e := item.Event; e != nil {
				data, err := event.Decode(e.Type, e.Data)
				if err != nil {
					return nil, err
				}
				if erased, ok := data.(event.LeadErased); ok {
					r.noteGone(event.LeadID(e.Stream), erased)
				}
			}
			if item.Position >= head {
				break
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(r.closed)) {
		if len(findings) == r.most {
			break
		}
		findings = append(findings, fmt.Sprintf("lead %s cannot be read: its key is not there, and it was not erased", id))
	}
	return findings, nil
}

// partsOf are leads and all leads that ever departed into them. An erasure names fewer if a process was killed during a join.
func (r *reading) partsOf(leads ...string) (all []string) {
	for len(leads) > 0 {
		next := leads[0]
		if leads = leads[1:]; !slices.Contains(all, next) {
			all, leads = append(all, next), append(leads, r.parts[next]...)
		}
	}
	return all
}

// unerased reports erasures that a killed process did not finish.
func (v Verification) unerased(ctx context.Context, r reading) error {
	if v.Left == nil || v.Unfinished == nil {
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(r.erased)) {
		e := r.erased[id]
		leads := r.partsOf(append([]string{id}, e.fact.Leads...)...)
		unfinished, err := v.Unfinished(ctx, e.account, leads, e.fact.Visitors, e.position)
		if err != nil {
			return err
		}
		if unfinished {
			v.Left(Leftover{Lead: id, Account: e.account, Says: fmt.Sprintf("lead-%s was erased, and not everything that was made of it is gone", id)})
		}
	}
	return nil
}
