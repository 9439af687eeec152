package fetch_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/intake"
	"github.com/leadlog/leadlog/command/worker/fetch"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/projection/schema"
	"github.com/leadlog/leadlog/projection/view"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const (
	account = "acme"
	token   = "the-access-token"
)

// graph is an API that records requests.
type graph struct {
	*httptest.Server
	mu    sync.Mutex
	asked map[string]int // by path
}

func serve(t *testing.T, answer func(n int, w http.ResponseWriter, r *http.Request)) *graph {
	t.Helper()
	g := &graph{asked: map[string]int{}}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("access_token") != token {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		g.mu.Lock()
		g.asked[r.URL.Path]++
		n := g.asked[r.URL.Path]
		g.mu.Unlock()
		answer(n, w, r)
	}))
	t.Cleanup(g.Close)
	return g
}

func (g *graph) times(leadgenID string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.asked["/"+leadgenID]
}

func lead(_ int, w http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(w, `{"id": "1", "field_data": [{"name": "email", "values": ["asha@example.com"]}]}`)
}

// scene has intakes, arrivals, a view of them, and a fetcher whose outcomes it appends.
type scene struct {
	*projectiontest.World
	logged projectiontest.Output
	mu     sync.Mutex
	ended  map[string][]command.FinishArrival
	finish func(command.FinishArrival) error
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{World: projectiontest.New(t), ended: map[string][]command.FinishArrival{}}
	projectiontest.Run(t, s.Runner(t, view.Arrival{}))
	return s
}

func (s *scene) intake(t *testing.T, graphURL string) string {
	t.Helper()
	id := s.NewID()
	s.Append(t, account, event.IntakeStream(id), event.IntakeCreated{IntakeSettings: event.IntakeSettings{
		Name: "ads", Kind: intake.MetaLeadAds, Source: "facebook_ad", Enabled: true, GraphURL: graphURL,
	}, Slot: 1})
	return id
}

func (s *scene) arrival(t *testing.T, intakeID, leadgenID string) string {
	t.Helper()
	id := s.NewID()
	raw := event.ArrivalRaw{ContentType: "application/json", Headers: map[string]string{"x": "y"}}
	s.Append(t, account, event.ArrivalStream(id), event.ArrivalReceived{
		IntakeID: intakeID, ReceivedAt: projectiontest.Start, ExpiresAt: projectiontest.Start.AddDate(10, 0, 0),
		DeliveryID: leadgenID,
		Raw:        raw.WithBody([]byte(`{"leadgen_id": ` + leadgenID + `, "page_id": "77"}`)),
	})
	return id
}

// fetcher runs a fetcher until the returned function is called or the test ends.
func (s *scene) fetcher(t *testing.T, change ...func(*fetch.Options)) (stop func()) {
	t.Helper()
	leases := schema.NewLeases(s.Pool.Config().ConnConfig)
	o := fetch.Options{
		Pool: s.Pool, Leases: leases, Store: s.Store, Log: slog.New(slog.NewTextHandler(&s.logged, nil)),
		AllowPrivateTargets: true, Schedule: []time.Duration{time.Millisecond, time.Millisecond},
		MissingSchedule: []time.Duration{time.Millisecond, time.Millisecond, time.Millisecond},
		Timeout:         projectiontest.Soon,
		Secrets: func(context.Context, string, string) (intake.Secrets, error) {
			return intake.Secrets{AccessToken: token}, nil
		},
		Finish: func(_ context.Context, f command.FinishArrival) (command.ArrivalReceived, error) {
			return command.ArrivalReceived{}, s.end(t, f)
		},
	}
	for _, c := range change {
		c(&o)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer leases.Close()
		fetch.New(o).Run(ctx)
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

// end appends an outcome like the command.
func (s *scene) end(t *testing.T, f command.FinishArrival) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.finish != nil {
		if err := s.finish(f); err != nil {
			return err
		}
	}
	s.ended[f.ArrivalID] = append(s.ended[f.ArrivalID], f)
	if len(f.Wrong) > 0 {
		reason := event.ArrivalReason{Field: f.Wrong[0].Field, Message: f.Wrong[0].Message}
		s.Append(t, account, event.ArrivalStream(f.ArrivalID), event.ArrivalQuarantined{
			Reasons: []event.ArrivalReason{reason},
		})
		return nil
	}
	s.Append(t, account, event.ArrivalStream(f.ArrivalID), event.ArrivalFetched{Raw: f.Fetched}, event.ArrivalCaptured{
		LeadID: s.NewID(), EventID: s.NewID(),
	})
	return nil
}

func (s *scene) outcomes(arrivalID string) []command.FinishArrival {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.ended[arrivalID])
}

func (s *scene) await(t *testing.T, arrivalID string) command.FinishArrival {
	t.Helper()
	require.Eventually(t, func() bool { return len(s.outcomes(arrivalID)) > 0 }, projectiontest.Soon, time.Millisecond)
	return s.outcomes(arrivalID)[0]
}

func (s *scene) failure(t *testing.T, intakeID string) (text string) {
	t.Helper()
	err := s.Pool.QueryRow(t.Context(),
		`SELECT coalesce(max(error), '') FROM delivery.fetch_failure WHERE intake_id = $1`, intakeID).Scan(&text)
	require.NoError(t, err)
	return text
}

func TestFetcher_FetchesOnce(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	g := serve(t, lead)
	s.fetcher(t)
	s.fetcher(t) // a second process
	id := s.arrival(t, s.intake(t, g.URL), "11")
	got := s.await(t, id)
	require.Equal(t, account, got.Caller.Account)
	require.Empty(t, got.Wrong)
	require.Equal(t, "application/json", got.Fetched.ContentType)
	require.Equal(t, map[string]string{"x": "y"}, got.Fetched.Headers)
	body, err := got.Fetched.Bytes()
	require.NoError(t, err)
	require.JSONEq(t,
		`{"id": "1", "field_data": [{"name": "email", "values": ["asha@example.com"]}], "leadgen_id": 11, `+
			`"page_id": "77"}`, string(body))

	later := s.arrival(t, s.intake(t, g.URL), "12")
	s.await(t, later)
	require.Len(t, s.outcomes(id), 1)
	require.Equal(t, 1, g.times("11"))
	require.Eventually(t, func() bool {
		var rows int
		require.NoError(t, s.Pool.QueryRow(t.Context(), `SELECT count(*) FROM delivery.fetch`).Scan(&rows))
		return rows == 0
	}, projectiontest.Soon, 5*time.Millisecond, "what is finished leaves the schedule")
}

func TestFetcher_Failures(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.fetcher(t)
	answer := func(status int, body string) func(int, http.ResponseWriter, *http.Request) {
		return func(_ int, w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	cases := map[string]struct {
		answer func(int, http.ResponseWriter, *http.Request)
		asked  int
		wrong  string
	}{
		"expired token": {
			answer(400, `{"error": {"message": "about asha@example.com", "code": 190}}`), 1,
			"the API answered 400, code 190",
		},
		"unknown lead": {answer(404, `no JSON`), 4, "the API answered 404"},
		"unknown lead, coded": {
			answer(400, `{"error": {"code": 100, "error_subcode": 33}}`), 4, "the API answered 400, code 100",
		},
		"rate limit":    {answer(400, `{"error": {"code": 80005}}`), 3, "the API answered 400, code 80005"},
		"no permission": {answer(403, `{"error": {"code": 200}}`), 2, "the API answered 403, code 200"},
		"gone":          {answer(410, ``), 1, "the API answered 410"},
		"broken":        {answer(500, ``), 3, "the API answered 500"},
		"busy": {
			answer(400, `{"error": {"code": 4, "is_transient": true}}`), 3, "the API answered 400, code 4",
		},
		"moved":     {answer(302, ``), 3, "the API answered 302"},
		"no lead":   {answer(200, `{}`), 3, "the answer is not a lead of Meta's Graph API"},
		"too large": {answer(200, strings.Repeat(" ", 600<<10)), 1, "the answer is too large"},
		"hangs up": {func(_ int, w http.ResponseWriter, _ *http.Request) {
			panic(http.ErrAbortHandler)
		}, 3, "EOF"},
	}
	servers, intakes, arrivals := map[string]*graph{}, map[string]string{}, map[string]string{}
	for name, c := range cases {
		servers[name] = serve(t, c.answer)
		intakes[name] = s.intake(t, servers[name].URL)
		arrivals[name] = s.arrival(t, intakes[name], "21")
	}
	for name, c := range cases {
		g, intakeID := servers[name], intakes[name]
		got := s.await(t, arrivals[name])
		require.Len(t, got.Wrong, 1, name)
		require.Equal(t, "body", got.Wrong[0].Field, name)
		require.Equal(t, "was not fetched: "+c.wrong, got.Wrong[0].Message, name)
		require.Equal(t, c.asked, g.times("21"), name)
		require.Eventually(t, func() bool {
			return s.failure(t, intakeID) == got.Wrong[0].Message
		}, projectiontest.Soon, time.Millisecond, name)
	}
	require.NotContains(t, s.logged.String(), token)
	require.NotContains(t, s.logged.String(), "asha")
}

// A token that may not read the fields of ads, or is of another app, gets the answers of the person.
func TestFetcher_AsksForLess(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	var asked []string
	g := serve(t, func(n int, w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		ofAds, proof := strings.Contains(query.Get("fields"), "ad_name"), query.Get("appsecret_proof") != ""
		asked = append(asked, fmt.Sprint(ofAds, proof))
		switch {
		case proof:
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error": {"code": 100, "message": "Invalid appsecret_proof provided"}}`)
		case ofAds:
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"error": {"code": 200, "message": "Requires ads_management permission"}}`)
		default:
			lead(n, w, r)
		}
	})
	s.fetcher(t, func(o *fetch.Options) {
		o.Secrets = func(context.Context, string, string) (intake.Secrets, error) {
			return intake.Secrets{AccessToken: token, Secret: "app"}, nil
		}
	})
	require.Empty(t, s.await(t, s.arrival(t, s.intake(t, g.URL), "22")).Wrong)
	require.Equal(t, []string{"true true", "true false", "false false"}, asked)
}

func TestFetcher_RecoversFromFailures(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	reached := make(chan struct{})
	g := serve(t, func(n int, w http.ResponseWriter, r *http.Request) {
		if n == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		<-reached
		lead(n, w, r)
	})
	var failing sync.Once
	s.finish = func(command.FinishArrival) (err error) {
		failing.Do(func() { err = errors.New("the store is away") })
		return err
	}
	s.fetcher(t)
	intakeID := s.intake(t, g.URL)
	id := s.arrival(t, intakeID, "31")
	require.Eventually(t, func() bool {
		return s.failure(t, intakeID) == "was not fetched: the API answered 503"
	}, projectiontest.Soon, time.Millisecond)
	close(reached)
	require.Empty(t, s.await(t, id).Wrong)
	require.Eventually(t, func() bool { return s.failure(t, intakeID) == "" }, projectiontest.Soon, time.Millisecond)
	require.Equal(t, 3, g.times("31"), "fetched again when it could not be appended")
}

func TestFetcher_LogsEachInterruption(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.fetcher(t)
	for n := range 2 {
		pgtest.Disconnect(t, s.URL)
		logged := func(message string) func() bool {
			return func() bool { return strings.Count(s.logged.String(), message) > n }
		}
		require.Eventually(t, logged("background work failed"), projectiontest.Soon, time.Millisecond)
		pgtest.Reconnect(t, s.URL)
		require.Eventually(t, logged("background work succeeds again"), projectiontest.Soon, time.Millisecond)
	}
	require.Less(t, strings.Count(s.logged.String(), "background work failed"), 10, "not with every attempt")
}

// After a process has ended in any way, another one repeats its fetches.
func TestFetcher_NextProcessContinues(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	entered := make(chan struct{}, 1)
	g := serve(t, func(n int, w http.ResponseWriter, r *http.Request) {
		if n == 1 {
			entered <- struct{}{}
			<-r.Context().Done()
			return
		}
		lead(n, w, r)
	})
	stop := s.fetcher(t)
	id := s.arrival(t, s.intake(t, g.URL), "41")
	<-entered
	stop()
	require.Empty(t, s.outcomes(id), "an aborted attempt has no outcome")
	s.fetcher(t)
	require.Empty(t, s.await(t, id).Wrong)
	require.Equal(t, 2, g.times("41"))
}

func TestFetcher_HungAPIDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	var hanging atomic.Int32
	hung := serve(t, func(_ int, _ http.ResponseWriter, r *http.Request) {
		hanging.Add(1)
		<-r.Context().Done()
	})
	g := serve(t, lead)
	stop := s.fetcher(t)
	slow := s.intake(t, hung.URL)
	for i := range 30 {
		s.arrival(t, slow, fmt.Sprint(5000+i))
	}
	other := s.intake(t, g.URL)
	for i := range 5 {
		require.Empty(t, s.await(t, s.arrival(t, other, fmt.Sprint(51+i))).Wrong)
	}
	require.Equal(t, int32(4), hanging.Load(), "attempts of one intake at once")
	stop() // the server closes after its requests have ended
}

func TestFetcher_Timeout(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	g := serve(t, func(_ int, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	stop := s.fetcher(t, func(o *fetch.Options) { o.Timeout = 20 * time.Millisecond })
	intakeID := s.intake(t, g.URL)
	s.arrival(t, intakeID, "61")
	require.Eventually(t, func() bool {
		return s.failure(t, intakeID) == "was not fetched: the API did not answer in time"
	}, projectiontest.Soon, time.Millisecond)
	stop()
	require.NotContains(t, s.logged.String(), token)
}

func TestFetcher_RefusesPrivateAddress(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	g := serve(t, lead)
	s.fetcher(t, func(o *fetch.Options) { o.AllowPrivateTargets = false })
	id := s.arrival(t, s.intake(t, g.URL), "71")
	got := s.await(t, id)
	require.Len(t, got.Wrong, 1)
	require.Zero(t, g.times("71"))
	require.NotContains(t, got.Wrong[0].Message, "127.0.0.1")
}

// The owner has corrected the access and resubmits. The fetch gets all attempts of the schedule again.
func TestFetcher_FetchesAgain(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	g := serve(t, func(n int, w http.ResponseWriter, r *http.Request) {
		if n <= 5 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		lead(n, w, r)
	})
	var succeeded, failed atomic.Int32
	s.fetcher(t, func(o *fetch.Options) {
		o.Attempted = func(_ time.Duration, success bool) {
			if success {
				succeeded.Add(1)
			} else {
				failed.Add(1)
			}
		}
	})
	intakeID := s.intake(t, g.URL)
	id := s.arrival(t, intakeID, "91")
	require.Equal(t, "was not fetched: the API answered 503", s.await(t, id).Wrong[0].Message)
	require.Equal(t, 3, g.times("91"))
	s.Append(t, account, event.ArrivalStream(id), event.ArrivalResubmitted{Fetch: true})
	require.Eventually(t, func() bool { return len(s.outcomes(id)) == 2 }, projectiontest.Soon, time.Millisecond)
	require.Empty(t, s.outcomes(id)[1].Wrong)
	require.Equal(t, 6, g.times("91"))
	require.Equal(t, []int32{1, 5}, []int32{succeeded.Load(), failed.Load()})
	require.Eventually(t, func() bool { return s.failure(t, intakeID) == "" }, projectiontest.Soon, time.Millisecond)
}

func TestFetcher_WithoutAccess(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	g := serve(t, lead)
	s.fetcher(t, func(o *fetch.Options) {
		o.Secrets = func(context.Context, string, string) (intake.Secrets, error) { return intake.Secrets{}, nil }
	})
	require.Equal(t, "was not fetched: the intake has no accessToken",
		s.await(t, s.arrival(t, s.intake(t, g.URL), "81")).Wrong[0].Message)
	deleted := s.intake(t, g.URL)
	s.Append(t, account, event.IntakeStream(deleted), event.IntakeDeleted{})
	require.Equal(t, "was not fetched: the intake is deleted", s.await(t, s.arrival(t, deleted, "82")).Wrong[0].Message)
	require.Zero(t, g.times("81")+g.times("82"))
}

// lost is a log whose arrivals cannot be read.
type lost struct{ eventstore.Store }

func (l lost) Read(ctx context.Context, stream string, from eventstore.Revision) iter.Seq2[eventstore.Recorded, error] {
	return func(yield func(eventstore.Recorded, error) bool) {
		for e, err := range l.Store.Read(ctx, stream, from) {
			e.Erased = strings.HasPrefix(stream, event.ArrivalPrefix)
			if !yield(e, err) {
				return
			}
		}
	}
}

// A process destroyed the key of an arrival and was killed. The arrival is not fetched repeatedly.
func TestFetcher_LostArrival(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	g := serve(t, lead)
	s.fetcher(t, func(o *fetch.Options) { o.Store = lost{o.Store} })
	id := s.arrival(t, s.intake(t, g.URL), "95")
	require.Eventually(t, func() bool {
		var later bool
		err := s.Pool.QueryRow(t.Context(),
			`SELECT EXISTS (SELECT FROM delivery.fetch WHERE arrival_id = $1
				AND due_at > now() + interval '10 minutes')`, id).Scan(&later)
		return err == nil && later
	}, projectiontest.Soon, time.Millisecond)
	require.Empty(t, s.outcomes(id))
	require.Zero(t, g.times("95"))
}
