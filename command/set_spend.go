package command

import (
	"context"
	"maps"
	"slices"

	"github.com/leadlog/leadlog/command/spend"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// SetSpend is the command that sets what days of the account's advertising cost.
type SetSpend struct {
	Caller  Caller
	Rows    []event.SpendRow // each day and key once
	Replace bool             // set the other amounts of the days and channels of the rows to 0
}

// SpendOutcome is what became of the rows.
type SpendOutcome struct {
	Changed  int // amounts that are new or others than before, also those that Replace set to 0
	Others   int // other amounts of the days and channels of the rows, which only Replace changes
	Position eventstore.Position
}

// spendBytes bounds the texts of one event, so that every engine takes an append of it.
const spendBytes = 400 << 10

// SetSpend appends the rows that change an amount. Those of each month, and of a month those that are too large for one
// event, are appends of their own, each complete: after an error some may be set, and the same command again sets the
// others. The errors are those of the store.
func (h *Handlers) SetSpend(ctx context.Context, cmd SetSpend) (outcome SpendOutcome, err error) {
	months := map[string][]event.SpendRow{}
	for _, row := range cmd.Rows {
		month := row.Day[:len("2006-01")]
		months[month] = append(months[month], row)
	}
	for _, month := range slices.Sorted(maps.Keys(months)) {
		if err := h.setSpend(ctx, cmd, month, months[month], &outcome); err != nil {
			return outcome, err
		}
	}
	if outcome.Position == 0 {
		outcome.Position, err = h.store.Head(ctx)
	}
	return outcome, err
}

// setSpend sets the rows of a month, and adds to the outcome.
func (h *Handlers) setSpend(
	ctx context.Context, cmd SetSpend, month string, given []event.SpendRow, outcome *SpendOutcome,
) error {
	stream := event.SpendStream(cmd.Caller.Account, month)
	counted := false
	return h.transact.Do(ctx, []string{stream}, func(ctx context.Context) error {
		var last event.Fact
		state, expect, err := eventstore.Load(ctx, h.store, stream, func(s spend.State, fact event.Fact) spend.State {
			last = fact
			return spend.Evolve(s, fact)
		})
		if err != nil {
			return err
		}
		rows, others := state.Set(given), state.Others(given)
		if !counted { // a later attempt may have set some
			outcome.Others, counted = outcome.Others+len(others), true
		}
		if cmd.Replace {
			rows = append(rows, others...)
		}
		time := h.after(last.At)
		for len(rows) > 0 {
			n := fitting(rows)
			write, err := h.write(cmd.Caller, stream, expect, time, event.SpendSet{Rows: rows[:n]})
			if err != nil {
				return err
			}
			if outcome.Position, err = h.store.Append(ctx, write); err != nil {
				return err
			}
			outcome.Changed, rows, expect = outcome.Changed+n, rows[n:], expect+1
		}
		return nil
	})
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
