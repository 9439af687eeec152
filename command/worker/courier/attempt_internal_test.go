package courier

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/sealbox"
	"github.com/leadlog/leadlog/projection/delivery"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/projection/secret"
)

// The claimed rows of a slow endpoint wait while its owner disables it or changes its URL.
func TestAttempt_RefreshesOldClaim(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	arrived := make(chan string, 4)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- r.URL.Path
	}))
	t.Cleanup(receiver.Close)
	box, err := sealbox.New(make([]byte, sealbox.KeySize))
	require.NoError(t, err)
	secrets := secret.Endpoints{Store: secret.New(w.Pool, box)}
	require.NoError(t, secrets.Put(t.Context(), "w", "whsec_c2VjcmV0"))
	lead := event.LeadStream(w.NewID())
	w.Append(t, "acme", lead, event.LeadCreated{ContactUID: "c", Source: "website"})
	courier := New(Options{
		Pool: w.Pool, Store: w.Store, Secrets: secrets, Log: slog.New(slog.DiscardHandler), AllowPrivateTargets: true,
	})
	set := func(statement string) {
		pgtest.Exec(t, w.Pool, statement)
	}
	waiting := row{
		id: "d", webhookID: "w", Source: delivery.Source{Stream: lead, Message: webhook.Message{Type: "lead.created"}},
		url: receiver.URL + "/old", claimed: time.Now().Add(-maxClaimAge),
	}
	set(`
		INSERT INTO delivery.endpoint (webhook_id, account, url, events, deleted, disabled)
		VALUES ('another', 'acme', '` + receiver.URL + `/another', '{*}', false, false), ` +
		`('w', 'acme', '` + receiver.URL + `/new', '{*}', false, false);
		INSERT INTO delivery.origin (epoch, position) VALUES ('log', 5);
		INSERT INTO delivery.checkpoint (projector, version, epoch, position, updated_at)
		VALUES ('fanout', 1, 'log', 4, now())`)
	done := courier.attempt(t.Context(), waiting)
	require.Equal(t, queued, done.state, "the fan-out reads the log again: this may be an earlier URL")
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

// roundTrips is a client's transport.
type roundTrips func(*http.Request) (*http.Response, error)

func (f roundTrips) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestAttempt_SuccessAtShutdown(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	lead := event.LeadStream(w.NewID())
	w.Append(t, "acme", lead, event.LeadCreated{ContactUID: "c", Source: "website"})
	courier := New(Options{Pool: w.Pool, Store: w.Store, Log: slog.New(slog.DiscardHandler)})
	for status, want := range map[int]string{http.StatusOK: delivered, http.StatusInternalServerError: queued} {
		ctx, end := context.WithCancel(t.Context())
		courier.client.Transport = roundTrips(func(*http.Request) (*http.Response, error) {
			end()
			return &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody}, nil
		})
		done := courier.attempt(ctx, row{
			id: "d", webhookID: "w", Source: delivery.Source{Stream: lead, Message: webhook.Message{Type: "lead.created"}},
			url: "https://example.com/", claimed: time.Now().Add(time.Hour),
			signing: secret.Signing{Secrets: []string{"whsec_c2VjcmV0"}},
		})
		require.Equal(t, want, done.state)
		require.Equal(t, want == delivered, done.attempted, "else it was broken off, and is no failure of the endpoint")
	}
}

func TestAttempt_NotPreparedIsNotCounted(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	arrived, erased := event.LeadStream(w.NewID()), event.LeadStream(w.NewID())
	w.Append(t, "acme", arrived, event.LeadCreated{
		ContactUID: w.NewID(), LeadFields: event.LeadFields{Phone: "+919876543210"}, Source: "website",
	})
	w.Append(t, "acme", erased, event.LeadCreated{
		ContactUID: w.NewID(), LeadFields: event.LeadFields{Phone: "+919876543211"}, Source: "website",
	}, event.LeadErased{})
	epoch, err := w.Store.Epoch(t.Context())
	require.NoError(t, err)
	pgtest.Exec(t, w.Pool, `
		INSERT INTO delivery.checkpoint (projector, version, epoch, position, updated_at)
		VALUES ('fanout', 1, $1, 9, now())`, epoch)
	for name, c := range map[string]struct {
		signing secret.Signing
		stream  string
		want    result
	}{
		"the lead is erased, which the fan-out has not read yet": {
			secret.Signing{Secrets: []string{"whsec_c2VjcmV0"}}, erased, result{state: cancelled, forgotten: true},
		},
		"the key of its endpoint's secret is missing": {
			secret.Signing{Err: sealbox.ErrUnknownKey}, arrived, result{state: queued, wait: time.Hour},
		},
	} {
		courier := New(Options{
			Pool: w.Pool, Store: w.Store, Log: slog.New(slog.DiscardHandler), Schedule: []time.Duration{time.Hour},
		})
		c.want.row = row{
			id: "d", webhookID: "w", Source: delivery.Source{Stream: c.stream, Message: webhook.Message{Type: "lead.created"}},
			claimed: time.Now().Add(time.Hour), signing: c.signing,
		}
		require.Equal(t, c.want, courier.attempt(t.Context(), c.want.row), name)
	}
}
