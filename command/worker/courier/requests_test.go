package courier_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/worker/courier"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/delivery/deliverytest"
	"github.com/leadlog/leadlog/projection/projectiontest"
)

func TestRequest_Test(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	r := receive(t, good)
	target(t, w, r.URL)
	id := deliverytest.Register(t, w, "acme", r.URL, "token.deleted")
	require.NoError(t, secrets(t, w.Pool, key(1)).Put(t.Context(), id, first))
	send(t, w)
	w.Append(t, "acme", event.WebhookStream(id), event.WebhookTested{})
	require.Equal(t, map[string]int{"delivered": 1}, states(t, w, id, 1))
	require.Len(t, r.got(), 1)
	var body struct {
		Type string
		Data struct{ WebhookID string }
	}
	require.NoError(t, json.Unmarshal(r.got()[0].body, &body, json.MatchCaseInsensitiveNames(true)))
	require.Equal(t, "webhook.test", body.Type)
	require.Equal(t, id, body.Data.WebhookID)
}

func TestCourier_OverlappingSecrets(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	r := receive(t, good)
	id := target(t, w, r.URL)
	kept, err := secrets(t, w.Pool, key(1)).Rotate(t.Context(), id, second, time.Now().Add(time.Hour), 1)
	require.NoError(t, err)
	require.True(t, kept)
	send(t, w)
	w.Append(t, "acme", event.WebhookStream(id), event.WebhookTested{})
	states(t, w, id, 1)
	require.Len(t, strings.Fields(r.got()[0].header.Get("webhook-signature")), 2)
	for _, s := range []string{first, second} {
		verifier, err := standardwebhooks.NewWebhook(s)
		require.NoError(t, err)
		require.NoError(t, verifier.Verify(r.got()[0].body, r.got()[0].header))
	}
}

// only returns the id of the endpoint's only delivery.
func only(t *testing.T, w *projectiontest.World, webhookID string) (id string) {
	t.Helper()
	require.NoError(t,
		w.Pool.QueryRow(t.Context(), `SELECT delivery_id FROM delivery.delivery WHERE webhook_id = $1`,
			webhookID).Scan(&id))
	return id
}

func TestRetry_FinishedDelivery(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	var well atomic.Bool
	r := receive(t, func(_ int, w http.ResponseWriter) {
		if !well.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	id := target(t, w, r.URL)
	send(t, w)
	w.Append(t, "acme", event.LeadStream(w.NewID()), deliverytest.NewLead("Ann"))
	require.Equal(t, map[string]int{"failed": 1}, states(t, w, id, 1))
	require.Len(t, r.got(), 3)
	well.Store(true)
	retried := event.WebhookRetried{DeliveryID: only(t, w, id)}
	w.Append(t, "acme", event.WebhookStream(id), retried)
	attempts := func(n int) {
		t.Helper()
		require.Eventually(t, func() bool { return len(r.got()) >= n }, projectiontest.Soon, time.Millisecond)
		require.Len(t, r.got(), n)
	}
	attempts(4)
	// of another endpoint
	w.Append(t, "acme", event.WebhookStream(deliverytest.Register(t, w, "acme", r.URL, "token.deleted")), retried)
	w.Append(t, "acme", event.LeadStream(w.NewID()), deliverytest.NewLead("Ben"))
	require.Equal(t, map[string]int{"delivered": 2}, states(t, w, id, 2))
	attempts(5)
	w.Append(t, "acme", event.WebhookStream(id), retried) // also for a successful delivery
	attempts(6)
	require.Equal(t, map[string]int{"delivered": 2}, states(t, w, id, 2))
	require.Equal(t, 5, r.ids()[retried.DeliveryID], "under the same id")
}

func TestRetry_SeveralDeliveries(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	var well atomic.Bool
	r := receive(t, func(_ int, w http.ResponseWriter) {
		if !well.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	id := target(t, w, r.URL)
	send(t, w)
	for _, name := range []string{"Ann", "Ben", "Cleo"} {
		w.Append(t, "acme", event.LeadStream(w.NewID()), deliverytest.NewLead(name))
	}
	require.Equal(t, map[string]int{"failed": 3}, states(t, w, id, 3))
	well.Store(true)
	ids := slices.Sorted(maps.Keys(r.ids()))
	w.Append(t, "acme", event.WebhookStream(id), event.WebhookRetried{Since: time.Now(), DeliveryIDs: ids[:2]})
	require.Eventually(t, func() bool {
		return r.ids()[ids[0]] == 4 && r.ids()[ids[1]] == 4
	}, projectiontest.Soon, time.Millisecond)
	require.Equal(t, map[string]int{"delivered": 2, "failed": 1}, states(t, w, id, 3))
}

func TestRetry_DuringLastAttempt(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]int{"fails": http.StatusInternalServerError, "succeeds": http.StatusOK} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := deliverytest.New(t)
			third, release := make(chan struct{}), make(chan struct{})
			r := receive(t, func(n int, w http.ResponseWriter) {
				switch {
				case n < 3:
					w.WriteHeader(http.StatusInternalServerError)
				case n == 3:
					close(third)
					<-release
					w.WriteHeader(last)
				}
			})
			id := target(t, w, r.URL)
			w.Append(t, "acme", event.LeadStream(w.NewID()), deliverytest.NewLead("Ann"))
			spreading := send(t, w)
			<-third
			w.Append(t, "acme", event.WebhookStream(id), event.WebhookRetried{DeliveryID: only(t, w, id)})
			projectiontest.Await(t, spreading)
			close(release)
			require.Equal(t, map[string]int{"delivered": 1}, states(t, w, id, 1))
			require.Len(t, r.got(), map[string]int{"fails": 4, "succeeds": 3}[name])
		})
	}
}

func TestRetry_WaitingDelivery(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	r := receive(t, func(n int, w http.ResponseWriter) {
		if n == 1 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	id := target(t, w, r.URL)
	send(t, w, func(o *courier.Options) { o.Schedule = []time.Duration{time.Hour} })
	w.Append(t, "acme", event.LeadStream(w.NewID()), deliverytest.NewLead("Ann"))
	require.Eventually(t, func() bool {
		var waits bool
		err := w.Pool.QueryRow(t.Context(),
			`SELECT attempts = 1 AND lease IS NULL FROM delivery.queue WHERE webhook_id = $1`, id).Scan(&waits)
		return err == nil && waits
	}, projectiontest.Soon, time.Millisecond)
	w.Append(t, "acme", event.WebhookStream(id), event.WebhookRetried{DeliveryID: only(t, w, id)})
	require.Equal(t, map[string]int{"delivered": 1}, states(t, w, id, 1))
}
