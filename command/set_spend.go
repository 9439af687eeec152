package command

import (
	"context"

	"github.com/leadlog/leadlog/command/spend"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// SetSpend is the command that sets what days of the account's advertising cost.
type SetSpend struct {
	Caller Caller
	Rows   []event.SpendRow
}

// spendBytes bounds the texts of one event, so that every engine takes an append of it.
const spendBytes = 400 << 10

// SetSpend appends the rows that change an amount, and returns how many these are. Rows that are too large for one event
// are several appends: after an error some may be set, and the same command again sets the others. The errors are those
// of the store.
func (h *Handlers) SetSpend(ctx context.Context, cmd SetSpend) (changed int, at eventstore.Position, err error) {
	stream := event.SpendStream(cmd.Caller.Account)
	err = h.transact.Do(ctx, []string{stream}, func(ctx context.Context) error {
		var last event.Fact
		state, expect, err := eventstore.Load(ctx, h.store, stream, func(s spend.State, fact event.Fact) spend.State {
			last = fact
			return spend.Evolve(s, fact)
		})
		if err != nil {
			return err
		}
		rows := state.Set(cmd.Rows)
		if len(rows) == 0 && at == 0 {
			at, err = h.store.Head(ctx)
		}
		time := h.after(last.At)
		for len(rows) > 0 && err == nil {
			n := fitting(rows)
			var write eventstore.Write
			if write, err = h.write(cmd.Caller, stream, expect, time, event.SpendSet{Rows: rows[:n]}); err != nil {
				break
			}
			if at, err = h.store.Append(ctx, write); err == nil {
				changed, rows, expect = changed+n, rows[n:], expect+1
			}
		}
		return err
	})
	return changed, at, err
}

// fitting returns how many of the first rows fit into one event: at least one.
func fitting(rows []event.SpendRow) (n int) {
	const overhead = 100 // bytes of the names of a row's members, its day and its amount
	for bytes := 0; n < len(rows); n++ {
		row := &rows[n]
		bytes += overhead + len(row.Source) + len(row.UTMSource) + len(row.UTMMedium) + len(row.UTMCampaign)
		if n > 0 && bytes > spendBytes {
			break
		}
	}
	return n
}
