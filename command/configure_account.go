package command

import (
	"context"
	"errors"
	"time"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/contact"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// ConfigureAccount is the command that creates an account, or changes its settings.
type ConfigureAccount struct {
	Caller    Caller // the administrator, who may be of another account
	AccountID string
	Settings  account.Settings
	// Patch leaves settings that are not given unchanged. Without it, they get their defaults.
	Patch bool
	// JWTNotBefore revokes the account's JWTs that were issued before this time. Zero changes nothing, with or without
	// Patch.
	JWTNotBefore time.Time
}

// ConfigureAccount replaces an account's settings, or with Patch changes those that are given, and returns the new
// ones. When nothing changes, nothing is appended. The errors are field.Errors and those of the store.
func (h *Handlers) ConfigureAccount(
	ctx context.Context, cmd ConfigureAccount,
) (state account.State, position eventstore.Position, err error) {
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
		facts, err := cmd.decide(before, h.now())
		if err != nil {
			return err
		}
		state = before
		if len(facts) == 0 {
			position, err = h.store.Head(ctx)
			return err
		}
		at := h.after(before.LatestAt())
		write := eventstore.Write{Stream: stream, Expect: expect}
		for _, fact := range facts {
			stamped, err := h.stamp(caller, at, fact)
			if err != nil {
				return err
			}
			write.Events = append(write.Events, stamped)
			state = account.Evolve(state, event.Fact{At: at, Data: fact})
		}
		position, err = h.store.Append(ctx, write)
		return err
	})
	if h.directory != nil { // the command line has none
		h.directory.forgetAccount(cmd.AccountID)
	}
	return state, position, err
}

// decide returns what changes: the settings, the revocation of JWTs, both or nothing.
func (cmd ConfigureAccount) decide(before account.State, now time.Time) (facts []event.Data, err error) {
	settings := cmd.Settings
	if cmd.Patch {
		settings = before.Patched(settings)
	}
	configured, err := before.Configure(settings, contact.KnownRegion)
	var wrong, late field.Errors
	if err != nil && !errors.As(err, &wrong) {
		return nil, err
	}
	revoked, err := before.RevokeJWTs(cmd.JWTNotBefore, now)
	if err != nil && !errors.As(err, &late) {
		return nil, err
	}
	if configured != nil {
		facts = append(facts, *configured)
	}
	if revoked != nil {
		facts = append(facts, *revoked)
	}
	return facts, append(wrong, late...).Err()
}
