package command

import (
	"context"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// ConfigureAccount asks that an account, new or not, have these settings.
type ConfigureAccount struct {
	Caller    Caller // the administrator; its account may be another
	AccountID string
	Settings  account.Settings
}

// ConfigureAccount replaces an account's settings and returns them as they are then. Saying the same again changes
// nothing. The errors are field.Errors and those of the store.
func (h *Handlers) ConfigureAccount(ctx context.Context, cmd ConfigureAccount) (state account.State, position eventstore.Position, err error) {
	if !account.ValidID(cmd.AccountID) {
		return state, 0, field.Errors{{Field: "accountId", Message: "must be 1 to 64 of letters, digits, _ and -"}}
	}
	caller := cmd.Caller
	caller.Account = cmd.AccountID
	stream := event.AccountStream(cmd.AccountID)
	err = h.transact.Do(ctx, []string{stream}, func(ctx context.Context) error {
		before, expect, err := eventstore.Load(ctx, h.store, stream, account.Evolve)
		if err != nil {
			return err
		}
		configured, err := before.Configure(cmd.Settings, lead.KnownRegion)
		if err != nil {
			return err
		}
		if configured == nil {
			state = before
			position, err = h.store.Head(ctx)
			return err
		}
		at := h.after(before.UpdatedAt)
		write, err := h.write(caller, stream, expect, at, *configured)
		if err != nil {
			return err
		}
		state = account.Evolve(before, event.Fact{At: at, Data: *configured})
		position, err = h.store.Append(ctx, write)
		return err
	})
	if h.directory != nil { // the command line has none
		h.directory.forgetAccount(cmd.AccountID)
	}
	return state, position, err
}
