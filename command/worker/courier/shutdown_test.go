package courier_test

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/worker/courier"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/delivery/deliverytest"
	"github.com/leadlog/leadlog/projection/projectiontest"
)

func TestShutdown_HungReceiver(t *testing.T) {
	t.Parallel()
	endWhileOneHangs(t, 10*time.Millisecond, nil)
}

func TestShutdown_DivergedLog(t *testing.T) {
	t.Parallel()
	endWhileOneHangs(t, time.Hour, eventstore.ErrDiverged)
}

// endWhileOneHangs stops a courier, for a reason, while a receiver hangs.
func endWhileOneHangs(t *testing.T, grace time.Duration, reason error) {
	t.Helper()
	w := deliverytest.New(t)
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	attempted := make(chan struct{}, 1000)
	hung := receive(t, func(int, http.ResponseWriter) {
		attempted <- struct{}{}
		<-hold
	})
	t.Cleanup(release) // otherwise a failed test would wait for the hanging request
	id := target(t, w, hung.URL)
	for range 30 { // more than the slots of a window
		w.Append(t, "acme", event.LeadStream(w.NewID()), deliverytest.NewLead("Ann"))
	}
	deliverytest.CatchUp(t, w)
	order := deliverytest.Queued(t, w, id)

	end, ended := runSlow(t, w, grace)
	<-attempted
	end(reason)
	<-ended // the receiver still hangs, and the attempt may take an hour

	require.Equal(t, order, deliverytest.Queued(t, w, id), "in its order")
	var untouched, attempts int
	require.NoError(t, w.Pool.QueryRow(t.Context(),
		`SELECT count(*) FROM delivery.queue WHERE lease IS NULL AND attempts = 0
			AND due_at <= now()`).Scan(&untouched))
	require.Equal(t, 30, untouched, "all of it can be taken up again, now")
	require.NoError(t, w.Pool.QueryRow(t.Context(), `SELECT count(*) FROM delivery.attempt`).Scan(&attempts))
	require.Zero(t, attempts, "what was broken off is no failure of the endpoint")

	release()
	send(t, w)
	require.Equal(t, map[string]int{"delivered": 30}, states(t, w, id, 30))
}

// runSlow runs a courier whose attempts may take an hour, until its context is done.
func runSlow(
	t *testing.T, w *projectiontest.World, grace time.Duration,
) (end context.CancelCauseFunc, ended <-chan struct{}) {
	courier := courier.New(courier.Options{
		Pool: w.Pool, Store: w.Store, Secrets: secrets(t, w.Pool, key(1)), Log: slog.New(slog.DiscardHandler),
		AllowPrivateTargets: true, Timeout: time.Hour, Grace: grace,
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		courier.Run(ctx)
	}()
	return cancel, done
}

func TestShutdown_FinishesAttempts(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	hold, attempted := make(chan struct{}), make(chan struct{}, 10)
	release := sync.OnceFunc(func() { close(hold) })
	slow := receive(t, func(int, http.ResponseWriter) {
		attempted <- struct{}{}
		<-hold
	})
	t.Cleanup(release)
	id := target(t, w, slow.URL)
	w.Append(t, "acme", event.LeadStream(w.NewID()), deliverytest.NewLead("Ann"))
	deliverytest.CatchUp(t, w)
	end, ended := runSlow(t, w, time.Hour)
	<-attempted
	end(nil)
	release()
	<-ended
	require.Equal(t, map[string]int{"delivered": 1}, states(t, w, id, 1))
	require.Len(t, slow.ids(), 1)
}
