package command

import (
	"context"
	"time"

	"github.com/leadlog/leadlog/command/token"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// changeToken calls decide with a token and the time, and appends the fact and the other writes that it returns, in one
// append. After a conflict it does so again. It returns the token after the change. The errors are token.ErrNotFound,
// those of decide and those of the store.
func (h *Handlers) changeToken(ctx context.Context, caller Caller, id string,
	decide func(token.State, time.Time) (fact event.Data, others []eventstore.Write, err error),
) (after token.State, position eventstore.Position, err error) {
	if !event.ValidID(id) {
		return after, 0, token.ErrNotFound
	}
	stream := event.TokenStream(id)
	err = h.transact.Do(ctx, []string{stream}, func(ctx context.Context) error {
		state, expect, err := eventstore.Load(ctx, h.store, stream, token.Evolve)
		if err != nil {
			return err
		}
		at := h.after(state.UpdatedAt)
		fact, others, err := decide(state, at)
		if err != nil {
			return err
		}
		write, err := h.write(caller, stream, expect, at, fact)
		if err != nil {
			return err
		}
		after = token.Evolve(state, event.Fact{At: at, Metadata: caller.metadata(), Data: fact})
		position, err = h.store.Append(ctx, append(others, write)...)
		return err
	})
	return after, position, err
}
