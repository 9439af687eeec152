package courier_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/worker/courier"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/sealbox"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/delivery/deliverytest"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/projection/secret"
	"github.com/leadlog/leadlog/query"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const (
	first  = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	second = "whsec_c2Vjb25kc2Vjb25kc2Vjb25kc2Vjb25k"
)

func key(fill byte) []byte { return bytes.Repeat([]byte{fill}, sealbox.KeySize) }

func secrets(t *testing.T, pool *pgxpool.Pool, current []byte) secret.Endpoints {
	t.Helper()
	box, err := sealbox.New(current)
	require.NoError(t, err)
	return secret.Endpoints{Store: secret.New(pool, box)}
}

// receiver is an endpoint's server that records requests.
type receiver struct {
	*httptest.Server
	mu  sync.Mutex
	all []attempt
}

// attempt is a received request.
type attempt struct {
	header http.Header
	body   []byte
}

func receive(t *testing.T, answer func(n int, w http.ResponseWriter)) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, _ := io.ReadAll(request.Body)
		r.mu.Lock()
		r.all = append(r.all, attempt{request.Header.Clone(), body})
		n := len(r.all)
		r.mu.Unlock()
		answer(n, w)
	}))
	t.Cleanup(r.Close)
	return r
}

func good(int, http.ResponseWriter) {}

// got returns the requests received so far.
func (r *receiver) got() []attempt {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

func (r *receiver) ids() map[string]int {
	ids := map[string]int{}
	for _, a := range r.got() {
		ids[a.header.Get("webhook-id")]++
	}
	return ids
}

// send runs the fan-out, which it returns, and a courier until the test ends.
func send(t *testing.T, w *projectiontest.World, change ...func(*courier.Options)) *projection.Runner {
	t.Helper()
	spreading := deliverytest.FanOut(t, w, nil)
	projectiontest.Run(t, spreading)
	o := courier.Options{
		Pool: w.Pool, Store: w.Store, Secrets: secrets(t, w.Pool, key(1)), Log: slog.New(slog.DiscardHandler),
		AllowPrivateTargets: true, Schedule: []time.Duration{time.Millisecond, time.Millisecond},
		Timeout: projectiontest.Soon,
	}
	for _, c := range change {
		c(&o)
	}
	courier := courier.New(o)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { courier.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return spreading
}

func target(t *testing.T, w *projectiontest.World, url string) (id string) {
	t.Helper()
	id = deliverytest.Register(t, w, "acme", url, "*")
	require.NoError(t, secrets(t, w.Pool, key(1)).Put(t.Context(), id, first))
	return id
}

// states waits until no row of an endpoint is queued, and counts the deliveries by state.
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

func TestCourier_StandardWebhooksSignature(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	r := receive(t, good)
	id := target(t, w, r.URL)
	send(t, w)
	lead := w.NewID()
	w.Append(t, "acme", event.LeadStream(lead), deliverytest.NewLead("Ann"), event.LeadMerged{
		Source: "whatsapp", NewSource: true, LeadFields: event.LeadFields{Name: "Ann Lee"},
	},
		event.LeadUpdated{
			LeadFields: event.LeadFields{Name: "Anna Lee"},
		}, event.LeadReleased{Field: "phone", Phone: "+919876500001", Name: "Anna Roy"})
	require.Equal(t, map[string]int{"delivered": 4}, states(t, w, id, 4))

	verifier, err := standardwebhooks.NewWebhook(first)
	require.NoError(t, err)
	names := map[string]string{}
	for _, a := range r.got() {
		require.NoError(t, verifier.Verify(a.body, a.header))
		require.Error(t, verifier.Verify(append([]byte(" "), a.body...), a.header))
		var body struct {
			Type, Timestamp, ID string
			Sequence            int64
			Data                struct {
				LeadID, Name, Source string
				SourceEntry          struct{ Source string }
			}
		}
		require.NoError(t, json.Unmarshal(a.body, &body, json.MatchCaseInsensitiveNames(true)))
		require.Equal(t, lead, body.Data.LeadID)
		require.Equal(t, "website", body.Data.Source)
		require.NotEmpty(t, body.ID)
		require.NotZero(t, body.Sequence)
		names[body.Type] = body.Data.Name + " " + body.Data.SourceEntry.Source
	}
	require.Equal(t, map[string]string{
		"lead.created": "Ann ", "lead.merged": "Ann Lee whatsapp", "lead.updated": "Anna Lee ",
		"lead.released": "Anna Roy ",
	}, names,
		"each as of its own event")
}

// The source entry and the touch equal those that the API returns.
func TestBody_SourceEntryAndTouch(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	r := receive(t, good)
	id := deliverytest.Register(t, w, "acme", r.URL, "lead.merged")
	require.NoError(t, secrets(t, w.Pool, key(1)).Put(t.Context(), id, first))
	send(t, w)
	lead := w.NewID()
	merged := event.LeadMerged{
		Source: "whatsapp", NewSource: true, LeadFields: event.LeadFields{Name: "Ann Lee"}, IP: "198.51.100.7",
		UserAgent: "a browser", Changed: []string{"name"},
		Metadata: map[string]jsontext.Value{
			"source": jsontext.Value(`"whatsapp"`), "n": jsontext.Value(`1.0`), "gclid": jsontext.Value(`"click"`),
			"utm_source":   jsontext.Value(`"a@b"`),
			"landing_page": jsontext.Value(`"https://example.com"`),
		},
		Campaign:   event.Campaign{UTMMedium: "cpc"},
		ArrivalRef: event.ArrivalRef{IntakeID: w.NewID(), ReceivedAt: projectiontest.Start},
	}
	w.Append(t, "acme", event.LeadStream(lead), deliverytest.NewLead("Ann"), merged)
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
		Touch jsontext.Value `json:"touch"`
	}
	require.NoError(t, json.Unmarshal(r.got()[0].body, &body))
	require.JSONEq(t, string(want), string(body.Data.SourceEntry))
	head, err := w.Store.Head(t.Context())
	require.NoError(t, err)
	touches, err := query.New(w.Pool, w.Store).Touches(t.Context(), "acme", query.TouchFilter{LeadID: lead, AsOf: head},
		query.Page{Limit: 10})
	require.NoError(t, err)
	i := slices.IndexFunc(touches.Items, func(touch query.Touch) bool { return touch.Kind == "merged" })
	want, err = json.Marshal(touches.Items[i])
	require.NoError(t, err)
	require.JSONEq(t, string(want), string(body.Touch))
}

func TestBody_Join(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	r := receive(t, good)
	id := deliverytest.Register(t, w, "acme", r.URL, "lead.updated")
	require.NoError(t, secrets(t, w.Pool, key(1)).Put(t.Context(), id, first))
	send(t, w)
	into, from := w.NewID(), w.NewID()
	w.Append(t, "acme", event.LeadStream(into), deliverytest.NewLead("Ann"))
	w.Append(t, "acme", event.LeadStream(from), deliverytest.NewLead("Anna"), event.LeadJoinedInto{Into: into})
	w.Append(t, "acme", event.LeadStream(into), event.LeadJoined{
		From: from, Was: event.LeadSnapshot{LeadFields: event.LeadFields{OpportunityID: "o", OpportunityValue: "7"}},
	})
	require.Equal(t, map[string]int{"delivered": 1}, states(t, w, id, 1))
	var body struct {
		Type string `json:"type"`
		Data struct {
			LeadID           string  `json:"leadId"`
			OpportunityValue float64 `json:"opportunityValue"`
			JoinedFrom       string  `json:"joinedFrom"`
		} `json:"data"`
	}
	require.NoError(t, json.Unmarshal(r.got()[0].body, &body))
	require.Equal(t, "lead.updated", body.Type)
	require.Equal(t, into, body.Data.LeadID)
	require.Equal(t, from, body.Data.JoinedFrom)
	require.Equal(t, 7.0, body.Data.OpportunityValue)
}

func TestCourier_SignsWithRotatedSecret(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	r := receive(t, good)
	id := target(t, w, r.URL)
	send(t, w)
	previous := first
	for n := range 4 { // in quick succession
		next := fmt.Sprintf("whsec_%032d", n)
		kept, err := secrets(t, w.Pool, key(1)).Rotate(t.Context(), id, next, time.Now().Add(time.Hour), 1)
		require.NoError(t, err)
		require.True(t, kept)
		w.Append(t, "acme", event.LeadStream(w.NewID()), deliverytest.NewLead("Ann"))
		require.Equal(t, map[string]int{"delivered": n + 1}, states(t, w, id, n+1))
		for _, signing := range []string{previous, next} {
			verifier, err := standardwebhooks.NewWebhook(signing)
			require.NoError(t, err)
			require.NoError(t, verifier.Verify(r.got()[n].body, r.got()[n].header), "rotation %d", n)
		}
		previous = next
	}
}
