package projection_test

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/projection/view"
)

// interrupted makes views anew and is stopped on the way, past a position.
func interrupted(t *testing.T, w *projectiontest.World, past eventstore.Position, projectors ...projection.Projector) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := w.Replay(projectors...)
	r.Progress = func(done, end eventstore.Position) {
		if past < done && done < end {
			cancel()
		}
	}
	require.ErrorIs(t, r.Run(ctx), context.Canceled)
}

// long is a log of several batches, and views of it.
func long(t *testing.T) (w *projectiontest.World, want map[string][]string) {
	t.Helper()
	w = projectiontest.New(t)
	w.WriteHistory(t, 12, 200)
	for range 20 {
		var facts []event.Data
		for range 1000 {
			facts = append(facts, event.LeadMerged{Source: "website"})
		}
		id := w.NewID()
		w.Append(t, "acme", event.LeadStream(id), append([]event.Data{event.LeadCreated{LeadFields: event.LeadFields{Name: "N", Status: "new"}, Source: "api"}}, facts...)...)
	}
	w.Project(t)
	return w, w.Dump(t)
}

func TestAReplayThatIsInterruptedGoesOn(t *testing.T) {
	t.Parallel()
	w, want := long(t)
	for _, p := range [][]projection.Projector{view.All(), {view.Lead{}}, {view.SourceDay{}}} {
		var reached eventstore.Position
		interrupted := 0
		for {
			ctx, cancel := context.WithCancel(t.Context())
			r := w.Replay(p...)
			r.Progress = func(done, end eventstore.Position) {
				require.GreaterOrEqual(t, done, reached, "what is done is not done again")
				if begun := done > reached; begun && done < end {
					reached = done
					interrupted++
					cancel()
				}
			}
			err := r.Run(ctx)
			cancel()
			if err == nil {
				break
			}
			require.ErrorIs(t, err, context.Canceled)
			require.Equal(t, want, w.Dump(t), "the live view is as it was")
		}
		require.NotZero(t, interrupted)
		require.Equal(t, want, w.Dump(t))
	}
}

// cutOff is a log whose connection closes as the caller leaves, and whose error says only that.
type cutOff struct {
	eventstore.Store
	leave func()
}

func (c cutOff) Head(context.Context) (eventstore.Position, error) {
	c.leave()
	return 0, net.ErrClosed
}

func TestAReplayThatIsInterruptedSaysSoWhateverWasCutOff(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	require.ErrorIs(t, projection.Replay{Store: cutOff{leave: cancel}}.Run(ctx), context.Canceled)
}

// One copy was begun earlier, and has more of the log than the other.
func TestCopiesThatAreNotEquallyFarAreFinishedTogether(t *testing.T) {
	t.Parallel()
	w, want := long(t)
	interrupted(t, w, 9000, view.SourceDay{})
	both := []projection.Projector{view.Token{}, view.SourceDay{}} // which do not have the same events in a batch
	interrupted(t, w, 0, both...)
	require.NoError(t, w.Replay(both...).Run(t.Context()))
	require.Equal(t, want, w.Dump(t))
}

func TestACopyThatCannotBeGoneOnWithIsMadeAnew(t *testing.T) {
	t.Parallel()
	w, want := long(t)
	for what, spoil := range map[string]string{
		"of another version": `UPDATE replay_source_day.checkpoint SET version = 77`,
		"of another log":     `UPDATE replay_source_day.checkpoint SET epoch = 'other'`,
		"of a log restored":  `UPDATE replay_source_day.checkpoint SET seen_event = 'other'`,
	} {
		interrupted(t, w, 0, view.SourceDay{})
		pgtest.Exec(t, w.Pool, `UPDATE replay_source_day.source_day SET created = created + 1000`)
		pgtest.Exec(t, w.Pool, spoil)
		require.NoError(t, w.Replay(view.SourceDay{}).Run(t.Context()))
		require.Equal(t, want, w.Dump(t), what)
	}
}

func TestAViewIsReplayedByOneAtATime(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	configure(t, w, 1)
	var during error
	r := w.Replay(view.Account{})
	r.Progress = func(done, end eventstore.Position) {
		if done < end {
			during = w.Replay(view.Account{}).Run(t.Context())
		}
	}
	require.NoError(t, r.Run(t.Context()))
	require.ErrorIs(t, during, projection.ErrReplayRuns)
}
