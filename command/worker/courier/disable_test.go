package courier_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/worker/courier"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/delivery/deliverytest"
	"github.com/leadlog/leadlog/projection/projectiontest"
)

// reportedFailures collects what a courier reports, and disables the first endpoint like the command.
type reportedFailures struct {
	mu   sync.Mutex
	all  []command.DisableWebhookEndpoint
	errs []error // returned first
}

func (v *reportedFailures) option(t *testing.T, w *projectiontest.World) func(*courier.Options) {
	return func(o *courier.Options) {
		o.Disable = func(_ context.Context, failure command.DisableWebhookEndpoint) error {
			v.mu.Lock()
			defer v.mu.Unlock()
			if len(v.errs) > 0 {
				err := v.errs[0]
				v.errs = v.errs[1:]
				return err
			}
			if v.all = append(v.all, failure); len(v.all) == 1 {
				w.Append(t, "acme", event.WebhookStream(failure.WebhookID), event.WebhookDisabled{
					Reason: failure.Reason,
				})
			}
			return nil
		}
	}
}

func (v *reportedFailures) list() []command.DisableWebhookEndpoint {
	v.mu.Lock()
	defer v.mu.Unlock()
	return append([]command.DisableWebhookEndpoint(nil), v.all...)
}

func TestDisable_Gone(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	r := receive(t, func(_ int, w http.ResponseWriter) { w.WriteHeader(http.StatusGone) })
	id := target(t, w, r.URL)
	v := &reportedFailures{errs: []error{errors.New("the log is out of reach")}}
	send(t, w, v.option(t, w))
	w.Append(t, "acme", event.LeadStream(w.NewID()), deliverytest.NewLead("Ann"))
	require.Equal(t, map[string]int{"failed": 1}, states(t, w, id, 1))
	require.Len(t, r.ids(), 1)
	require.Len(t, r.got(), 2, "asked again, because it could not be disabled the first time")
	require.Len(t, v.list(), 1)
	require.Equal(t, "gone", v.list()[0].Reason)
	require.Equal(t, r.URL, v.list()[0].URL)

	w.Append(t, "acme", event.LeadStream(w.NewID()), deliverytest.NewLead("Ben"))
	deliverytest.CatchUp(t, w)
	require.Equal(t, map[string]int{"failed": 1}, states(t, w, id, 1), "nothing is queued for it")
	w.Append(t, "acme", event.WebhookStream(id), event.WebhookEnabled{})
	w.Append(t, "acme", event.LeadStream(w.NewID()), deliverytest.NewLead("Cid"))
	require.Equal(t, map[string]int{"failed": 2}, states(t, w, id, 2), "until it is enabled again")
}

func TestDisable_CancelsQueued(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	r := receive(t, good)
	disabled, enabled := target(t, w, r.URL), target(t, w, r.URL)
	w.Append(t, "acme", event.LeadStream(w.NewID()), deliverytest.NewLead("Ann"))
	w.Append(t, "acme", event.WebhookStream(disabled), event.WebhookDisabled{Reason: "owner"})
	w.Append(t, "acme", event.WebhookStream(enabled), event.WebhookDisabled{Reason: "owner"}, event.WebhookEnabled{})
	deliverytest.CatchUp(t, w)
	send(t, w)
	require.Equal(t, map[string]int{"cancelled": 1}, states(t, w, disabled, 1))
	require.Equal(t, map[string]int{"delivered": 1}, states(t, w, enabled, 1),
		"off and on again before anything was sent")
}

// failingSince sets the time since which an endpoint fails.
func failingSince(t *testing.T, w *projectiontest.World, id, ago string) {
	t.Helper()
	pgtest.Exec(t, w.Pool, `
		INSERT INTO delivery.health (webhook_id, failing_since, last_failure_at)
		VALUES ($1, now() - $2::interval, now() - interval '1 hour')`, id, ago)
}

func TestDisable_AfterFiveDays(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	r := receive(t, func(_ int, w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) })
	fresh, young, old := target(t, w, r.URL), target(t, w, r.URL), target(t, w, r.URL)
	failingSince(t, w, young, "4 days 23 hours")
	failingSince(t, w, old, "5 days 1 second")
	v := &reportedFailures{}
	send(t, w, v.option(t, w))
	w.Append(t, "acme", event.LeadStream(w.NewID()), deliverytest.NewLead("Ann"))
	require.Equal(t, map[string]int{"failed": 1}, states(t, w, fresh, 1))
	require.Equal(t, map[string]int{"failed": 1}, states(t, w, young, 1))
	require.Eventually(t, func() bool { return len(v.list()) > 0 }, projectiontest.Soon, time.Millisecond)
	for _, failure := range v.list() {
		require.Equal(t, old, failure.WebhookID)
		require.Equal(t, "failing", failure.Reason)
		require.Equal(t, r.URL, failure.URL)
		require.WithinDuration(t, time.Now().Add(-5*24*time.Hour), failure.SeenFrom, time.Hour)
	}
	require.Len(t, states(t, w, old, 1), 1, "failed, or cancelled before the schedule was over")
}

func TestHealth_Reset(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	broken := receive(t, func(_ int, w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) })
	well := receive(t, good)
	succeeds, enabled, moved := target(t, w, well.URL), target(t, w, broken.URL), target(t, w, "http://127.0.0.1:1/")
	for _, id := range []string{succeeds, enabled, moved} {
		failingSince(t, w, id, "6 days")
	}
	w.Append(t, "acme", event.WebhookStream(enabled), event.WebhookDisabled{Reason: "owner"}, event.WebhookEnabled{})
	w.Append(t, "acme", event.WebhookStream(moved), event.WebhookUpdated{
		WebhookSettings: event.WebhookSettings{URL: broken.URL, Events: []string{"*"}}, Changed: []string{"url"},
	})
	w.Append(t, "acme", event.LeadStream(w.NewID()), deliverytest.NewLead("Ann"))
	deliverytest.CatchUp(t, w)
	v := &reportedFailures{}
	send(t, w, v.option(t, w))
	require.Equal(t, map[string]int{"delivered": 1}, states(t, w, succeeds, 1))
	require.Equal(t, map[string]int{"failed": 1}, states(t, w, enabled, 1))
	require.Equal(t, map[string]int{"failed": 1}, states(t, w, moved, 1))
	failing := pgtest.Value[int](t, w.Pool, `
		SELECT count(*) FROM delivery.health WHERE CASE webhook_id WHEN $1 THEN failing_since IS NULL
		ELSE failing_since > now() - interval '1 hour' END`,
		succeeds)
	require.Equal(t, 3, failing, "the failure began again, or is over")
	require.Empty(t, v.list())
}

// The failure would be older than the URL, so that an endpoint with a failing new URL would never be disabled.
func TestHealth_EarlierURL(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	begun, hold := make(chan struct{}), make(chan struct{})
	answer := sync.OnceFunc(func() { close(hold) })
	r := receive(t, func(_ int, w http.ResponseWriter) {
		close(begun)
		<-hold
		w.WriteHeader(http.StatusInternalServerError)
	})
	t.Cleanup(answer) // otherwise a failed test would wait for the hanging request
	id := target(t, w, r.URL)
	spreading := send(t, w, func(o *courier.Options) { o.Schedule = []time.Duration{time.Hour} })
	w.Append(t, "acme", event.LeadStream(w.NewID()), deliverytest.NewLead("Ann"))
	<-begun
	w.Append(t, "acme", event.WebhookStream(id), event.WebhookUpdated{
		WebhookSettings: event.WebhookSettings{URL: "http://127.0.0.1:1/", Events: []string{"*"}},
		Changed:         []string{"url"},
	})
	projectiontest.Await(t, spreading)
	answer()
	require.Eventually(t, func() bool {
		var attempts int
		err := w.Pool.QueryRow(t.Context(), `SELECT attempts FROM delivery.queue WHERE webhook_id = $1`,
			id).Scan(&attempts)
		return err == nil && attempts == 1
	}, projectiontest.Soon, time.Millisecond)
	var failing int
	require.NoError(t, w.Pool.QueryRow(t.Context(),
		`SELECT count(*) FROM delivery.health WHERE webhook_id = $1 AND failing_since IS NOT NULL`, id).Scan(&failing))
	require.Zero(t, failing)
}
