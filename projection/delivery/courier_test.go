package delivery_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/jackc/pgx/v5"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/delivery"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/query"
)

// receiver is an endpoint's server that notes what it gets.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	received []http.Header
	bodies   [][]byte
}

func receive(t *testing.T, answer func(n int, w http.ResponseWriter)) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, _ := io.ReadAll(request.Body)
		r.mu.Lock()
		r.received, r.bodies = append(r.received, request.Header.Clone()), append(r.bodies, body)
		n := len(r.received)
		r.mu.Unlock()
		answer(n, w)
	}))
	t.Cleanup(r.Close)
	return r
}

func good(int, http.ResponseWriter) {}

func (r *receiver) ids() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := map[string]int{}
	for _, header := range r.received {
		ids[header.Get("webhook-id")]++
	}
	return ids
}

// send runs the fan-out, which it returns, and a courier for as long as the test does.
func send(t *testing.T, w *projectiontest.World, change ...func(*delivery.CourierOptions)) *projection.Runner {
	t.Helper()
	spreading := fanOut(t, w)
	projectiontest.Run(t, spreading)
	o := delivery.CourierOptions{
		Pool: w.Pool, Store: w.Store, Secrets: secrets(t, w.Pool, key(1)), Log: slog.New(slog.DiscardHandler),
		AllowPrivateTargets: true, Schedule: []time.Duration{time.Millisecond, time.Millisecond}, Timeout: 10 * time.Second,
	}
	for _, c := range change {
		c(&o)
	}
	courier := delivery.NewCourier(o)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { courier.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return spreading
}

func target(t *testing.T, w *projectiontest.World, url string) (id string) {
	t.Helper()
	id = register(t, w, "acme", url, "*")
	require.NoError(t, secrets(t, w.Pool, key(1)).Put(t.Context(), id, secret))
	return id
}

// states awaits that no row of an endpoint is queued, and counts what became of them.
func states(t *testing.T, w *projectiontest.World, webhookID string, rows int) map[string]int {
	t.Helper()
	var got map[string]int
	require.Eventually(t, func() bool {
		found, err := w.Pool.Query(t.Context(), `SELECT state FROM delivery.delivery WHERE webhook_id = $1`, webhookID)
		if err != nil {
			return false
		}
		all, err := pgx.CollectRows(found, pgx.RowTo[string])
		got = map[string]int{}
		for _, state := range all {
			got[state]++
		}
		return err == nil && len(all) == rows && got["queued"] == 0
	}, projectiontest.Soon, 10*time.Millisecond, "%v", &got)
	return got
}

func TestALeadArrivesSignedAsTheStandardsOwnLibraryVerifies(t *testing.T) {
	t.Parallel()
	w := begun(t)
	r := receive(t, good)
	id := target(t, w, r.URL)
	send(t, w)
	lead := w.NewID()
	w.Append(t, "acme", event.LeadStream(lead), newLead("Ann"), event.LeadMerged{Source: "whatsapp", NewSource: true, Name: "Ann Lee"},
		event.LeadUpdated{Name: "Anna Lee"}, event.LeadReleased{Phone: "+919876500001", Name: "Somebody"})
	require.Equal(t, map[string]int{"delivered": 4}, states(t, w, id, 4))

	verifier, err := standardwebhooks.NewWebhook(secret)
	require.NoError(t, err)
	names := map[string]string{}
	for i, header := range r.received {
		require.NoError(t, verifier.Verify(r.bodies[i], header))
		require.Error(t, verifier.Verify(append([]byte(" "), r.bodies[i]...), header))
		var body struct {
			Type, Timestamp, ID string
			Sequence            int64
			Data                struct {
				LeadID, Name, Source string
				SourceEntry          struct{ Source string }
			}
		}
		require.NoError(t, json.Unmarshal(r.bodies[i], &body, json.MatchCaseInsensitiveNames(true)))
		require.Equal(t, lead, body.Data.LeadID)
		require.Equal(t, "website", body.Data.Source)
		require.NotEmpty(t, body.ID)
		require.NotZero(t, body.Sequence)
		names[body.Type] = body.Data.Name + " " + body.Data.SourceEntry.Source
	}
	require.Equal(t, map[string]string{"lead.created": "Ann ", "lead.merged": "Ann Lee whatsapp", "lead.updated": "Anna Lee ", "lead.released": "Somebody "}, names,
		"each as of its own event")
}

// What an endpoint is told of a source is what it would read.
func TestTheSourceEntryOfAMergeIsTheOneOfTheHistory(t *testing.T) {
	t.Parallel()
	w := begun(t)
	r := receive(t, good)
	id := register(t, w, "acme", r.URL, "lead.merged")
	require.NoError(t, secrets(t, w.Pool, key(1)).Put(t.Context(), id, secret))
	send(t, w)
	lead := w.NewID()
	merged := event.LeadMerged{
		Source: "whatsapp", NewSource: true, Name: "Ann Lee", IP: "198.51.100.7", UserAgent: "a browser", Changed: []string{"name"},
		Metadata: map[string]jsontext.Value{"source": jsontext.Value(`"whatsapp"`), "n": jsontext.Value(`1.0`)},
	}
	w.Append(t, "acme", event.LeadStream(lead), newLead("Ann"), merged)
	require.Equal(t, map[string]int{"delivered": 1}, states(t, w, id, 1))
	w.Project(t)
	list, err := query.New(w.Pool, w.Store).LeadSources(t.Context(), "acme", lead, query.Page{Limit: 10})
	require.NoError(t, err)
	want, err := json.Marshal(list.Items[1])
	require.NoError(t, err)
	var body struct {
		Data struct {
			SourceEntry jsontext.Value `json:"sourceEntry"`
		} `json:"data"`
	}
	require.NoError(t, json.Unmarshal(r.bodies[0], &body))
	require.JSONEq(t, string(want), string(body.Data.SourceEntry))

	// One that was queued when bodies told less is what it was at every attempt.
	_, err = w.Pool.Exec(t.Context(), `UPDATE delivery.delivery SET renderer = 1 WHERE webhook_id = $1`, id)
	require.NoError(t, err)
	var delivered string
	require.NoError(t, w.Pool.QueryRow(t.Context(), `SELECT delivery_id FROM delivery.delivery WHERE webhook_id = $1`, id).Scan(&delivered))
	w.Append(t, "acme", event.WebhookStream(id), event.WebhookRetried{DeliveryID: delivered})
	require.Eventually(t, func() bool { r.mu.Lock(); defer r.mu.Unlock(); return len(r.bodies) == 2 }, projectiontest.Soon, 5*time.Millisecond)
	require.NoError(t, json.Unmarshal(r.bodies[1], &body))
	var entry map[string]any
	require.NoError(t, json.Unmarshal(body.Data.SourceEntry, &entry))
	require.Equal(t, []string{"arrivals", "firstSeenAt", "lastSeenAt", "source"}, slices.Sorted(maps.Keys(entry)))
}

func TestAJoinIsSentAsAnUpdateOfTheLeadThatStays(t *testing.T) {
	t.Parallel()
	w := begun(t)
	r := receive(t, good)
	id := register(t, w, "acme", r.URL, "lead.updated")
	require.NoError(t, secrets(t, w.Pool, key(1)).Put(t.Context(), id, secret))
	send(t, w)
	into, from := w.NewID(), w.NewID()
	w.Append(t, "acme", event.LeadStream(into), newLead("Ann"))
	w.Append(t, "acme", event.LeadStream(from), newLead("Anna"), event.LeadDeparted{Into: into})
	w.Append(t, "acme", event.LeadStream(into), event.LeadJoined{From: from, Was: event.LeadSnapshot{OpportunityID: "o", OpportunityValue: "7"}})
	require.Equal(t, map[string]int{"delivered": 1}, states(t, w, id, 1))
	var body struct {
		Type string `json:"type"`
		Data struct {
			LeadID           string  `json:"leadId"`
			OpportunityValue float64 `json:"opportunityValue"`
			JoinedFrom       string  `json:"joinedFrom"`
		} `json:"data"`
	}
	require.NoError(t, json.Unmarshal(r.bodies[0], &body))
	require.Equal(t, "lead.updated", body.Type)
	require.Equal(t, into, body.Data.LeadID)
	require.Equal(t, from, body.Data.JoinedFrom)
	require.Equal(t, 7.0, body.Data.OpportunityValue)
}

func TestWhatComesAfterARotationIsSignedByTheNewSecretToo(t *testing.T) {
	t.Parallel()
	w := begun(t)
	r := receive(t, good)
	id := target(t, w, r.URL)
	send(t, w)
	previous := secret
	for n := range 4 { // each within the moment for which the secrets of the one before are remembered
		next := fmt.Sprintf("whsec_%032d", n)
		kept, err := secrets(t, w.Pool, key(1)).Rotate(t.Context(), id, next, time.Now().Add(time.Hour))
		require.NoError(t, err)
		require.True(t, kept)
		w.Append(t, "acme", event.LeadStream(w.NewID()), newLead("Ann"))
		require.Equal(t, map[string]int{"delivered": n + 1}, states(t, w, id, n+1))
		for _, signing := range []string{previous, next} {
			verifier, err := standardwebhooks.NewWebhook(signing)
			require.NoError(t, err)
			require.NoError(t, verifier.Verify(r.bodies[n], r.received[n]), "rotation %d", n)
		}
		previous = next
	}
}

func TestAFailureIsTriedAgainWithTheSameIdAndTheSameBytes(t *testing.T) {
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
	require.Len(t, r.bodies, 3)
	require.Equal(t, r.bodies[0], r.bodies[1])
	require.Equal(t, r.bodies[0], r.bodies[2])
	var attempts string
	require.NoError(t, w.Pool.QueryRow(t.Context(),
		`SELECT string_agg(status::text, ', ' ORDER BY at) FROM delivery.attempt`).Scan(&attempts))
	require.Equal(t, "302, 500, 200", attempts)
}

func TestAfterTheScheduleADeliveryHasFailedAndGoneIsFinal(t *testing.T) {
	t.Parallel()
	w := begun(t)
	broken := receive(t, func(_ int, w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) })
	gone := receive(t, func(_ int, w http.ResponseWriter) { w.WriteHeader(http.StatusGone) })
	first, second := target(t, w, broken.URL), target(t, w, gone.URL)
	send(t, w)
	w.Append(t, "acme", event.LeadStream(w.NewID()), newLead("Ann"))
	require.Equal(t, map[string]int{"failed": 1}, states(t, w, first, 1))
	require.Equal(t, map[string]int{"failed": 1}, states(t, w, second, 1))
	require.Len(t, broken.bodies, 3)
	require.Len(t, gone.bodies, 1)
}

func TestAPrivateAddressIsNotDialled(t *testing.T) {
	t.Parallel()
	w := begun(t)
	r := receive(t, good)
	id := target(t, w, r.URL)
	send(t, w, func(o *delivery.CourierOptions) { o.AllowPrivateTargets = false })
	w.Append(t, "acme", event.LeadStream(w.NewID()), newLead("Ann"))
	require.Equal(t, map[string]int{"failed": 1}, states(t, w, id, 1))
	require.Empty(t, r.ids())
}

func TestWhatIsQueuedForADeletedEndpointIsCancelled(t *testing.T) {
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
func TestADeliveryWaitsForASecretThatIsLost(t *testing.T) {
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
		var told int
		err := w.Pool.QueryRow(t.Context(), `SELECT count(*) FROM delivery.attempt WHERE error LIKE '%rotate it%'`).Scan(&told)
		return err == nil && told > 1
	}, projectiontest.Soon, 10*time.Millisecond, "its owner is told")
	require.Empty(t, r.ids())
	handlers := command.NewHandlers(command.Options{Store: w.Store, Secrets: kept, Log: slog.New(slog.DiscardHandler)})
	_, err := handlers.RotateWebhookSecret(t.Context(), command.RotateWebhookSecret{Caller: command.Caller{Account: "acme"}, WebhookID: id})
	require.NoError(t, err)
	require.Equal(t, map[string]int{"delivered": 1}, states(t, w, id, 1))
	require.Len(t, r.ids(), 1)
}

func TestAHungEndpointHoldsNobodyUp(t *testing.T) {
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

func TestNothingIsLostAndFewComeTwiceWhenTheConnectionsAreKilledUnderLoad(t *testing.T) {
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
			_, err = conn.Exec(t.Context(), `
				SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				 WHERE datname = current_database() AND application_name = 'leadlog courier'`)
			require.NoError(t, err)
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

func TestWhatAKilledProcessHeldIsTakenUp(t *testing.T) {
	t.Parallel()
	w := begun(t)
	r := receive(t, good)
	id := target(t, w, r.URL)
	w.Append(t, "acme", event.LeadStream(w.NewID()), newLead("Ann"))
	spread(t, w)
	_, err := w.Pool.Exec(t.Context(), `UPDATE delivery.queue SET lease = 12345; INSERT INTO delivery.session VALUES (12345)`) // one that is gone
	require.NoError(t, err)
	send(t, w)
	require.Equal(t, map[string]int{"delivered": 1}, states(t, w, id, 1))
}
