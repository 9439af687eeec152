package delivery

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/projection/projectiontest"
)

// Of an endpoint that answers slowly, rows wait in hand while its owner disables it, or moves it from a URL that is not theirs.
func TestWhatWaitsInHandGoesByTheEndpointAsItIsByThen(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	arrived := make(chan string, 4)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { arrived <- r.URL.Path }))
	t.Cleanup(receiver.Close)
	secrets, err := NewSecrets(w.Pool, make([]byte, KeySize))
	require.NoError(t, err)
	require.NoError(t, secrets.Put(t.Context(), "w", "whsec_c2VjcmV0"))
	bodies := NewBodies()
	bodies.recent.Add(eventKey{"lead-1", 0}, rendered{body: []byte("{}"), at: time.Now()})
	courier := NewCourier(CourierOptions{
		Pool: w.Pool, Store: w.Store, Secrets: secrets, Bodies: bodies, Log: slog.New(slog.DiscardHandler), AllowPrivateTargets: true,
	})
	set := func(statement string) {
		pgtest.Exec(t, w.Pool, statement)
	}
	waiting := row{id: "d", webhookID: "w", stream: "lead-1", renderer: rendererVersion, url: receiver.URL + "/old", claimed: time.Now().Add(-believed)}
	set(`
		INSERT INTO delivery.endpoint (webhook_id, account, url, events, deleted, disabled)
		VALUES ('w', 'acme', '` + receiver.URL + `/new', '{*}', false, false);
		INSERT INTO delivery.origin (epoch, position) VALUES ('log', 5);
		INSERT INTO delivery.checkpoint (projector, version, epoch, position, updated_at) VALUES ('fanout', 1, 'log', 4, now())`)
	done := courier.attempt(t.Context(), waiting)
	require.Equal(t, queued, done.state, "the fan-out reads the log anew, and this may be a URL that the endpoint has moved from")
	require.False(t, done.attempted)
	set(`UPDATE delivery.checkpoint SET position = 5`)
	done = courier.attempt(t.Context(), waiting)
	require.Equal(t, delivered, done.state, "%v", done.outcome.err)
	require.Equal(t, "/new", <-arrived)
	require.Equal(t, receiver.URL+"/new", done.url, "what comes of it is said of this URL")
	set(`UPDATE delivery.endpoint SET disabled = true`)
	done = courier.attempt(t.Context(), waiting)
	require.Equal(t, cancelled, done.state)
	require.False(t, done.attempted)
	require.Empty(t, arrived)
}
