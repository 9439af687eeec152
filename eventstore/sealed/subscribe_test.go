package sealed_test

import (
	"context"
	"iter"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/sealed"
)

// endless is a log that always has more.
type endless struct{ eventstore.Store }

func (endless) Subscribe(_ context.Context, after eventstore.Position, _ eventstore.Filter) iter.Seq2[eventstore.Item, error] {
	return func(yield func(eventstore.Item, error) bool) {
		for after++; yield(eventstore.Item{Position: after}, nil); after++ {
		}
	}
}

// The context ends while the consumer is slow and as much is read ahead as may be: who reads ahead gives up, and says so.
func TestASubscriptionEndsWithItsContextHoweverFarItHasReadAhead(t *testing.T) {
	t.Parallel()
	vault, err := sealed.NewVault(nil, sealKey)
	require.NoError(t, err)
	store := sealed.Wrap(endless{}, vault, true, slog.New(slog.DiscardHandler))
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var ended error
		for item, err := range store.Subscribe(ctx, 0, eventstore.Filter{}) {
			if item.Position == 1 {
				synctest.Wait()
				cancel()
				synctest.Wait()
			}
			ended = err
		}
		require.ErrorIs(t, ended, context.Canceled)
	})
}
