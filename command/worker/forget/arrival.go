package forget

import (
	"context"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// DiscardArrival discards an arrival of the account: its content can no longer be read. The errors are those of facts
// and of the keys.
func (e Eraser) DiscardArrival(ctx context.Context, facts command.Erasure, id string) (eventstore.Position, error) {
	return facts.DiscardArrival(ctx, id, e.destroyArrival(id))
}

// ExpireArrival deletes the content of an expired arrival. Concurrent calls for one arrival are safe.
func (e Eraser) ExpireArrival(ctx context.Context, facts command.Erasure, id string) error {
	_, err := facts.ExpireArrival(ctx, id, e.destroyArrival(id))
	return err
}

func (e Eraser) destroyArrival(id string) func(context.Context) error {
	return func(ctx context.Context) error { return e.Keys.Destroy(ctx, event.ArrivalStream(id)) }
}
