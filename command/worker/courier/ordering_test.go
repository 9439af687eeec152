package courier_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/worker/courier"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/delivery"
	"github.com/leadlog/leadlog/projection/delivery/deliverytest"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/projection/schema"
	"github.com/leadlog/leadlog/query"
)

// inOrder registers an endpoint with an ordering.
func inOrder(t *testing.T, w *projectiontest.World, url, ordering string) (id string) {
	t.Helper()
	id = w.NewID()
	w.Append(t, "acme", event.WebhookStream(id), event.WebhookRegistered{
		WebhookSettings: event.WebhookSettings{URL: url, Events: []string{"*"}, Ordering: ordering}, Slot: 1,
	})
	require.NoError(t, secrets(t, w.Pool, key(1)).Put(t.Context(), id, first))
	return id
}

// ordered is a receiver that records deliveries out of order, and fails some attempts.
type ordered struct {
	*httptest.Server
	ordering string
	tries    int // number of attempts after which a delivery has failed for good
	mu       sync.Mutex
	lanes    map[string]*orderedLane
	wrong    []string
}

type orderedLane struct {
	sequence int64
	busy     int
	tried    int
	done     bool
}

type orderedBody struct {
	Sequence int64 `json:"sequence"`
	Data     struct {
		LeadID string `json:"leadId"`
	} `json:"data"`
}

func receiveInOrder(t *testing.T, ordering string, tries int) *ordered {
	o := &ordered{ordering: ordering, tries: tries, lanes: map[string]*orderedLane{}}
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		raw, _ := io.ReadAll(request.Body)
		var body orderedBody
		if json.Unmarshal(raw, &body) != nil || !o.receive(body) {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(o.Close)
	return o
}

// receive records an attempt and reports whether it succeeds.
func (o *ordered) receive(body orderedBody) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	name := ""
	if o.ordering == "lead" {
		name = body.Data.LeadID
	}
	lane := o.lanes[name]
	if lane == nil {
		lane = &orderedLane{}
		o.lanes[name] = lane
	}
	switch {
	case body.Sequence < lane.sequence:
		o.wrong = append(o.wrong, fmt.Sprintf("%d after %d", body.Sequence, lane.sequence))
	case body.Sequence > lane.sequence && lane.sequence > 0 && !lane.done && lane.tried < o.tries:
		o.wrong = append(o.wrong, fmt.Sprintf("%d while %d was not finished", body.Sequence, lane.sequence))
	}
	if body.Sequence != lane.sequence {
		*lane = orderedLane{sequence: body.Sequence}
	}
	if lane.busy++; lane.busy > 1 {
		o.wrong = append(o.wrong, fmt.Sprintf("%d twice at once", body.Sequence))
	}
	o.mu.Unlock()
	time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
	o.mu.Lock()
	lane.busy--
	lane.tried++
	lane.done = lane.done || rand.IntN(3) > 0
	return lane.done
}

// The deliveries of a lane are sent in sequence, with failures, and with several couriers that start and end.
func TestOrdering_LaneByLane(t *testing.T) {
	t.Parallel()
	for _, ordering := range []string{"lead", "endpoint"} {
		t.Run(ordering, func(t *testing.T) {
			t.Parallel()
			w := deliverytest.New(t)
			r := receiveInOrder(t, ordering, 3)
			id := inOrder(t, w, r.URL, ordering)
			send(t, w)
			send(t, w)
			leads := []string{event.LeadStream(w.NewID()), event.LeadStream(w.NewID()), event.LeadStream(w.NewID())}
			for _, lead := range leads {
				w.Append(t, "acme", lead, deliverytest.NewLead("Ann"))
			}
			for n := range 20 {
				w.Append(t, "acme", leads[n%len(leads)], event.LeadUpdated{
					LeadFields: event.LeadFields{Name: fmt.Sprint("Ann ", n)},
				},
					event.LeadUpdated{LeadFields: event.LeadFields{Name: fmt.Sprint("Ann Lee ", n)}})
				if n%7 == 0 { // a courier that is stopped in the middle
					endedCourier(t, w)
				}
			}
			got := states(t, w, id, 43)
			require.Equal(t, 43, got["delivered"]+got["failed"])
			r.mu.Lock()
			defer r.mu.Unlock()
			require.Empty(t, r.wrong)
		})
	}
}

// Deliveries of a replay queue behind the waiting deliveries.
func TestOrdering_Replay(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	id := inOrder(t, w, "https://example.com", "lead")
	lead := event.LeadStream(w.NewID())
	w.Append(t, "acme", lead, deliverytest.NewLead("Ann"), event.LeadReleased{Field: "phone", Phone: "+919876500001"})
	w.Append(t, "acme", event.WebhookStream(id), event.WebhookReplayed{
		Since: projectiontest.Start, Until: projectiontest.Start.AddDate(1, 0, 0), Generation: 1,
	})
	deliverytest.CatchUp(t, w)
	pgtest.Exec(t, w.Pool, `DELETE FROM delivery.queue WHERE type = 'lead.created'`) // as if it was sent
	pgtest.Exec(t, w.Pool, `SELECT delivery.advance(ARRAY[$1], ARRAY[$2])`, id, lead)
	leases := schema.NewLeases(w.Pool.Config().ConnConfig)
	defer leases.Close()
	for moved := true; moved; {
		var err error
		moved, err = delivery.Replayer{
			Pool: w.Pool, Leases: leases, Store: w.Store, Log: slog.New(slog.DiscardHandler),
		}.RunOnce(t.Context())
		require.NoError(t, err)
	}
	require.Equal(t, []string{"lead.released 0 true", "lead.created 1 false"}, pgtest.Rows[string](t, w.Pool,
		`SELECT concat(type, ' ', generation, ' ', CASE WHEN due_at < 'infinity' THEN 'true' ELSE 'false' END)
			FROM delivery.queue ORDER BY ordinal`))
}

// endedCourier runs a courier for a few milliseconds.
func endedCourier(t *testing.T, w *projectiontest.World) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	courier.New(courier.Options{
		Pool: w.Pool, Store: w.Store, Secrets: secrets(t, w.Pool, key(1)), Log: slog.New(slog.DiscardHandler),
		AllowPrivateTargets: true, Schedule: []time.Duration{time.Millisecond, time.Millisecond},
	}).Run(ctx)
}

// stateOf waits for a state of the delivery of an event, by its lead and type.
func stateOf(t *testing.T, w *projectiontest.World, stream, kind, state string) (id string) {
	t.Helper()
	require.Eventually(t, func() bool {
		err := w.Pool.QueryRow(t.Context(),
			`SELECT delivery_id FROM delivery.delivery WHERE stream = $1 AND type = $2 AND state = $3`,
			stream, kind, state).Scan(&id)
		return err == nil
	}, projectiontest.Soon, 10*time.Millisecond, "%s of %s is not %s", kind, stream, state)
	return id
}

func TestOrdering_GivesWay(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	bad := event.LeadStream(w.NewID())
	r := receive(t, func(n int, w http.ResponseWriter) {})
	r.Config.Handler = failingFor(r.Config.Handler, bad)
	id := inOrder(t, w, r.URL, "lead")
	spreading := send(t, w)
	w.Append(t, "acme", bad, deliverytest.NewLead("Ann"), event.LeadReleased{Field: "phone", Phone: "+919876500001"})
	w.Project(t)
	failed := stateOf(t, w, bad, "lead.created", "failed")
	stateOf(t, w, bad, "lead.released", "failed")
	of, err := query.New(w.Pool, w.Store).Delivery(t.Context(), "acme", id, failed, true)
	require.NoError(t, err)
	require.True(t, of.GaveWay)
	require.Len(t, of.Attempts, 3)

	// A manual retry is outside of the ordering: nothing waits for it.
	w.Append(t, "acme", event.WebhookStream(id), event.WebhookRetried{DeliveryID: failed})
	good := event.LeadStream(w.NewID())
	w.Append(t, "acme", good, deliverytest.NewLead("Bea"))
	projectiontest.Await(t, spreading)
	stateOf(t, w, good, "lead.created", "delivered")
	require.Len(t, laneRows(t, w), 0)
}

// failingFor answers 500 to the events of a lead.
func failingFor(next http.Handler, stream string) http.Handler {
	lead := event.LeadID(stream)
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		raw, _ := io.ReadAll(request.Body)
		var body orderedBody
		if json.Unmarshal(raw, &body) == nil && body.Data.LeadID == lead {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		next.ServeHTTP(w, request)
	})
}

// laneRows returns the queued rows of lanes.
func laneRows(t *testing.T, w *projectiontest.World) (rows []string) {
	t.Helper()
	require.NoError(t, w.Pool.QueryRow(t.Context(),
		`SELECT array_agg(type ORDER BY ordinal) FROM delivery.queue WHERE lane IS NOT NULL`).Scan(&rows))
	return rows
}

func TestOrdering_Changed(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	stuck, other, late := event.LeadStream(w.NewID()), event.LeadStream(w.NewID()), event.LeadStream(w.NewID())
	r := receive(t, good)
	r.Config.Handler = failingFor(r.Config.Handler, stuck)
	id := inOrder(t, w, r.URL, "lead")
	spreading := send(t, w, func(o *courier.Options) { o.Schedule = []time.Duration{time.Hour} })
	attempts := func(kind string, n int) {
		t.Helper()
		require.Eventually(t, func() bool {
			var made int
			err := w.Pool.QueryRow(t.Context(), `
				SELECT count(*) FROM delivery.attempt JOIN delivery.delivery USING (delivery_id) WHERE stream = $1
				AND type = $2`, stuck, kind).Scan(&made)
			return err == nil && made == n
		}, projectiontest.Soon, 10*time.Millisecond)
	}
	change := func(ordering string) {
		w.Append(t, "acme", event.WebhookStream(id), event.WebhookUpdated{
			WebhookSettings: event.WebhookSettings{URL: r.URL, Events: []string{"*"}, Ordering: ordering},
			Changed:         []string{"ordering"},
		})
		projectiontest.Await(t, spreading)
	}
	w.Append(t, "acme", stuck, deliverytest.NewLead("Ann"), event.LeadReleased{Field: "phone", Phone: "+919876500001"})
	w.Append(t, "acme", other, deliverytest.NewLead("Bea"))
	stateOf(t, w, other, "lead.created", "delivered") // another lead's delivery does not wait
	attempts("lead.created", 1)
	require.Equal(t, []string{"lead.created", "lead.released"}, laneRows(t, w))

	change("")
	attempts("lead.released", 1) // it no longer waits
	require.Empty(t, laneRows(t, w))

	change("endpoint")
	w.Append(t, "acme", late, deliverytest.NewLead("Cleo"))
	projectiontest.Await(t, spreading)
	require.Equal(t, []string{"lead.created", "lead.released", "lead.created"}, laneRows(t, w))
	w.Append(t, "acme", stuck, event.LeadErased{}) // an erased lead blocks no delivery
	stateOf(t, w, late, "lead.created", "delivered")
	w.Append(t, "acme", event.WebhookStream(id), event.WebhookDisabled{Reason: "owner"})
	projectiontest.Await(t, spreading)
	require.Eventually(t, func() bool { // queued deliveries are cancelled when they are due
		pgtest.Exec(t, w.Pool, `UPDATE delivery.queue SET due_at = now()`)
		return pgtest.Value[int](t, w.Pool, `SELECT count(*) FROM delivery.queue`) == 0
	}, projectiontest.Soon, 20*time.Millisecond)
	require.Equal(t, map[string]int{"cancelled": 3, "delivered": 2}, states(t, w, id, 5))
}

// A delivery in flight left its lane when its endpoint was disabled and enabled, and was sent again after later ones.
func TestOrdering_DisabledDuringAttempt(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	begun, hold := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	r := receive(t, func(n int, w http.ResponseWriter) {
		if n == 1 {
			close(begun)
			<-hold
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	t.Cleanup(release) // otherwise a failed test would wait for the hanging request
	id, lead := inOrder(t, w, r.URL, "endpoint"), event.LeadStream(w.NewID())
	w.Append(t, "acme", lead, deliverytest.NewLead("Ann"), event.LeadReleased{Field: "phone", Phone: "+919876500001"})
	spreading := send(t, w, func(o *courier.Options) { o.Schedule = []time.Duration{time.Hour} })
	<-begun
	w.Append(t, "acme", event.WebhookStream(id), event.WebhookDisabled{Reason: "owner"})
	projectiontest.Await(t, spreading)
	w.Append(t, "acme", event.WebhookStream(id), event.WebhookEnabled{})
	w.Append(t, "acme", event.LeadStream(w.NewID()), deliverytest.NewLead("Bea"))
	projectiontest.Await(t, spreading)
	require.NoError(t,
		w.Pool.QueryRow(t.Context(),
			`SELECT FROM delivery.queue WHERE attempts = 0 AND lease IS NOT NULL AND lane = ''`).Scan(),
		"in flight, in its lane")
	release()
	const rows = `SELECT concat(type, ' ', attempts, ' ', due_at = 'infinity') FROM delivery.queue WHERE webhook_id = $1
		AND type <> 'lead.released' ORDER BY ordinal`
	want := []string{"lead.created 1 f", "lead.created 0 t"} // lead.released was cancelled, or waits
	require.Eventually(t, func() bool {
		return slices.Equal(want, pgtest.Rows[string](t, w.Pool, rows, id))
	}, projectiontest.Soon, 10*time.Millisecond)
	require.Len(t, r.got(), 1)
	pgtest.Exec(t, w.Pool, `UPDATE delivery.queue SET due_at = now() WHERE attempts = 1`)
	require.Eventually(t, func() bool {
		return len(pgtest.Rows[string](t, w.Pool, rows, id)) == 0
	}, projectiontest.Soon, 10*time.Millisecond)
	var last int64
	for _, request := range r.got() {
		var body orderedBody
		require.NoError(t, json.Unmarshal(request.body, &body))
		require.GreaterOrEqual(t, body.Sequence, last)
		last = body.Sequence
	}
}

func TestCourier_OwnHeaders(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	r := receive(t, good)
	store := secrets(t, w.Pool, key(1))
	id := w.NewID()
	settings := event.WebhookSettings{
		URL: r.URL, Events: []string{"*"}, HeaderNames: []string{"Authorization", "X-Shop"},
	}
	w.Append(t, "acme", event.WebhookStream(id), event.WebhookRegistered{WebhookSettings: settings, Slot: 1})
	kept, err := store.SetHeaders(t.Context(), id, r.URL, map[string]string{"X-Shop": "1"}, 0)
	require.NoError(t, err)
	require.False(t, kept, "there is no endpoint that they could be of")
	require.NoError(t, store.Put(t.Context(), id, first))
	set := func(revision eventstore.Revision, headers map[string]string) {
		t.Helper()
		kept, err := store.SetHeaders(t.Context(), id, r.URL, headers, revision)
		require.NoError(t, err)
		require.True(t, kept)
	}
	set(0, map[string]string{"Authorization": "Bearer first"}) // X-Shop is lost
	send(t, w, func(o *courier.Options) { o.Schedule = slices.Repeat([]time.Duration{time.Second}, 10_000) })
	lead := event.LeadStream(w.NewID())
	w.Append(t, "acme", lead, deliverytest.NewLead("Ann"))
	require.Eventually(t, func() bool {
		var text string
		return w.Pool.QueryRow(t.Context(), `SELECT error FROM delivery.attempt`).Scan(&text) == nil && text != ""
	}, projectiontest.Soon, 10*time.Millisecond, "the owner sees why nothing is sent")
	require.Empty(t, r.got())
	set(2, map[string]string{"Authorization": "Bearer second", "X-Shop": "7"})
	set(1, map[string]string{"Authorization": "Bearer late"}) // decided earlier and stored later
	require.NoError(t, store.Rewrap(t.Context()))
	stateOf(t, w, lead, "lead.created", "delivered")
	header := r.got()[0].header
	require.Equal(t, "Bearer second", header.Get("Authorization"))
	require.Equal(t, "7", header.Get("X-Shop"))
	require.Equal(t, "application/json", header.Get("Content-Type"))

	// A process was killed after a change of the URL, before it stored the headers for that.
	other := receive(t, good)
	settings.URL = other.URL
	w.Append(t, "acme", event.WebhookStream(id), event.WebhookUpdated{
		WebhookSettings: settings, Changed: []string{"url", "headers"},
	})
	lead = event.LeadStream(w.NewID())
	w.Append(t, "acme", lead, deliverytest.NewLead("Bea"))
	require.Eventually(t, func() bool {
		var attempts int
		return w.Pool.QueryRow(t.Context(), `SELECT count(*) FROM delivery.attempt
			JOIN delivery.delivery USING (delivery_id) WHERE error <> '' AND stream = $1`, lead).
			Scan(&attempts) == nil && attempts > 0
	}, projectiontest.Soon, 10*time.Millisecond)
	require.Empty(t, other.got(), "it does not get the headers of another URL")
	kept, err = store.SetHeaders(t.Context(), id, other.URL, map[string]string{
		"Authorization": "Bearer other", "X-Shop": "7",
	}, 4)
	require.NoError(t, err)
	require.True(t, kept)
	stateOf(t, w, lead, "lead.created", "delivered")
	require.Equal(t, "Bearer other", other.got()[0].header.Get("Authorization"))

	var sealed string
	require.NoError(t, w.Pool.QueryRow(t.Context(), `SELECT encode(sealed, 'escape') FROM secret.header`).Scan(&sealed))
	require.NotContains(t, sealed, "Bearer")
	require.NoError(t, store.Destroy(t.Context(), id))
	require.Error(t, w.Pool.QueryRow(t.Context(), `SELECT encode(sealed, 'escape') FROM secret.header`).Scan(&sealed),
		"they go with the secret")
}

func TestCourier_RateLimit(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	r := receive(t, good)
	id := w.NewID()
	w.Append(t, "acme", event.WebhookStream(id), event.WebhookRegistered{
		WebhookSettings: event.WebhookSettings{URL: r.URL, Events: []string{"*"}, RateLimit: 100}, Slot: 1,
	})
	require.NoError(t, secrets(t, w.Pool, key(1)).Put(t.Context(), id, first))
	free := target(t, w, receive(t, good).URL)
	var mu sync.Mutex
	left := 7
	more := func(n int) { mu.Lock(); left += n; mu.Unlock() }
	send(t, w, func(o *courier.Options) {
		o.Pace = func(_ context.Context, of string, rate float64, wanted int) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			if of != id || rate != 100 {
				return 0, fmt.Errorf("pace of %s at %v", of, rate)
			}
			granted := min(left, wanted)
			left -= granted
			return granted, nil
		}
	})
	for range 40 {
		w.Append(t, "acme", event.LeadStream(w.NewID()), deliverytest.NewLead("Ann"))
	}
	require.Equal(t, map[string]int{"delivered": 40}, states(t, w, free, 40), "others have no limit")
	require.Eventually(t, func() bool { return len(r.got()) == 7 }, projectiontest.Soon, 10*time.Millisecond)
	more(33)
	require.Equal(t, map[string]int{"delivered": 40}, states(t, w, id, 40))
	require.Len(t, r.got(), 40)
	var attempts int
	require.NoError(t, w.Pool.QueryRow(t.Context(), `SELECT count(*) FROM delivery.attempt`).Scan(&attempts))
	require.Equal(t, 80, attempts, "waiting for the limit is no attempt")
}
