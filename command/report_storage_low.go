package command

import (
	"context"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// ReportStorageLow records that little of an account's storage for a day is left, once in a day however many processes
// notice it. The errors are those of the store.
func (h *Handlers) ReportStorageLow(ctx context.Context, accountID string) error {
	caller := Caller{Account: accountID, Actor: "system:quota"}
	stream := event.AccountStream(accountID)
	err := h.transact.Do(ctx, []string{stream}, func(ctx context.Context) error {
		state, expect, err := eventstore.Load(ctx, h.store, stream, account.Evolve)
		if err != nil {
			return err
		}
		at := h.after(state.LatestAt())
		low := state.ReportStorageLow(at)
		if low == nil {
			return nil
		}
		write, err := h.write(caller, stream, expect, at, *low)
		if err != nil {
			return err
		}
		_, err = h.store.Append(ctx, write)
		return err
	})
	h.directory.forgetAccount(accountID)
	return err
}
