package verify

import (
	"context"
	"iter"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/projectiontest"
)

// unmarked is a log without progress marks, as a consumer meets it that is always behind.
type unmarked struct{ eventstore.Store }

func (u unmarked) Subscribe(ctx context.Context, after eventstore.Position, filter eventstore.Filter) iter.Seq2[eventstore.Item, error] {
	return func(yield func(eventstore.Item, error) bool) {
		for item, err := range u.Store.Subscribe(ctx, after, filter) {
			if (item.Event != nil || err != nil) && !yield(item, err) {
				return
			}
		}
	}
}

func TestReading_ProgressOfSlowConsumer(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	var end eventstore.Position
	facts := make([]event.Data, 500)
	for i := range facts {
		facts[i] = event.ClaimTaken{Kind: "phone", Holder: w.NewID()}
	}
	for end < 2*rowsAtOnce {
		end = w.Append(t, "acme", event.ClaimPrefix+"one", facts...)
	}
	tx, err := w.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	var reported []eventstore.Position
	_, err = Verification{Store: unmarked{w.Store}}.read(t.Context(), tx, whole{}, func(done, of eventstore.Position) {
		require.Equal(t, end, of)
		reported = append(reported, done)
	})
	require.NoError(t, err)
	require.Equal(t, []eventstore.Position{rowsAtOnce, 2 * rowsAtOnce}, reported)
}
