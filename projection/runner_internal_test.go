package projection

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/storetest"
)

// Readiness is polled rarely. A view that was up to date at the last poll and lags by a recent event is not stalled.
func TestRunner_StalledAfterQuietTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := worker{pace: &pace{stall: time.Minute}}
		upToDate, behind := Status{Position: 5}, Status{Position: 5, Lag: 1}
		require.False(t, w.stalled(upToDate))
		time.Sleep(time.Hour)
		require.False(t, w.stalled(behind))
		time.Sleep(time.Minute)
		require.True(t, w.stalled(behind))
		require.False(t, w.stalled(Status{Position: 6, Lag: 1}))
		require.False(t, w.stalled(Status{Position: 6}))
	})
}

// TestDelay_OldestUnappliedEvent uses a view of accounts, and an event of 1970.
func TestDelay_OldestUnappliedEvent(t *testing.T) {
	t.Parallel()
	log := storetest.Memory()
	for _, stream := range []string{"lead-1", "account-1", "lead-2", "lead-3"} {
		_, err := log.Append(t.Context(),
			eventstore.Write{Stream: stream, Expect: eventstore.NoStream, Events: []eventstore.Event{{
				ID: ulid.Make(), Type: event.ClaimReleased{}.EventType(), Data: []byte("{}"), At: time.Unix(0, 0).UTC(),
				Metadata: event.Metadata{Account: "a"},
			}}})
		require.NoError(t, err)
	}
	view := selective{filter: eventstore.Filter{StreamPrefixes: []string{event.AccountPrefix}}}
	w := &worker{projector: view, pace: &pace{}}
	r := &Runner{store: log, workers: []*worker{w}}
	since1970 := time.Since(time.Unix(0, 0))
	delay := func(state State, position eventstore.Position) time.Duration {
		delay, err := r.Delay(t.Context(), Status{
			Name: view.Name(), State: state, Position: position, Lag: uint64(4 - position),
		})
		require.NoError(t, err)
		return delay
	}
	for position, waits := range []bool{true, true, false, false, false} {
		for _, state := range []State{Running, Standby, Failed} { // a view that is behind runs too
			require.Equal(t, waits, delay(state, eventstore.Position(position)) >= since1970, "at %d", position)
		}
	}
	applied := Event{Recorded: &eventstore.Recorded{Event: eventstore.Event{At: time.Now().Add(-time.Hour)}}}
	w.applying(batch{events: []Event{applied}}, true)
	require.GreaterOrEqual(t, delay(Running, 2), time.Hour,
		"the event that is being applied, without a read of the log")
	w.applied(3)
	require.Zero(t, delay(Running, 3))
}

// A process that has just started must not search the log of a view that may be up to date.
func TestDelay_UnreadPosition(t *testing.T) {
	t.Parallel()
	view := selective{filter: eventstore.Filter{StreamPrefixes: []string{event.AccountPrefix}}}
	r, err := New(Options{URL: "postgres://", Store: storetest.Memory(), Projectors: []Projector{view}})
	require.NoError(t, err)
	_, err = r.store.Append(t.Context(), eventstore.Write{
		Stream: "lead-1", Expect: eventstore.NoStream, Events: []eventstore.Event{{
			ID: ulid.Make(), Type: event.ClaimReleased{}.EventType(), Data: []byte("{}"), At: time.Unix(0, 0).UTC(),
		}},
	})
	require.NoError(t, err)
	delay := func() error {
		status, err := r.Status(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 1, status[0].Lag)
		_, err = r.Delay(t.Context(), status[0])
		return err
	}
	require.ErrorIs(t, delay(), errUnread)
	r.workers[0].opened(0, 1)
	require.NoError(t, delay())
}

// bounded is a store that reads ranges one position at a time.
type bounded struct{ eventstore.Store }

func (b bounded) ReadRange(
	ctx context.Context, r eventstore.Range,
) ([]eventstore.Recorded, eventstore.Position, error) {
	r.Until = min(r.Until, r.After+1)
	return eventstore.ReadRange(ctx, b.Store, r)
}

// If the next events do not concern a view, its delay is that of the event after them.
func TestNextBetween_BoundedRead(t *testing.T) {
	t.Parallel()
	log := bounded{storetest.Memory()}
	for _, stream := range []string{"lead-1", "lead-2", "lead-3", "account-1"} {
		_, err := log.Append(t.Context(),
			eventstore.Write{Stream: stream, Expect: eventstore.NoStream, Events: []eventstore.Event{{
				ID: ulid.Make(), Type: event.ClaimReleased{}.EventType(), Data: []byte("{}"),
				At: time.Now().UTC().Truncate(time.Millisecond), Metadata: event.Metadata{Account: "a"},
			}}})
		require.NoError(t, err)
	}
	accounts := eventstore.Filter{StreamPrefixes: []string{event.AccountPrefix}}
	for after, want := range []eventstore.Position{2, 3, 4, 4} {
		next, err := nextBetween(t.Context(), log, eventstore.Position(after), 4, accounts)
		require.NoError(t, err)
		require.Equal(t, want, next.Position)
	}
	next, err := nextBetween(t.Context(), log, 2, 3, accounts)
	require.NoError(t, err)
	require.Nil(t, next)
}

// selective is a projector with only a filter.
type selective struct {
	Projector
	filter eventstore.Filter
}

func (selective) Name() string                { return "selective" }
func (s selective) Filter() eventstore.Filter { return s.filter }
