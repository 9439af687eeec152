package delivery_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/delivery"
	"github.com/leadlog/leadlog/projection/projectiontest"
)

func TestCourier_RetriesSameBytes(t *testing.T) {
	t.Parallel()
	w := begun(t)
	r := receive(t, func(n int, w http.ResponseWriter) {
		if n == 1 {
			http.Redirect(w, &http.Request{Method: "POST"}, "http://127.0.0.1:1/", http.StatusFound)
		} else if n == 2 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	id := target(t, w, r.URL)
	send(t, w)
	w.Append(t, "acme", event.LeadStream(w.NewID()), newLead("Ann"))
	require.Equal(t, map[string]int{"delivered": 1}, states(t, w, id, 1))
	require.Len(t, r.ids(), 1)
	got := r.got()
	require.Len(t, got, 3)
	require.Equal(t, got[0].body, got[1].body)
	require.Equal(t, got[0].body, got[2].body)
	var attempts string
	require.NoError(t, w.Pool.QueryRow(t.Context(),
		`SELECT string_agg(status::text, ', ' ORDER BY at) FROM delivery.attempt`).Scan(&attempts))
	require.Equal(t, "302, 500, 200", attempts)
}

func TestCourier_ScheduleExhausted(t *testing.T) {
	t.Parallel()
	w := begun(t)
	broken := receive(t, func(_ int, w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) })
	gone := receive(t, func(_ int, w http.ResponseWriter) { w.WriteHeader(http.StatusGone) })
	first, second := target(t, w, broken.URL), target(t, w, gone.URL)
	send(t, w)
	w.Append(t, "acme", event.LeadStream(w.NewID()), newLead("Ann"))
	require.Equal(t, map[string]int{"failed": 1}, states(t, w, first, 1))
	require.Equal(t, map[string]int{"failed": 1}, states(t, w, second, 1))
	require.Len(t, broken.got(), 3)
	require.Len(t, gone.got(), 1)
}

func TestCourier_RefusesPrivateAddress(t *testing.T) {
	t.Parallel()
	w := begun(t)
	r := receive(t, good)
	id := target(t, w, r.URL)
	send(t, w, func(o *delivery.CourierOptions) { o.AllowPrivateTargets = false })
	w.Append(t, "acme", event.LeadStream(w.NewID()), newLead("Ann"))
	require.Equal(t, map[string]int{"failed": 1}, states(t, w, id, 1))
	require.Empty(t, r.ids())
}

func TestCourier_CancelsForDeletedEndpoint(t *testing.T) {
	t.Parallel()
	w := begun(t)
	r := receive(t, good)
	deleted, secretless := target(t, w, r.URL), target(t, w, r.URL)
	w.Append(t, "acme", event.LeadStream(w.NewID()), newLead("Ann"))
	w.Append(t, "acme", event.WebhookStream(deleted), event.WebhookDeleted{})
	spread(t, w)
	w.Append(t, "acme", event.WebhookStream(secretless), event.WebhookDeleted{})
	require.NoError(t, secrets(t, w.Pool, key(1)).Destroy(t.Context(), secretless))
	send(t, w)
	require.Equal(t, map[string]int{"cancelled": 1}, states(t, w, deleted, 1))
	require.Equal(t, map[string]int{"cancelled": 1}, states(t, w, secretless, 1),
		"deleted on the log, and the fan-out has not read so far")
	require.Empty(t, r.ids())
}

// As after the restore of a backup that is older than the endpoint.
func TestCourier_LostSecret(t *testing.T) {
	t.Parallel()
	w := begun(t)
	r := receive(t, good)
	id := target(t, w, r.URL)
	kept := secrets(t, w.Pool, key(1))
	require.NoError(t, kept.Destroy(t.Context(), id))
	send(t, w, func(o *delivery.CourierOptions) {
		o.Schedule = slices.Repeat([]time.Duration{20 * time.Millisecond}, 10_000)
	})
	w.Append(t, "acme", event.LeadStream(w.NewID()), newLead("Ann"))
	require.Eventually(t, func() bool {
		var shown int
		err := w.Pool.QueryRow(t.Context(), `SELECT count(*) FROM delivery.attempt WHERE error LIKE '%rotate it%'`).Scan(&shown)
		return err == nil && shown > 1
	}, projectiontest.Soon, 10*time.Millisecond, "its owner is shown the error")
	require.Empty(t, r.ids())
	handlers := command.NewHandlers(command.Options{Store: w.Store, Secrets: kept, Log: slog.New(slog.DiscardHandler)})
	_, err := handlers.RotateWebhookSecret(t.Context(), command.RotateWebhookSecret{Caller: command.Caller{Account: "acme"}, WebhookID: id})
	require.NoError(t, err)
	require.Equal(t, map[string]int{"delivered": 1}, states(t, w, id, 1))
	require.Len(t, r.ids(), 1)
}

func TestCourier_HungEndpointDelaysNoOther(t *testing.T) {
	t.Parallel()
	w := begun(t)
	release := make(chan struct{})
	hung := receive(t, func(int, http.ResponseWriter) { <-release })
	t.Cleanup(func() { close(release) })
	healthy := receive(t, good)
	target(t, w, hung.URL)
	id := target(t, w, healthy.URL)
	send(t, w)
	for range 60 {
		w.Append(t, "acme", event.LeadStream(w.NewID()), newLead("Ann"))
	}
	require.Equal(t, map[string]int{"delivered": 60}, states(t, w, id, 60))
	require.LessOrEqual(t, len(hung.ids()), 16)
}

func TestCourier_KilledConnections(t *testing.T) {
	t.Parallel()
	const leads = 600
	w := begun(t)
	r := receive(t, good)
	id := target(t, w, r.URL)
	send(t, w)
	for i := range leads {
		w.Append(t, "acme", event.LeadStream(w.NewID()), newLead(fmt.Sprint(i)))
		if i%100 == 50 {
			conn, err := pgx.Connect(t.Context(), w.URL)
			require.NoError(t, err)
			pgtest.Exec(t, conn, `
				SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				 WHERE datname = current_database() AND application_name = 'leadlog courier'`)
			require.NoError(t, conn.Close(t.Context()))
		}
	}
	require.Equal(t, map[string]int{"delivered": leads}, states(t, w, id, leads))
	got := r.ids()
	require.Len(t, got, leads)
	twice := 0
	for _, n := range got {
		twice += n - 1
	}
	require.LessOrEqual(t, twice, leads/50)
}

func TestCourier_KilledProcess(t *testing.T) {
	t.Parallel()
	w := begun(t)
	r := receive(t, good)
	id := target(t, w, r.URL)
	w.Append(t, "acme", event.LeadStream(w.NewID()), newLead("Ann"))
	spread(t, w)
	_, err := w.Pool.Exec(t.Context(), `UPDATE delivery.queue SET lease = 12345; INSERT INTO lease.session (name, pid, role) VALUES ('courier 12345', 0, 0)`) // one that is gone
	require.NoError(t, err)
	send(t, w)
	require.Equal(t, map[string]int{"delivered": 1}, states(t, w, id, 1))
}
