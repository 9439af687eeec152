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
	account string
	fact    event.LeadErased
}

// noteErasure remembers who was erased, and of whom there are events that cannot be opened.
func (r *reading) noteErasure(e eventstore.Recorded, data event.Data) {
	id, isLead := strings.CutPrefix(e.Stream, event.LeadPrefix)
	if !isLead {
		return
	}
	switch d := data.(type) {
	case event.LeadErased:
		r.erased[id] = erasure{e.Metadata.Account, d}
		r.lived = append(r.lived, []any{int64(e.Position), e.Stream, false})
		for _, gone := range append(d.Leads, id) {
			delete(r.closed, gone)
			r.gone[gone] = true
		}
	default:
		if e.Erased && !r.gone[id] {
			r.closed[id] = true
		}
	}
}

// lost tells of leads whose key is gone although nobody erased them.
func (r *reading) lost() (findings []string) {
	for _, id := range slices.Sorted(maps.Keys(r.closed)) {
		if len(findings) == r.most {
			break
		}
		findings = append(findings, fmt.Sprintf("lead %s cannot be read: its key is not there, and it was not erased", id))
	}
	return findings
}

// unerased tells of erasures that a process which was killed did not finish.
func (v Verification) unerased(ctx context.Context, all map[string]erasure) error {
	if v.Left == nil || v.Unfinished == nil {
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		e := all[id]
		unfinished, err := v.Unfinished(ctx, e.account, append([]string{id}, e.fact.Leads...), e.fact.Visitors)
		if err != nil {
			return err
		}
		if unfinished {
			v.Left(Leftover{Lead: id, Account: e.account, Says: fmt.Sprintf("lead-%s was erased, and not everything that was made of it is gone", id)})
		}
	}
	return nil
}
