// Package courier sends the queued deliveries of webhooks, signed as in the Standard Webhooks specification. A
// [Courier] claims due rows of projection/delivery, sends them and records the outcomes. Failed attempts are retried on
// a schedule. Each endpoint has a window of concurrent attempts, so that none waits for another.
package courier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/command/worker/outbound"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/migration"
	"github.com/leadlog/leadlog/projection/delivery"
	"github.com/leadlog/leadlog/projection/schema"
	"github.com/leadlog/leadlog/projection/secret"
)

// row is a delivery that a courier has claimed.
type row struct {
	id, webhookID string
	delivery.Source
	retried     int64 // position of the latest retry request; 0: none
	attempts    int   // before this one
	url         string
	lane        *string           // nil: the endpoint has no ordering
	rateLimit   float64           // of the endpoint, in attempts per second; 0: none
	headerNames []string          // of the endpoint's custom headers
	headers     map[string]string // to send; their values are secret
	signing     secret.Signing
	dead        bool // the endpoint is deleted or disabled
	generation  int  // 0: live
	claimed     time.Time
}

// Options configure a Courier. Pool, Store, Secrets and Log are required.
type Options struct {
	Pool    *pgxpool.Pool
	Store   eventstore.Store
	Secrets secret.Endpoints
	Log     *slog.Logger
	Bodies  *delivery.Bodies // shared with the fan-out in this process; nil: none
	Watcher Watcher
	// Disable disables an endpoint; nil leaves it enabled.
	Disable func(context.Context, command.DisableWebhookEndpoint) error
	// Pace takes up to the wanted number of attempts from the rate limit of an endpoint, in attempts per second, with a
	// burst of one second's worth. It returns how many were granted. Nil: no limits.
	Pace func(ctx context.Context, webhookID string, rate float64, wanted int) (granted int, err error)
	// AllowPrivateTargets lets the courier connect to any address and port.
	AllowPrivateTargets bool
	Resolver            *net.Resolver   // of the names in URLs; nil: the system's resolver
	Schedule            []time.Duration // empty: outbound.DefaultSchedule
	Timeout             time.Duration   // of an attempt; 0: 15 s
	Grace               time.Duration   // for attempts in flight when Run ends; 0: 15 s
}

// Courier sends due deliveries. Any number of couriers may run on one database.
type Courier struct {
	Options
	config  *pgx.ConnConfig
	client  *http.Client
	windows *windows
	results chan result
	wake    chan struct{}

	counting sync.Mutex // guards the fields below
	backlog  Backlog
	counted  time.Time
}

// New prepares a courier. It connects in Run.
func New(o Options) *Courier {
	if len(o.Schedule) == 0 {
		o.Schedule = outbound.DefaultSchedule()
	}
	if o.Timeout == 0 {
		o.Timeout = 15 * time.Second
	}
	if o.Grace == 0 {
		o.Grace = 15 * time.Second
	}
	if o.Bodies == nil {
		o.Bodies = delivery.NewBodies()
	}
	config := o.Pool.Config().ConnConfig.Copy()
	schema.Bound(config)
	config.RuntimeParams["application_name"] = "leadlog courier"
	// The session writes leases only, which have no meaning after a crash of the server.
	config.RuntimeParams["synchronous_commit"] = "off"
	// The plan of a claim is cached, and mostly made while the queue is empty, when a sequential scan looks cheap.
	config.RuntimeParams["enable_seqscan"] = "off"
	config.RuntimeParams["enable_bitmapscan"] = "off"
	return &Courier{
		Options: o, config: config, client: outbound.NewClient(o.AllowPrivateTargets, o.Timeout, o.Resolver),
		windows: newWindows(), results: make(chan result, maxRows), wake: make(chan struct{}, 1),
	}
}

const (
	poll             = 250 * time.Millisecond // notifications may be lost
	notifiedInterval = 5 * time.Millisecond   // least time between claims after notifications, which any role can send
	minBackoff       = 200 * time.Millisecond // after an error of the database; it doubles
	maxBackoff       = 2 * time.Second
	saveBatch        = 512              // results saved together
	saveGrace        = 10 * time.Second // for saving results after the attempts have ended
)

// Run sends until the context is done. Then it claims no more rows and lets the attempts in flight finish. Attempts
// that take longer than Grace are aborted; they do not count, and another courier sends the delivery. There is no grace
// if the context ended because the log has diverged: the service is about to restart.
func (c *Courier) Run(ctx context.Context) {
	attempting, abort := context.WithCancel(context.WithoutCancel(ctx))
	defer abort()
	saving, stopSaving := context.WithCancel(context.WithoutCancel(ctx))
	defer stopSaving()
	defer context.AfterFunc(ctx, func() {
		grace := c.Grace
		if errors.Is(context.Cause(ctx), eventstore.ErrDiverged) {
			grace = 0
		}
		time.AfterFunc(grace, abort)
		time.AfterFunc(grace+saveGrace, stopSaving)
	})()
	var attempts, savers sync.WaitGroup
	savers.Go(func() { c.saveAll(saving) })
	var last *session // closed after all results are saved, because its leases end with it
	for backoff := (eventstore.Backoff{Shortest: minBackoff, Longest: maxBackoff}); ctx.Err() == nil; {
		s, err := c.open(ctx)
		if err == nil {
			backoff.Reset()
			err = c.serve(ctx, s, attempting, &attempts)
		}
		if ctx.Err() != nil {
			last = s
			break
		}
		if !backoff.Failing() { // logged once
			c.Log.Warn("courier: database session lost, reconnecting", slog.Any("error", err))
		}
		s.close(ctx)
		_ = backoff.Wait(ctx)
	}
	for _, r := range c.windows.stop() {
		c.results <- result{row: r, state: queued}
	}
	attempts.Wait()
	close(c.results)
	savers.Wait()
	last.close(ctx)
	c.client.CloseIdleConnections()
}

// serve runs one session. Attempts outlive it: their results are saved on the pool.
func (c *Courier) serve(ctx context.Context, s *session, attempting context.Context, attempts *sync.WaitGroup) error {
	var reclaimed time.Time
	for {
		if time.Since(reclaimed) > poll {
			if err := s.reclaim(ctx); err != nil {
				return err
			}
			reclaimed = time.Now()
		}
		for _, r := range c.windows.resume() {
			attempts.Go(func() { c.work(attempting, r, attempts) })
		}
		rows, err := c.claim(ctx, s)
		if err != nil {
			return err
		}
		for _, r := range c.windows.add(rows) {
			attempts.Go(func() { c.work(attempting, r, attempts) })
		}
		if len(rows) > 0 {
			continue
		}
		if err := c.idle(ctx, s); err != nil {
			return err
		}
	}
}

// idle waits for a notification, for a window with free slots, or for the next poll.
func (c *Courier) idle(ctx context.Context, s *session) error {
	waiting, cancel := context.WithTimeout(ctx, poll)
	defer cancel()
	stop := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-c.wake:
			cancel()
		case <-stop:
		}
	})
	var err error
	if !s.notified { // during the claim
		err = s.conn.PgConn().WaitForNotification(waiting)
	}
	close(stop)
	watching.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil && waiting.Err() != nil && !s.conn.IsClosed() {
		return nil
	}
	if err == nil {
		s.notified = false
		err = eventstore.Sleep(ctx, time.Until(s.claimed.Add(notifiedInterval)))
	}
	return err
}

func (c *Courier) wakeUp() {
	select {
	case c.wake <- struct{}{}:
	default: // a wake-up is pending
	}
}

// work makes an attempt at a row, and then at the rows that were waiting for its slot.
func (c *Courier) work(ctx context.Context, r row, attempts *sync.WaitGroup) {
	for {
		done := c.attempt(ctx, r)
		start, back, wanted := c.windows.done(done)
		if wanted {
			c.wakeUp()
		}
		c.results <- done
		for _, r := range back {
			c.results <- result{row: r, state: queued}
		}
		if len(start) == 0 {
			return
		}
		r = start[0]
		for _, other := range start[1:] {
			attempts.Go(func() { c.work(ctx, other, attempts) })
		}
	}
}

// session is a courier's connection. Its lease and the rows that it has claimed are released when it ends.
type session struct {
	conn     *pgx.Conn
	id       int32
	notified bool      // a notification was received and not handled yet
	claimed  time.Time // when the last claim started
}

// errNumberInUse means that another courier has this number, because the sequence has wrapped around.
var errNumberInUse = errors.New("another courier has this number")

// open takes the lease of a new number, and assigns to it the rows that this process still holds from an earlier
// session.
func (c *Courier) open(ctx context.Context) (*session, error) {
	s := &session{}
	config := c.config.Copy()
	// any role can notify, so the payload is ignored
	config.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) { s.notified = true }
	conn, err := migration.Connect(ctx, config)
	if err != nil {
		return nil, err
	}
	s.conn = conn
	err = conn.QueryRow(ctx, `SELECT nextval('delivery.courier')::integer`).Scan(&s.id)
	if err == nil {
		var inUse bool
		if inUse, err = schema.AcquireLease(ctx, conn, schema.CourierLease(s.id)); err == nil && !inUse {
			err = errNumberInUse
		}
	}
	if err == nil {
		_, err = conn.Exec(ctx, `LISTEN `+delivery.Channel)
	}
	if err == nil {
		// A row without a lease was returned to the queue, and no courier holds it.
		_, err = conn.Exec(ctx,
			`UPDATE delivery.queue SET lease = $1 WHERE delivery_id = ANY ($2) AND lease IS NOT NULL`,
			s.id, c.windows.unsavedIDs())
	}
	if err != nil {
		s.close(ctx)
		return nil, err
	}
	return s, nil
}

func (s *session) close(ctx context.Context) {
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = s.conn.Close(ctx) // the connection is closed in any case
}

// reclaim releases the rows of couriers whose sessions have ended. It updates the queue only if there are any.
func (s *session) reclaim(ctx context.Context) error {
	_, err := s.conn.Exec(ctx, `
		WITH gone AS (
		    DELETE FROM lease.session WHERE name LIKE $1 AND NOT lease.alive(pid, role, started, label)
		    RETURNING substr(name, length($1))::integer AS id
		)
		UPDATE delivery.queue SET lease = NULL WHERE lease IN (SELECT id FROM gone)`, schema.CourierLeases)
	return err
}

// claim claims due rows and reads the secrets of their endpoints. The secrets are read after the claim, so deliveries
// that are claimed after a completed rotation are signed with the new secret.
func (c *Courier) claim(ctx context.Context, s *session) ([]row, error) {
	rows, err := s.claim(ctx, c.windows)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	var ids []string
	for _, r := range rows {
		ids = append(ids, r.webhookID)
	}
	slices.Sort(ids)
	signing, err := c.Secrets.GetAll(ctx, slices.Compact(ids))
	if err != nil {
		return nil, err // the session ends and releases the rows
	}
	for i := range rows {
		rows[i].signing = signing[rows[i].webhookID]
	}
	return c.withinLimits(ctx, rows)
}

// withinLimits returns the claimed rows that the rate limits of their endpoints allow now. The others are returned to
// the queue. No new attempt is made at a row that this process still holds, so its limit does not matter.
func (c *Courier) withinLimits(ctx context.Context, rows []row) ([]row, error) {
	wanted := map[string]int{}
	var now, limited []row
	for _, r := range rows {
		if r.rateLimit > 0 && c.Pace != nil && !r.dead && !c.windows.isUnsaved(r.id) {
			wanted[r.webhookID]++
			limited = append(limited, r)
		} else {
			now = append(now, r)
		}
	}
	granted := map[string]int{}
	for _, r := range limited {
		n := wanted[r.webhookID]
		if _, asked := granted[r.webhookID]; !asked {
			var err error
			if granted[r.webhookID], err = c.Pace(ctx, r.webhookID, r.rateLimit, n); err != nil {
				return nil, err // the session ends and releases the rows
			}
			if granted[r.webhookID] < n {
				c.windows.pause(r.webhookID, r.rateLimit, refill(r.rateLimit))
			}
		}
		if granted[r.webhookID]--; granted[r.webhookID] >= 0 {
			now = append(now, r)
		} else {
			c.results <- result{row: r, state: queued, wait: refill(r.rateLimit)}
		}
	}
	return now, nil
}

// refill returns how long a limit takes to allow another claim of the size paced.
func refill(rate float64) time.Duration {
	return time.Duration(float64(paced(rate)) / rate * float64(time.Second))
}

// claim claims due rows, of each endpoint at most as many as its window has free, in log order, and live ones before
// those of a replay. It visits the endpoints by index, so that a long queue of one endpoint costs the others nothing,
// and updates rows by their ctid.
func (s *session) claim(ctx context.Context, ws *windows) ([]row, error) {
	s.claimed = time.Now()
	total, ids, free, other := ws.quota()
	if total == 0 {
		return nil, nil
	}
	asked := time.Now() // before the query, whose result may be that old
	rows, err := s.conn.Query(ctx, `
		WITH RECURSIVE waiting (id) AS (
		    (SELECT webhook_id FROM delivery.queue WHERE `+delivery.EndpointsKnown+` ORDER BY webhook_id LIMIT 1)
		    UNION ALL
		    SELECT (SELECT q.webhook_id FROM delivery.queue q WHERE q.webhook_id > w.id ORDER BY q.webhook_id LIMIT 1)
		      FROM waiting w WHERE w.id IS NOT NULL
		), due AS (
		    SELECT d.at
		      FROM waiting w
		      LEFT JOIN unnest($3::text[], $4::int[]) AS b (id, free) ON b.id = w.id
		     CROSS JOIN LATERAL (
		           SELECT at FROM (VALUES (false), (true)) AS r (replayed) CROSS JOIN LATERAL (
		                  SELECT ctid AS at FROM delivery.queue
		                   WHERE webhook_id = w.id AND (generation > 0) = r.replayed AND due_at <= now()
		                   AND lease IS NULL
		                   ORDER BY due_at, position LIMIT coalesce(b.free, $5) FOR UPDATE SKIP LOCKED) AS due
		            LIMIT coalesce(b.free, $5)) d
		     WHERE w.id IS NOT NULL
		     LIMIT $2
		)
		UPDATE delivery.queue q SET lease = $1
		  FROM delivery.endpoint e
		 WHERE q.ctid = ANY (ARRAY(SELECT at FROM due)) AND e.webhook_id = q.webhook_id
		RETURNING q.delivery_id, q.webhook_id, q.event_id, q.type, q.part, q.stream, q.revision, q.position, q.attempts,
		  q.retried, q.lane,
		          e.url, e.rate_limit, e.header_names, e.deleted OR e.disabled, q.generation`,
		s.id, total, ids, free, other)
	if err != nil {
		return nil, err
	}
	claimed, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (c row, err error) {
		c.claimed = asked
		err = r.Scan(&c.id, &c.webhookID, &c.EventID, &c.Type, &c.Part, &c.Stream, &c.Revision, &c.Position, &c.attempts,
			&c.retried, &c.lane,
			&c.url, &c.rateLimit, &c.headerNames, &c.dead, &c.generation)
		return c, err
	})
	slices.SortStableFunc(claimed, func(a, b row) int { return cmp.Compare(a.generation, b.generation) })
	return claimed, err
}

// attempt makes one attempt at a row and returns its result.
func (c *Courier) attempt(ctx context.Context, r row) result {
	if r.dead { // when it was due, even if the endpoint is enabled by now
		return result{row: r, state: cancelled}
	}
	if err := c.refresh(ctx, &r); err != nil {
		return c.notPrepared(ctx, r, err)
	}
	if r.dead {
		return result{row: r, state: cancelled}
	}
	body, err := c.Bodies.Body(ctx, c.Store, r.Source)
	if err == nil {
		err = r.signing.Err
	}
	if err == nil {
		r.headers, err = c.headersOf(ctx, r)
	}
	if err != nil || ctx.Err() != nil {
		return c.notPrepared(ctx, r, err)
	}
	sending, traceParent, traced := c.Watcher.begin(ctx, r, body.TraceParent)
	outcome := send(sending, c.client, r, body.JSON, traceParent, time.Now)
	traced(outcome.status, outcome.err)
	if ctx.Err() != nil && !outcome.success() { // aborted, which does not count as a failure
		return result{row: r, state: queued, outcome: outcome}
	}
	c.Watcher.attempted(outcome)
	return c.conclude(ctx, result{row: r, attempted: true, outcome: outcome})
}

// maxClaimAge is how long an attempt may use the endpoint's URL, state and secrets that were read with the claim. A
// replaced secret may sign for that long after it has expired.
const maxClaimAge = 500 * time.Millisecond

// refresh reads the endpoint of a claimed row again if the claim is too old: its owner may have disabled it, changed
// its URL or rotated its secret. It returns an error while the fan-out has not read the current state of endpoints.
func (c *Courier) refresh(ctx context.Context, r *row) error {
	if time.Since(r.claimed) < maxClaimAge {
		return nil
	}
	err := c.Pool.QueryRow(ctx,
		`SELECT url, header_names, deleted OR disabled FROM delivery.endpoint WHERE webhook_id = $1
			AND `+delivery.EndpointsKnown, r.webhookID).
		Scan(&r.url, &r.headerNames, &r.dead)
	if err != nil {
		return fmt.Errorf("read an endpoint: %w", err)
	}
	signing, err := c.Secrets.GetAll(ctx, []string{r.webhookID})
	r.signing = signing[r.webhookID]
	return err
}

// errSecretLost is shown to the owner of the endpoint. Deliveries are sent once the secret is rotated.
var errSecretLost = errors.New("not sent: the signing secret of this endpoint is lost; rotate it to get another")

// errHeadersLost is shown to the owner of the endpoint. Deliveries are sent once the headers are set.
var errHeadersLost = errors.New("not sent: the values of this endpoint's own headers are lost; set them again")

// errURLChanging means that the fan-out has not read an endpoint's change of its URL and headers yet.
var errURLChanging = errors.New("the URL of the endpoint is changing")

// headersOf returns the custom headers of an attempt. The error is errHeadersLost if they are not stored: a process was
// killed before it stored them, or an older backup was restored. Those of another URL are not sent: the error is
// errURLChanging while they are of the next one.
func (c *Courier) headersOf(ctx context.Context, r row) (map[string]string, error) {
	stored, names := r.signing.Headers, r.signing.Headers.Names()
	here := len(names) == 0 || stored.URL == r.url
	switch {
	case slices.Equal(r.headerNames, names) && here:
		return stored.Values, nil
	case len(r.headerNames) == 0 && !here:
		return nil, nil
	}
	state, _, err := eventstore.Load(ctx, c.Store, event.WebhookStream(r.webhookID), webhook.Evolve)
	switch {
	case err != nil:
		return nil, err
	case !slices.Equal(state.HeaderNames, names), len(names) > 0 && state.URL != stored.URL:
		return nil, errHeadersLost
	case !here:
		return nil, errURLChanging
	}
	return stored.Values, nil // the fan-out has not read the change of headers yet
}

// secretLost returns errSecretLost if an endpoint that is not deleted has no secret, as after the restore of an older
// backup.
func (c *Courier) secretLost(ctx context.Context, r row) error {
	state, _, err := eventstore.Load(ctx, c.Store, event.WebhookStream(r.webhookID), webhook.Evolve)
	if err == nil && state.Live() {
		err = errSecretLost
	}
	return err
}

// notPrepared returns the result of a row without a body or a secret to sign it with.
func (c *Courier) notPrepared(ctx context.Context, r row, err error) result {
	if errors.Is(err, secret.ErrNoSecret) {
		if err = c.secretLost(ctx, r); err == nil { // the endpoint is deleted; the fan-out has not read that yet
			return result{row: r, state: cancelled}
		}
	}
	switch {
	case errors.Is(err, delivery.ErrForgotten):
		return result{row: r, state: cancelled, forgotten: true}
	case errors.Is(err, errSecretLost), errors.Is(err, errHeadersLost):
		return c.scheduleRetry(result{row: r, attempted: true, outcome: outcome{at: time.Now(), err: err}})
	case errors.Is(err, delivery.ErrNotOnLog) && c.sameLog(ctx):
		// permanent: the fan-out has read the event from this log
		c.Log.Error("event of a delivery is not on the log", slog.String("deliveryId", r.id))
		return result{
			row: r, state: failed, recorded: true, outcome: outcome{at: time.Now(), err: delivery.ErrNotOnLog},
		}
	case ctx.Err() != nil: // the courier is stopping
		return result{row: r, state: queued}
	case errors.Is(err, errURLChanging):
		return result{row: r, state: queued, wait: c.Schedule[0]}
	}
	// This is not a failure of the endpoint, so it does not count as an attempt.
	c.Log.Error("delivery not prepared", slog.String("deliveryId", r.id), slog.Any("error", err))
	return result{row: r, state: queued, wait: c.Schedule[0]}
}

// conclude sets the state of a row after an attempt.
func (c *Courier) conclude(ctx context.Context, done result) result {
	r := done.row
	if done.outcome.success() {
		done.state = delivered
		return done
	}
	if done.outcome.status == http.StatusGone && !c.disableEndpoint(ctx, command.DisableWebhookEndpoint{
		WebhookID: r.webhookID, URL: r.url, Reason: webhook.Gone, SeenFrom: done.outcome.at,
	}) {
		done.state, done.wait = queued, c.Schedule[0] // the retry will get the same response
		return done
	}
	return c.scheduleRetry(done)
}

// scheduleRetry schedules the retry of a failed attempt. Without a retry left, or when the endpoint is gone, the
// delivery has failed.
func (c *Courier) scheduleRetry(done result) result {
	o := done.outcome
	failure := outbound.Failure{Status: o.status, RetryAfter: o.retryAfter, TimedOut: o.timedOut}
	wait, again := outbound.Next(c.Schedule, done.attempts+1, failure, time.Now(), rand.Float64())
	if done.state = failed; again && o.status != http.StatusGone {
		done.state, done.wait = queued, wait
	}
	return done
}

// sameLog reports whether this is the log that the fan-out reads, even if it has lost events. Another log may be
// configured by mistake.
func (c *Courier) sameLog(ctx context.Context) bool {
	epoch, err := c.Store.Epoch(ctx)
	if err != nil {
		return false
	}
	var same bool
	err = c.Pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM delivery.checkpoint WHERE projector = $1 AND epoch = $2)`,
		schema.FanOut, epoch).Scan(&same)
	return err == nil && same
}

// Backlog counts the queued deliveries of all processes.
type Backlog struct {
	Queued         int64         // deliveries, due or not
	OldestDue      time.Duration // how long the oldest due delivery has been due; 0 when none is
	Deferred       int64         // events that wait for the filters of their accounts
	OldestDeferred time.Duration // how long the oldest of them has waited; 0 when there is none
}

// backlogTTL is the cache TTL of a Backlog: counting a long queue is slow, and every scrape needs it.
const backlogTTL = 10 * time.Second

// Backlog returns the backlog as of at most ten seconds ago.
func (c *Courier) Backlog(ctx context.Context) (Backlog, error) {
	c.counting.Lock()
	defer c.counting.Unlock()
	if time.Since(c.counted) < backlogTTL {
		return c.backlog, nil
	}
	var b Backlog
	var due, deferred float64 // in seconds
	err := c.Pool.QueryRow(ctx, `
		WITH RECURSIVE waiting (id) AS (
		    (SELECT webhook_id FROM delivery.queue ORDER BY webhook_id LIMIT 1)
		    UNION ALL
		    SELECT (SELECT q.webhook_id FROM delivery.queue q WHERE q.webhook_id > w.id ORDER BY q.webhook_id LIMIT 1)
		      FROM waiting w WHERE w.id IS NOT NULL
		)
		SELECT (SELECT count(*) FROM delivery.queue),
		  coalesce(extract(epoch FROM now() - min(first.due_at)), 0)::float8,
		       (SELECT count(*) FROM delivery.deferred),
		       (SELECT coalesce(extract(epoch FROM now() - min(deferred_at)), 0)::float8 FROM delivery.deferred)
		  FROM waiting w CROSS JOIN (VALUES (false), (true)) AS r (replayed)
		 CROSS JOIN LATERAL (
		       SELECT due_at FROM delivery.queue
		        WHERE webhook_id = w.id AND (generation > 0) = r.replayed AND due_at <= now() AND lease IS NULL
		        ORDER BY due_at LIMIT 1) first`).
		Scan(&b.Queued, &due, &b.Deferred, &deferred)
	if err != nil {
		return b, schema.Unavailable(err)
	}
	b.OldestDue, b.OldestDeferred = time.Duration(due*float64(time.Second)),
		time.Duration(deferred*float64(time.Second))
	c.backlog, c.counted = b, time.Now()
	return b, nil
}

// InFlight returns the number of attempts that this process is making.
func (c *Courier) InFlight() int { return c.windows.attempting() }

// Watcher has functions that a courier calls for metrics and traces. They must not block.
type Watcher struct {
	Attempted func(took time.Duration, success bool)
	Finished  func(state string) // delivered, failed or cancelled, once saved
	// Begin starts the span of an attempt. It returns the span's context, the traceparent header, if any, and a
	// function that ends the span.
	Begin func(context.Context, Attempt) (_ context.Context, traceParent string, end func(status int, err error))
}

// Attempt describes an attempt for a trace.
type Attempt struct {
	Type, WebhookID, DeliveryID string
	Number                      int    // from 1
	TraceParent                 string // of the request that caused the event; may be empty
}

func (w Watcher) begin(
	ctx context.Context, r row, trace string,
) (_ context.Context, traceParent string, end func(status int, err error)) {
	if w.Begin == nil {
		return ctx, "", func(int, error) {}
	}
	return w.Begin(ctx, Attempt{r.Type, r.webhookID, r.id, r.attempts + 1, trace})
}

func (w Watcher) attempted(o outcome) {
	if w.Attempted != nil {
		w.Attempted(o.took, o.success())
	}
}

func (w Watcher) finished(results []result) {
	for _, r := range results {
		if w.Finished != nil && r.state != queued {
			w.Finished(r.state)
		}
	}
}
