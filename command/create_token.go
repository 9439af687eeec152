package command

import (
	"context"
	"strings"

	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/command/token"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// CreateToken asks for a new API token of the caller's account.
type CreateToken struct {
	Caller        Caller
	Name          string // 1 to 100 characters
	ExpiresInDays int    // 1 to 365
}

// TokenIssued is the answer of creation and rotation, the only ones that hold the value.
type TokenIssued struct {
	ID       string
	Token    token.State
	Value    token.Value
	Position eventstore.Position
}

// CreateToken takes a free slot of the account and the token with it. The errors are field.Errors, token.ErrLimit
// and those of the store.
func (h *Handlers) CreateToken(ctx context.Context, cmd CreateToken) (TokenIssued, error) {
	name, err := cmd.validate()
	if err != nil {
		return TokenIssued{}, err
	}
	ids, err := h.newIDs(1)
	if err != nil {
		return TokenIssued{}, err
	}
	id := ids[0]
	value, err := token.NewValue(id, h.random)
	if err != nil {
		return TokenIssued{}, err
	}
	issued := TokenIssued{ID: id, Value: value}
	places := h.tokenSlots()
	queue := []string{h.claims.Slot(cmd.Caller.Account, places.kind, 0)} // nobody's place: where creators queue
	err = h.transact.Do(ctx, queue, func(ctx context.Context) error {
		free, err := h.free(ctx, places, cmd.Caller.Account)
		if err != nil {
			return err
		}
		at := h.timestamp()
		take, err := h.take(cmd.Caller, places, free, id)
		if err != nil {
			return err
		}
		created := token.Create(name, cmd.ExpiresInDays, free.number, value, at)
		born, err := h.write(cmd.Caller, event.TokenStream(id), eventstore.NoStream, at, created)
		if err != nil {
			return err
		}
		issued.Token = token.Evolve(token.State{}, event.Fact{At: at, Metadata: cmd.Caller.metadata(), Data: created})
		issued.Position, err = h.store.Append(ctx, take, born)
		return err
	})
	return issued, err
}

func (cmd CreateToken) validate() (name string, err error) {
	var wrong field.Errors
	name = strings.TrimSpace(cmd.Name)
	if n := lead.Length(name); n < 1 || n > token.MaxName || lead.HasControl(name) {
		wrong.Add("name", "must be 1 to 100 characters")
	}
	if cmd.ExpiresInDays < token.MinDays || cmd.ExpiresInDays > token.MaxDays {
		wrong.Add("expiresInDays", "must be a whole number from 1 to 365")
	}
	return name, wrong.Err()
}

func (h *Handlers) tokenSlots() slots {
	return slots{
		kind: claim.TokenSlot, count: token.MaxPerAccount, full: token.ErrLimit,
		holder: func(ctx context.Context, id string) (holds, unborn bool, expect eventstore.Expected, err error) {
			state, expect, err := eventstore.Load(ctx, h.store, event.TokenStream(id), token.Evolve)
			return state.HoldsSlot(), state.Phase == token.Unborn, expect, err
		},
		stream:    event.TokenStream,
		abandoned: event.TokenAbandoned{},
	}
}
