package forget

import (
	"context"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// ArrivalFacts calls destroy, which destroys the key of an arrival, and appends why, for a caller. Position is 0 when there is nothing to
// append. command.Erasure implements it.
type ArrivalFacts interface {
	DiscardArrival(ctx context.Context, id string, destroy func(context.Context) error) (at eventstore.Position, err error)
	ExpireArrival(ctx context.Context, id string, destroy func(context.Context) error) (at eventstore.Position, err error)
}

// DiscardArrival discards an arrival of the account: its content can no longer be read. The errors are those of facts and of the keys.
func (e Eraser) DiscardArrival(ctx context.Context, facts ArrivalFacts, id string) (eventstore.Position, error) {
	return facts.DiscardArrival(ctx, id, e.destroyArrival(id))
}

// ExpireArrival deletes the content of an expired arrival. Concurrent calls for one arrival are safe.
func (e Eraser) ExpireArrival(ctx context.Context, facts ArrivalFacts, id string) error {
	_, err := facts.ExpireArrival(ctx, id, e.destroyArrival(id))
	return err
}

func (e Eraser) destroyArrival(id string) func(context.Context) error {
	return func(ctx context.Context) error { return e.Keys.Destroy(ctx, event.ArrivalStream(id)) }
}
