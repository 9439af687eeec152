package systemtest

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/postgres"
	"github.com/leadlog/leadlog/eventstore/sealbox"
	"github.com/leadlog/leadlog/eventstore/sealed"
)

const (
	intakesPath  = "/api/v1/crm/intakes"
	arrivalsPath = "/api/v1/crm/arrivals"
	intakeSecret = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=" // of each intake
)

// post is a request that a provider sends.
type post struct {
	contentType, body string
	headers           map[string]string
}

func (p post) send(ctx context.Context, base, address string) (answer, error) {
	headers := maps.Clone(p.headers)
	if headers == nil {
		headers = map[string]string{}
	}
	headers["Content-Type"] = p.contentType
	return callWith(ctx, "POST", base+address, "", p.body, headers)
}

// sender is a provider: the settings of its intake, and its post for person n. Each person has a different phone, email
// and delivery id.
type sender struct {
	kind, settings string
	post           func(n int) post
}

func personEmail(n int) string { return fmt.Sprintf("arrival%d@example.com", n) }
func personPhone(n int) string { return fmt.Sprintf("+9171000%05d", n) }

func mac(body string) []byte {
	h := hmac.New(sha256.New, []byte(intakeSecret))
	_, _ = io.WriteString(h, body)
	return h.Sum(nil)
}

// providers returns one sender for each kind of intake. Its posts are samples of the provider with other personal data.
func providers(t *testing.T, graphURL string) []sender {
	t.Helper()
	sample := func(name string, n int, replace ...string) string {
		text, err := os.ReadFile("../../../command/intake/testdata/" + name + ".json")
		require.NoError(t, err)
		for i := 0; i < len(replace); i += 2 {
			require.Contains(t, string(text), replace[i])
		}
		return strings.NewReplacer(append(replace, "+919876543210", personPhone(n))...).Replace(string(text))
	}
	return []sender{
		{"form", `{}`, func(n int) post {
			form := url.Values{
				"your-name": {"Asha Menon"}, "your-email": {personEmail(n)}, "tel": {personPhone(n)}, "city": {"Pune"},
				"utm_campaign": {"diwali"},
			}
			return post{"application/x-www-form-urlencoded", form.Encode(), map[string]string{
				"Idempotency-Key": fmt.Sprint("form-", n),
			}}
		}},
		{"google_lead_form", `{}`, func(n int) post {
			return post{"application/json", sample("google_lead_form", n, "asha@example.com", personEmail(n),
				"TeSter-1fO7SkQ3vYx0Nn5qk2wXHg-lead", fmt.Sprint("google-", n),
				"the-key-of-the-form", intakeSecret), nil}
		}},
		{"meta_lead_ads", `{"accessToken":"the-access-token","graphUrl":"` + graphURL + `"}`, func(n int) post {
			// One post announces the lead of person n twice, in two changes.
			body := sample("meta_post", n, "123123123123", fmt.Sprint(metaID(n)), `"444444444444"`,
				fmt.Sprintf("%q", fmt.Sprint(metaID(n))))
			return post{"application/json", body, map[string]string{
				"X-Hub-Signature-256": "sha256=" + hex.EncodeToString(mac(body)),
			}}
		}},
		{"typeform", `{}`, func(n int) post {
			body := sample("typeform", n, "laura@example.com", personEmail(n), "+34605213447", personPhone(n),
				"a3a12ec67a1365927098a606107fac15", fmt.Sprint("typeform-", n))
			return post{"application/json", body, map[string]string{
				"Typeform-Signature": "sha256=" + base64.StdEncoding.EncodeToString(mac(body)),
			}}
		}},
		{"razorpay", `{}`, func(n int) post {
			body := sample("razorpay", n, "gaurav.kumar@example.com", personEmail(n))
			return post{"application/json", body, map[string]string{
				"X-Razorpay-Event-Id":  fmt.Sprint("razorpay-", n),
				"X-Razorpay-Signature": hex.EncodeToString(mac(body)),
			}}
		}},
		{"standard_webhooks", `{}`, func(n int) post {
			body := sample("standard_webhooks", n, "asha@example.com", personEmail(n))
			id, at := fmt.Sprint("standard-", n), fmt.Sprint(time.Now().Unix())
			key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(intakeSecret, "whsec_"))
			if err != nil {
				panic(err)
			}
			h := hmac.New(sha256.New, key)
			_, _ = io.WriteString(h, id+"."+at+"."+body)
			return post{"application/json", body, map[string]string{
				"webhook-id": id, "webhook-timestamp": at,
				"webhook-signature": "v1," + base64.StdEncoding.EncodeToString(h.Sum(nil)),
			}}
		}},
		{"webhook",
			`{"signature":{"header":"X-Signature","encoding":"base64"},` +
				`"mapping":{"deliveryId":"headers['x-delivery']"}}`, func(n int) post {
				body := sample("standard_webhooks", n, "asha@example.com", personEmail(n))
				return post{"application/json", body, map[string]string{
					"X-Delivery":  fmt.Sprint("webhook-", n),
					"X-Signature": base64.StdEncoding.EncodeToString(mac(body)),
				}}
			}},
	}
}

// metaID returns Meta's id of the lead of person n.
func metaID(n int) int { return 9_000_000_000 + n }

// startGraph starts a Graph API with the leads of all persons. The first request for each lead fails.
func startGraph(t *testing.T) *httptest.Server {
	t.Helper()
	text, err := os.ReadFile("../../../command/intake/testdata/meta_lead.json")
	require.NoError(t, err)
	var asked sync.Map
	graph := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := path.Base(r.URL.Path)
		if r.URL.Query().Get("access_token") != "the-access-token" {
			http.Error(w, `{"error":{"code":190}}`, http.StatusUnauthorized)
			return
		}
		if _, again := asked.LoadOrStore(id, true); !again {
			http.Error(w, `{"error":{"code":2}}`, http.StatusInternalServerError)
			return
		}
		var n int
		_, _ = fmt.Sscan(id, &n)
		_, _ = io.WriteString(w, strings.NewReplacer("123123123123", id, "joe@example.com", personEmail(n-metaID(0)),
			"+14155552671", personPhone(n-metaID(0))).Replace(string(text)))
	}))
	t.Cleanup(graph.Close)
	return graph
}

// createIntake creates an intake and returns its address.
func createIntake(t *testing.T, base, jwt, kind, settings string) (id, address string) {
	t.Helper()
	var body map[string]any
	require.NoError(t, json.Unmarshal([]byte(settings), &body))
	body["name"], body["kind"] = kind, kind
	if kind != "form" {
		body["secret"] = intakeSecret
	}
	encoded, err := json.Marshal(body)
	require.NoError(t, err)
	made := mustCall(t, "POST", base+intakesPath, jwt, string(encoded)).is(t, 201).data()
	return made["intakeId"].(string), made["url"].(string)
}

// listAll returns the items of all pages of a list.
func listAll(t *testing.T, base, path, jwt string) (items []map[string]any) {
	t.Helper()
	for cursor := ""; ; {
		got := mustCall(t, "GET", base+path+"&limit=200&cursor="+cursor, jwt, "").is(t, 200)
		for _, item := range got.body["data"].([]any) {
			items = append(items, item.(map[string]any))
		}
		next, more := got.body["nextCursor"].(string)
		if !more {
			return items
		}
		cursor = url.QueryEscape(next)
	}
}

// Every kind of provider repeats each post until it is answered, and sends some posts twice, while the service is
// killed and started again. Leads are fetched from a Graph API of Meta whose first requests fail. Each person must have
// one lead and one arrival.
func TestIntakes_KilledUnderLoad(t *testing.T) {
	pgtest.System(t)
	t.Parallel()
	settings := serveSettings(t)
	settings["LEADLOG_WEBHOOK_RETRY_SCHEDULE"] = strings.TrimSuffix(strings.Repeat("100ms,", 100), ",")
	jwt := provision(t, settings)
	process, base := serve(t, settings)
	var calling atomic.Pointer[string]
	calling.Store(&base)

	kinds := providers(t, startGraph(t).URL)
	ids, addresses := make([]string, len(kinds)), make([]string, len(kinds))
	for i, s := range kinds {
		ids[i], addresses[i] = createIntake(t, base, jwt, s.kind, s.settings)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var person, answered atomic.Int64
	people, arrivals := make([][]int, len(kinds)), make([]map[string]int, len(kinds))
	failures := make(chan error, len(kinds))
	var sending sync.WaitGroup
	// deliver repeats a post until it is answered, as providers do.
	deliver := func(p post, address string) (answer, error) {
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			got, err := p.send(t.Context(), *calling.Load(), address)
			switch {
			case err == nil && got.status == 200:
				answered.Add(1)
				return got, nil
			case err == nil && got.status != 503:
				return got, fmt.Errorf("answered %d %v", got.status, got.body)
			case time.Now().After(deadline):
				return got, fmt.Errorf("no answer: %w", err)
			}
		}
	}
	for i, s := range kinds {
		arrivals[i] = map[string]int{}
		sending.Go(func() {
			for ctx.Err() == nil {
				n := int(person.Add(1))
				p := s.post(n)
				got, err := deliver(p, addresses[i])
				if err == nil && n%3 == 0 {
					var again answer
					if again, err = deliver(p, addresses[i]); err == nil &&
						again.body["arrivalId"] != got.body["arrivalId"] {
						err = fmt.Errorf("%v and then %v", got.body, again.body)
					}
				}
				if err != nil {
					failures <- fmt.Errorf("%s: person %d: %w", s.kind, n, err)
					return
				}
				people[i] = append(people[i], n)
				if id, ok := got.body["arrivalId"].(string); ok {
					arrivals[i][id] = n
				}
			}
		})
	}
	for range 3 {
		until := answered.Load() + 120
		require.Eventually(t, func() bool {
			return answered.Load() > until || len(failures) > 0
		}, soon, time.Millisecond)
		process.signal(t, syscall.SIGKILL)
		process.wait(t)
		var started string
		process, started = serve(t, settings)
		calling.Store(&started)
	}
	until := answered.Load() + 50
	require.Eventually(t, func() bool { return answered.Load() > until || len(failures) > 0 }, soon, time.Millisecond)
	stop()
	sending.Wait()
	close(failures)
	for err := range failures {
		require.NoError(t, err)
	}

	base = *calling.Load()
	// Views follow the log independently, so each read waits for the current head of the log.
	atHead := func() string {
		mark := mustCall(t, "PATCH", base+intakesPath+"/"+ids[0], jwt, `{"name":"Read from here"}`).is(t,
			200).header.Get("X-Log-Position")
		require.NotEmpty(t, mark)
		return "&minPosition=" + mark
	}
	answeredBy := atHead()
	require.Eventually(t, func() bool {
		waiting := mustCall(t, "GET", base+arrivalsPath+"?state=received"+answeredBy, jwt, "").is(t, 200)
		return len(waiting.body["data"].([]any)) == 0
	}, soon, 50*time.Millisecond, "all leads are fetched from Meta")
	capturedBy := atHead()
	byEmail := map[string]string{}
	for _, lead := range listAll(t, base, leadsPath+"?source="+capturedBy, jwt) {
		email := lead["email"].(string)
		require.NotContains(t, byEmail, email, "a person has two leads")
		byEmail[email] = lead["leadId"].(string)
	}
	total := 0
	for i, s := range kinds {
		total += len(people[i])
		require.NotEmpty(t, people[i])
		captured := listAll(t, base, arrivalsPath+"?intakeId="+ids[i]+capturedBy, jwt)
		require.Len(t, captured, len(people[i]), "%s: one arrival for each delivery", s.kind)
		for _, arrival := range captured {
			require.Equal(t, "captured", arrival["state"], "%s: %v", s.kind, arrival)
			if s.kind != "form" {
				n, known := arrivals[i][arrival["arrivalId"].(string)]
				require.True(t, known, "%s: an arrival without an answer: %v", s.kind, arrival)
				require.Equal(t, byEmail[personEmail(n)], arrival["leadId"], s.kind)
			}
		}
		for _, n := range people[i] {
			require.Contains(t, byEmail, personEmail(n), s.kind)
		}
	}
	require.Len(t, byEmail, total)
	require.Len(t, listAll(t, base, "/api/v1/crm/touches?"+capturedBy, jwt), total, "each lead has one touch")
	launch(t, settings, "verify").exits(t, 0)
	t.Logf("%d answers, %d people", answered.Load(), total)
}

// An arrival in quarantine expires, and another one is discarded by the owner. Later dumps contain neither.
func TestIntakes_DeletedArrivalsLeaveNoTrace(t *testing.T) {
	t.Parallel()
	settings := serveSettings(t)
	jwt := provision(t, settings)
	p, base := serve(t, settings)
	id, address := createIntake(t, base, jwt, "webhook", `{"signature":{"scheme":"bearer"}}`)
	bad := post{
		"application/json", `{"name":"Asha Rao","email":"asha@","customFields":{"city":"pune-city"}}`,
		map[string]string{"Authorization": "Bearer " + intakeSecret},
	}
	got, err := bad.send(t.Context(), base, address)
	require.NoError(t, err)
	discarded := got.is(t, 200).body["arrivalId"].(string)
	for _, where := range []string{"/" + discarded, "?state=quarantined&intakeId=" + id} {
		require.Eventually(t, func() bool {
			return strings.Contains(fmt.Sprint(mustCall(t, "GET", base+arrivalsPath+where, jwt, "").body),
				"quarantined")
		},
			soon, 10*time.Millisecond)
	}
	mustCall(t, "DELETE", base+arrivalsPath+"/"+discarded, jwt, "").is(t, 200)
	expired := appendOldArrival(t, settings, id, bad.body)
	require.Eventually(t, func() bool {
		return len(listAll(t, base, arrivalsPath+"?intakeId="+id, jwt)) == 2
	}, soon, 10*time.Millisecond)
	p.stop(t)
	requireNoTraces(t, "the log of the service", p.err.String())

	p, base = serve(t, settings) // the service deletes expired arrivals at its start
	states := map[string]string{discarded: "discarded", expired: "expired"}
	require.Eventually(t, func() bool {
		for _, arrival := range listAll(t, base, arrivalsPath+"?intakeId="+id, jwt) {
			if arrival["state"] != states[arrival["arrivalId"].(string)] {
				return false
			}
		}
		return true
	}, soon, 50*time.Millisecond)
	for arrival := range states {
		shown := mustCall(t, "GET", base+arrivalsPath+"/"+arrival, jwt, "").is(t, 200).data()
		require.Nil(t, shown["raw"])
		mustCall(t, "POST", base+arrivalsPath+"/"+arrival+"/resubmit", jwt,
			`{"set":{"email":"asha@example.com"}}`).is(t, 409)
	}
	p.stop(t)
	requireNoTraces(t, "the log of the service", p.err.String())
	require.Zero(t, queryInt(t, settings, `SELECT count(*) FROM person.key WHERE stream ^@ 'arrival-'`))
	require.Zero(t, queryInt(t, settings, `SELECT count(*) FROM person.content`))
	requireNoTraces(t, "the database", dump(t, settings["LEADLOG_DATABASE_URL"]))
	launch(t, settings, "replay", "all").exits(t, 0)
	requireNoTraces(t, "rebuilt views", dump(t, settings["LEADLOG_DATABASE_URL"]))
	launch(t, settings, "verify").exits(t, 0)
}

// appendOldArrival appends an arrival that was quarantined long ago, sealed as the service seals it, and returns its
// id.
func appendOldArrival(t *testing.T, settings map[string]string, intake, body string) string {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	log, err := postgres.Open(t.Context(), postgres.Options{URL: settings["LEADLOG_DATABASE_URL"], Log: quiet})
	require.NoError(t, err)
	defer log.Close()
	key, err := base64.StdEncoding.DecodeString(settings["LEADLOG_SEAL_KEY"])
	require.NoError(t, err)
	box, err := sealbox.New(key)
	require.NoError(t, err)
	store := sealed.Wrap(log, sealed.NewVault(pgtest.Pool(t, settings["LEADLOG_DATABASE_URL"]), box), true, quiet)
	at := time.Now().UTC().AddDate(0, 0, -31).Truncate(time.Millisecond)
	var events []eventstore.Event
	for _, data := range []event.Data{
		event.ArrivalReceived{
			IntakeID: intake, ReceivedAt: at, ExpiresAt: at.AddDate(0, 0, 30),
			Raw: event.ArrivalRaw{ContentType: "application/json", Body: body},
		},
		event.ArrivalQuarantined{Reasons: []event.ArrivalReason{{Field: "email", Message: "is not an email address"}}},
	} {
		eventType, encoded, err := event.Encode(data)
		require.NoError(t, err)
		events = append(events, eventstore.Event{ID: ulid.Make(), Type: eventType, At: at, Data: encoded,
			Metadata: event.Metadata{Account: "acme", Actor: "system:intake", Credential: "intake:" + intake}})
	}
	id := ulid.Make().String()
	_, err = store.Append(t.Context(), eventstore.Write{
		Stream: event.ArrivalStream(id), Expect: eventstore.NoStream, Events: events,
	})
	require.NoError(t, err)
	return id
}
