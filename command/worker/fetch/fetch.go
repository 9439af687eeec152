// Package fetch gets the content of arrivals that only announce it from the sender's API. The only such sender is Meta:
// a post of its webhooks has the id of a lead, and the lead is read from the Graph API.
//
// The view of arrivals lists the pending ones, and the log records the outcomes. A table has the time of the next
// retry.
package fetch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/arrival"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/intake"
	"github.com/leadlog/leadlog/command/worker/outbound"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/schema"
)

// Options configure a Fetcher. Pool, Leases, Store, Secrets, Finish and Log are required.
type Options struct {
	Pool   *pgxpool.Pool
	Leases *schema.Leases
	Store  eventstore.Store
	Log    *slog.Logger
	// Secrets returns the secrets that an event of an intake set. The error wraps intake.ErrNoSecrets if there are
	// none.
	Secrets func(ctx context.Context, intakeID, eventID string) (intake.Secrets, error)
	// Finish appends the outcome of the fetch to an arrival.
	Finish func(context.Context, command.FinishArrival) (command.ArrivalReceived, error)
	// AllowPrivateTargets lets the fetcher connect to any address and port.
	AllowPrivateTargets bool
	Resolver            *net.Resolver   // of the names in URLs; nil: the system's resolver
	Schedule            []time.Duration // between attempts; empty: the schedule of webhooks
	// between attempts to fetch a lead that the API does not know yet; empty: for 15 minutes
	MissingSchedule []time.Duration
	Timeout         time.Duration // of an attempt; 0: 15 s
	// Attempted is called after each attempt if it is not nil. It must not block.
	Attempted func(took time.Duration, success bool)
}

// Fetcher fetches the content of pending arrivals. Any number of fetchers may run on one database; one at a time is
// active. If it is killed, the next one repeats its unfinished fetches.
type Fetcher struct {
	Options
	work   eventstore.Background
	client *http.Client
	wake   chan struct{}

	mu       sync.Mutex
	inFlight map[string]string // intakes by arrival id
	// by arrival id: the view may show the arrival as received until it reaches the position
	finished map[string]eventstore.Position
}

// New returns a Fetcher.
func New(o Options) *Fetcher {
	if len(o.Schedule) == 0 {
		o.Schedule = outbound.DefaultSchedule()
	}
	if len(o.MissingSchedule) == 0 {
		o.MissingSchedule = []time.Duration{
			5 * time.Second, 25 * time.Second, 90 * time.Second, 4 * time.Minute, 9 * time.Minute,
		}
	}
	if o.Timeout == 0 {
		o.Timeout = 15 * time.Second
	}
	return &Fetcher{
		Options: o,
		work:    eventstore.Background{Work: "fetch the content of arrivals", Interval: retryPause, Log: o.Log},
		client:  outbound.NewClient(o.AllowPrivateTargets, o.Timeout, o.Resolver), wake: make(chan struct{}, 1),
	}
}

const (
	lease = "arrival fetches"

	poll         = 250 * time.Millisecond
	retryPause   = time.Second // after an error of the database
	afterFailure = time.Second // pause before an attempt that could not be prepared or finished is retried
	afterLoss    = time.Hour   // pause before an arrival that cannot be read is retried

	// An intake whose API hangs does not delay others, unless very many intakes have perIntake attempts each.
	perIntake   = 4
	maxInFlight = 512

	maxAnswer = 512 << 10 // maximum size of an API's response, in bytes
)

// Run fetches until the context is done.
func (f *Fetcher) Run(ctx context.Context) {
	f.work.Run(ctx, func(ctx context.Context) (bool, error) { return false, f.session(ctx) })
	f.client.CloseIdleConnections()
}

// session waits for the lease, and fetches until it is lost or an error occurs.
func (f *Fetcher) session(ctx context.Context) error {
	for {
		held, err := f.Leases.Acquire(ctx, lease)
		if err != nil {
			return err
		}
		if held != nil {
			defer held.Release()
			err := f.serve(held.Context)
			return cmp.Or(context.Cause(held.Context), err)
		}
		if err := eventstore.Sleep(ctx, retryPause); err != nil {
			return err
		}
	}
}

// serve fetches while this process has the lease.
func (f *Fetcher) serve(ctx context.Context) error {
	attempting, abort := context.WithCancel(ctx)
	var attempts sync.WaitGroup
	defer attempts.Wait()
	defer abort()
	f.mu.Lock()
	f.inFlight, f.finished = make(map[string]string), make(map[string]eventstore.Position)
	f.mu.Unlock()
	// Delete the retries of arrivals that were discarded or have expired.
	_, err := f.Pool.Exec(ctx, `DELETE FROM delivery.fetch f
	     WHERE NOT EXISTS (SELECT FROM views.arrival a WHERE a.arrival_id = f.arrival_id AND a.state = 'received')`)
	if err != nil {
		return err
	}
	for {
		due, err := f.due(ctx)
		if err != nil {
			return err
		}
		f.work.Succeeded()
		for _, d := range due {
			attempts.Go(func() {
				f.attempt(attempting, d)
				f.done(d)
			})
		}
		if err := f.idle(ctx); err != nil {
			return err
		}
	}
}

// idle waits for an attempt to end, or for the next poll.
func (f *Fetcher) idle(ctx context.Context) error {
	timer := time.NewTimer(poll)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-f.wake:
	case <-timer.C:
	}
	return nil
}

func (f *Fetcher) done(d pending) {
	f.mu.Lock()
	delete(f.inFlight, d.arrivalID)
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default: // a wake-up is pending
	}
}

// pending is an arrival whose content is to be fetched.
type pending struct {
	account, intakeID, arrivalID string
	attempts                     int // before this one
}

// due returns the due arrivals, of each intake at most as many as it has free slots, and marks them as in flight. It
// visits the intakes by index, so that a long queue of one intake costs the others nothing.
func (f *Fetcher) due(ctx context.Context) ([]pending, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	excluded := []string{} // nil would be NULL
	busy := make(map[string]int)
	for id, intakeID := range f.inFlight {
		excluded = append(excluded, id)
		busy[intakeID]++
	}
	for id := range f.finished {
		excluded = append(excluded, id)
	}
	rows, err := f.Pool.Query(ctx, `
		WITH RECURSIVE waiting (id) AS (
		    (SELECT intake_id FROM views.arrival WHERE state = 'received' ORDER BY intake_id LIMIT 1)
		    UNION ALL
		    SELECT (SELECT a.intake_id FROM views.arrival a WHERE a.state = 'received' AND a.intake_id > w.id
		      ORDER BY a.intake_id LIMIT 1)
		      FROM waiting w WHERE w.id IS NOT NULL
		)
		SELECT d.account, w.id, d.arrival_id, d.attempts
		  FROM waiting w
		 CROSS JOIN LATERAL (
		       SELECT a.account, a.arrival_id, coalesce(t.attempts, 0) AS attempts
		         FROM views.arrival a LEFT JOIN delivery.fetch t USING (arrival_id)
		        WHERE a.intake_id = w.id AND a.state = 'received' AND (t.due_at IS NULL OR t.due_at <= now())
		        AND a.arrival_id <> ALL ($1)
		        ORDER BY a.position LIMIT $2) d
		 WHERE w.id IS NOT NULL`, excluded, perIntake)
	if err != nil {
		return nil, err
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p pending, err error) {
		err = row.Scan(&p.account, &p.intakeID, &p.arrivalID, &p.attempts)
		return p, err
	})
	if err != nil {
		return nil, err
	}
	if err := f.forget(ctx); err != nil {
		return nil, err
	}
	var due []pending
	for _, p := range all {
		if busy[p.intakeID] < perIntake && len(f.inFlight) < maxInFlight {
			busy[p.intakeID]++
			f.inFlight[p.arrivalID] = p.intakeID
			due = append(due, p)
		}
	}
	return due, nil
}

// forget removes finished arrivals that the view has passed. An arrival that the view then shows as received must be
// fetched again.
func (f *Fetcher) forget(ctx context.Context) error {
	if len(f.finished) == 0 {
		return nil
	}
	var reached int64
	if err := f.Pool.QueryRow(ctx, `SELECT position FROM views.checkpoint WHERE projector = $1`,
		schema.Arrival).Scan(&reached); err != nil {
		return err
	}
	maps.DeleteFunc(f.finished, func(_ string, at eventstore.Position) bool { return int64(at) <= reached })
	return nil
}

// Pending returns how many arrivals have no outcome yet, due or not, over all processes.
func (f *Fetcher) Pending(ctx context.Context) (n int, err error) {
	err = f.Pool.QueryRow(ctx, `SELECT count(*) FROM views.arrival WHERE state = 'received'`).Scan(&n)
	return n, schema.Unavailable(err)
}

// attempt makes one attempt to fetch an arrival, and records the outcome.
func (f *Fetcher) attempt(ctx context.Context, p pending) {
	a, state, err := f.read(ctx, p)
	if err != nil || a.State != arrival.Received {
		f.recordOutcome(ctx, p, err)
		return
	}
	if a.Lost { // its key was destroyed, and the fact that should follow is not on the log
		f.record(ctx, p, "", p.attempts, afterLoss)
		return
	}
	begun := time.Now()
	result := f.fetch(ctx, a, state)
	if f.Attempted != nil && ctx.Err() == nil && result.err == nil {
		f.Attempted(time.Since(begun), result.wrong == "")
	}
	switch {
	case ctx.Err() != nil:
	case result.err != nil: // the attempt could not be made
		f.recordOutcome(ctx, p, result.err)
	case result.wrong == "":
		f.finish(ctx, p, result, command.FinishArrival{Fetched: result.raw})
	case result.permanent:
		f.finish(ctx, p, result, command.FinishArrival{Wrong: field.Errors{{Field: "body", Message: result.wrong}}})
	default:
		schedule := f.Schedule
		if result.missing {
			schedule = f.MissingSchedule
		}
		wait, ok := outbound.Next(schedule, p.attempts+1, result.failure, time.Now(), rand.Float64())
		if !ok {
			f.finish(ctx, p, result, command.FinishArrival{Wrong: field.Errors{{Field: "body", Message: result.wrong}}})
			return
		}
		f.log(p, result)
		f.record(ctx, p, result.wrong, p.attempts+1, wait)
	}
}

// read reads the arrival and its intake.
func (f *Fetcher) read(ctx context.Context, p pending) (a arrival.Arrival, s intake.State, err error) {
	if a, _, err = eventstore.Load(ctx, f.Store, event.ArrivalStream(p.arrivalID), arrival.Evolve); err == nil {
		s, _, err = eventstore.Load(ctx, f.Store, event.IntakeStream(p.intakeID), intake.Evolve)
	}
	return a, s, err
}

// recordOutcome marks an arrival as finished, or schedules a retry if the attempt could not be made.
func (f *Fetcher) recordOutcome(ctx context.Context, p pending, err error) {
	var head eventstore.Position
	if err == nil {
		_, err = f.Pool.Exec(ctx, `DELETE FROM delivery.fetch WHERE arrival_id = $1`, p.arrivalID)
	}
	if err == nil {
		head, err = f.Store.Head(ctx)
	}
	if err == nil {
		f.mu.Lock()
		f.finished[p.arrivalID] = head
		f.mu.Unlock()
		return
	}
	if ctx.Err() == nil {
		f.Log.Warn("content of an arrival not fetched, retrying", slog.String("arrivalId", p.arrivalID),
			slog.Any("error", err))
		f.record(ctx, p, "", p.attempts, afterFailure)
	}
}

// finish appends the outcome to the arrival.
func (f *Fetcher) finish(ctx context.Context, p pending, r result, finish command.FinishArrival) {
	finish.Caller, finish.ArrivalID = command.Caller{Account: p.account, Actor: "system:fetch"}, p.arrivalID
	if _, err := f.Finish(ctx, finish); err != nil && !errors.Is(err, arrival.ErrNotFound) {
		f.recordOutcome(ctx, p, err)
		return
	}
	if r.wrong != "" {
		f.log(p, r)
	}
	batch := &pgx.Batch{}
	if r.wrong != "" {
		queueFailure(batch, p, r.wrong)
	} else {
		batch.Queue(`DELETE FROM delivery.fetch_failure WHERE intake_id = $1`, p.intakeID)
	}
	f.send(ctx, p, batch)
	f.recordOutcome(ctx, p, nil)
}

func (f *Fetcher) log(p pending, r result) {
	f.Log.Warn("the sender's API did not give the content of an arrival", slog.String("intakeId", p.intakeID),
		slog.String("arrivalId", p.arrivalID), slog.String("reason", r.wrong), slog.Int("attempt", p.attempts+1))
}

// record saves the time of the next attempt, and why this one failed. The reason is empty if the attempt was not made.
func (f *Fetcher) record(ctx context.Context, p pending, wrong string, attempts int, wait time.Duration) {
	batch := &pgx.Batch{}
	batch.Queue(`INSERT INTO delivery.fetch (arrival_id, attempts, due_at) VALUES ($1, $2, now() + $3)
	                 ON CONFLICT (arrival_id) DO UPDATE
	                 SET attempts = excluded.attempts, due_at = excluded.due_at`, p.arrivalID, attempts, wait)
	if wrong != "" {
		queueFailure(batch, p, wrong)
	}
	f.send(ctx, p, batch)
}

// queueFailure queues the statement that sets the failure of an intake.
func queueFailure(to *pgx.Batch, p pending, wrong string) {
	to.Queue(`INSERT INTO delivery.fetch_failure (intake_id, error, failed_at) VALUES ($1, $2, now())
	              ON CONFLICT (intake_id) DO UPDATE
	              SET error = excluded.error, failed_at = excluded.failed_at`, p.intakeID, wrong)
}

func (f *Fetcher) send(ctx context.Context, p pending, batch *pgx.Batch) {
	if err := f.Pool.SendBatch(ctx, batch).Close(); err != nil && ctx.Err() == nil {
		f.Log.Warn("outcome of a fetch not saved", slog.String("arrivalId", p.arrivalID), slog.Any("error", err))
		_ = eventstore.Sleep(ctx, afterFailure) // the arrival is still in flight, so it is not retried at once
	}
}

// result is the outcome of an attempt.
type result struct {
	raw       event.ArrivalRaw
	wrong     string // why there is no content, for the intake's owner
	permanent bool   // a retry would have the same outcome
	missing   bool   // the API does not know the lead, which may be new
	failure   outbound.Failure
	err       error // the attempt could not be made
}

func permanent(wrong string) result { return result{wrong: wrong, permanent: true} }

// fetch reads the content of an arrival from the API.
func (f *Fetcher) fetch(ctx context.Context, a arrival.Arrival, s intake.State) result {
	announcement, err := a.Raw.Bytes()
	switch {
	case err != nil:
		return result{err: err}
	case !s.Live():
		return permanent("was not fetched: the intake is deleted")
	}
	secrets, err := f.Secrets(ctx, a.IntakeID, s.SecretID)
	switch {
	case errors.Is(err, intake.ErrNoSecrets):
		return result{wrong: "was not fetched: the secrets of the intake are lost"}
	case err != nil:
		return result{err: err}
	case secrets.AccessToken == "":
		return permanent("was not fetched: the intake has no accessToken")
	}
	var body []byte
	var r result
	for query, ask := (intake.LeadQuery{}), true; ask; {
		address, err := query.URL(s.Settings, secrets, announcement)
		if err != nil {
			return permanent(err.Error())
		}
		var problem intake.GraphError
		if body, problem, r = f.get(ctx, address); body != nil {
			break
		}
		if query, ask = query.After(problem); ask {
			f.Log.Warn("the token of an intake may not read all of a lead, asking for less",
				slog.String("intakeId", a.IntakeID), slog.Int("code", problem.Code),
				slog.Bool("onlyAnswers", query.OnlyAnswers), slog.Bool("withoutProof", query.WithoutProof))
		}
	}
	if body == nil {
		return r
	}
	merged, err := intake.Fetched(announcement, body)
	if err != nil {
		return result{wrong: "was not fetched: the answer " + err.Error()}
	}
	r.raw = event.ArrivalRaw{
		ContentType: "application/json", Headers: a.Raw.Headers, Query: a.Raw.Query,
	}.WithBody(merged)
	return r
}

// get makes the request. The body is nil if the response has none to use. The result contains nothing of the address,
// which has the access token.
func (f *Fetcher) get(ctx context.Context, address string) ([]byte, intake.GraphError, result) {
	none := intake.GraphError{}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, none, permanent("was not fetched: graphUrl is not a URL")
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", "leadlog")
	response, err := f.client.Do(request)
	if err != nil {
		return nil, none, failed(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, none, failed(err)
	case len(body) > maxAnswer:
		return nil, none, permanent("was not fetched: the answer is too large")
	case response.StatusCode == http.StatusOK:
		return body, none, result{}
	}
	problem := intake.GraphErrorOf(body)
	return nil, problem, refused(response, problem)
}

// refused returns the result of a response that is an error.
func refused(response *http.Response, problem intake.GraphError) result {
	status := response.StatusCode
	r := result{
		wrong:   fmt.Sprintf("was not fetched: the API answered %d", status),
		failure: outbound.Failure{Status: status, RetryAfter: response.Header.Get("Retry-After")},
		missing: problem.Missing() || problem.Code == 0 && status == http.StatusNotFound,
	}
	if problem.Code != 0 {
		r.wrong += fmt.Sprintf(", code %d", problem.Code)
	}
	passes := status == http.StatusTooManyRequests || status == http.StatusRequestTimeout || problem.Passes()
	r.permanent = status >= 400 && status < 500 && !passes && !r.missing
	return r
}

// failed returns the result of a request without a response.
func failed(err error) result {
	if outer, ok := errors.AsType[*url.Error](err); ok {
		err = outer.Err // without the URL
	}
	slow, ok := errors.AsType[net.Error](err)
	r := result{failure: outbound.Failure{TimedOut: ok && slow.Timeout()}}
	r.wrong = "was not fetched: " + outbound.PublicError(err).Error()
	if r.failure.TimedOut {
		r.wrong = "was not fetched: the API did not answer in time"
	}
	return r
}
