package delivery

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/projection/schema"
)

// row is a delivery that a courier has claimed.
type row struct {
	id, webhookID, kind, stream string
	eventID                     string // empty: not known
	revision, position          int64
	retried                     int64 // position of the last retry that was asked for; 0: none
	renderer                    int   // version of bodies when it was queued
	attempts                    int   // made before
	url                         string
	secret                      string // version of the endpoint's secrets; none: it has none
	dead                        bool   // its endpoint is deleted or disabled
	claimed                     time.Time
}

// CourierOptions are what a Courier is made of. Pool, Store, Secrets and Log are required.
type CourierOptions struct {
	Pool    *pgxpool.Pool
	Store   eventstore.Store
	Secrets *Secrets
	Log     *slog.Logger
	Bodies  *Bodies // of the fan-out in this process; nil: none
	Watcher Watcher
	// Disable disables an endpoint; nil leaves it enabled.
	Disable func(context.Context, Verdict) error
	// AllowPrivateTargets lets the courier connect to any address and port.
	AllowPrivateTargets bool
	Resolver            *net.Resolver   // of the names in URLs; nil: the system's
	Schedule            []time.Duration // empty: DefaultSchedule
	Timeout             time.Duration   // of an attempt; 0: 15 s
	Grace               time.Duration   // for attempts under way when the courier is told to end; 0: 15 s
}

// Courier sends what is due. Any number of them may work on one database.
type Courier struct {
	pool     *pgxpool.Pool
	config   *pgx.ConnConfig
	store    eventstore.Store
	secrets  *keyring
	bodies   *Bodies
	folds    *eventstore.Folds[subject]
	disable  func(context.Context, Verdict) error
	log      *slog.Logger
	client   *http.Client
	schedule []time.Duration
	grace    time.Duration
	watcher  Watcher
	lanes    *lanes
	results  chan result
	wake     chan struct{}

	counting sync.Mutex // guards what follows
	backlog  Backlog
	counted  time.Time
}

// NewCourier prepares a courier. It connects in Run.
func NewCourier(o CourierOptions) *Courier {
	if len(o.Schedule) == 0 {
		o.Schedule = DefaultSchedule()
	}
	if o.Timeout == 0 {
		o.Timeout = 15 * time.Second
	}
	if o.Grace == 0 {
		o.Grace = 15 * time.Second
	}
	config := o.Pool.Config().ConnConfig.Copy()
	schema.Bound(config)
	config.RuntimeParams["application_name"] = "leadlog courier"
	// Its session writes leases alone, which mean nothing once the server has gone down.
	config.RuntimeParams["synchronous_commit"] = "off"
	// The plan of a claim is made once, mostly while the queue is empty, and then reading the whole of it looks cheap.
	config.RuntimeParams["enable_seqscan"] = "off"
	config.RuntimeParams["enable_bitmapscan"] = "off"
	return &Courier{
		pool: o.Pool, config: config, store: o.Store, secrets: newKeyring(o.Secrets), bodies: o.Bodies, folds: eventstore.NewFolds(subjects),
		disable: o.Disable, log: o.Log,
		client: newClient(o.AllowPrivateTargets, o.Timeout, o.Resolver), schedule: o.Schedule, grace: o.Grace, watcher: o.Watcher,
		lanes: newLanes(), results: make(chan result, mostInHand), wake: make(chan struct{}, 1),
	}
}

const (
	poll         = 250 * time.Millisecond // behind the notifications, which may be lost
	notifiedRest = 5 * time.Millisecond   // between a claim and one after a notification: every role may notify
	pause        = 200 * time.Millisecond // after the database failed, and twice as long after each time more
	longestPause = 2 * time.Second
	settleMost   = 512             // results written down together
	settleGrace  = 3 * time.Second // for the database, after the attempts have ended
)

// Run sends until the context ends. Then it claims nothing more and lets the running attempts finish. Those that take longer than
// Grace are cut off; they do not count, and another courier sends the delivery. There is no grace when the context ended because
// the log has diverged: the service waits for this to start again.
func (c *Courier) Run(ctx context.Context) {
	attempting, breakOff := context.WithCancel(context.WithoutCancel(ctx))
	defer breakOff()
	settling, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	defer context.AfterFunc(ctx, func() {
		grace := c.grace
		if errors.Is(context.Cause(ctx), eventstore.ErrDiverged) {
			grace = 0
		}
		time.AfterFunc(grace, breakOff)
		time.AfterFunc(grace+settleGrace, giveUp)
	})()
	var attempts, settlers sync.WaitGroup
	settlers.Go(func() { c.settleAll(settling) })
	var last *session // kept, with the leases, until everything is written down
	for wait := pause; ctx.Err() == nil; wait = min(2*wait, longestPause) {
		s, err := c.open(ctx)
		if err == nil {
			wait = pause
			err = c.serve(ctx, s, attempting, &attempts)
		}
		if ctx.Err() != nil {
			last = s
			break
		}
		if wait == pause { // said once
			c.log.Warn("courier lost its session", slog.Any("error", err))
		}
		s.close(ctx)
		_ = eventstore.Sleep(ctx, wait)
	}
	for _, r := range c.lanes.stop() {
		c.results <- result{row: r, state: queued}
	}
	attempts.Wait()
	close(c.results)
	settlers.Wait()
	last.close(ctx)
	c.client.CloseIdleConnections()
}

// serve runs one session to its end. Attempts outlive it: what they came to is written down by the pool.
func (c *Courier) serve(ctx context.Context, s *session, attempting context.Context, attempts *sync.WaitGroup) error {
	var reclaimed time.Time
	for {
		if time.Since(reclaimed) > poll {
			if err := s.reclaim(ctx); err != nil {
				return err
			}
			reclaimed = time.Now()
		}
		for _, r := range c.lanes.resume() {
			attempts.Go(func() { c.work(attempting, r, attempts) })
		}
		rows, err := s.claim(ctx, c.lanes)
		if err != nil {
			return err
		}
		for _, r := range c.lanes.take(rows) {
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

// idle waits for a notification, for room in a lane, or for the poll.
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
		err = eventstore.Sleep(ctx, time.Until(s.claimed.Add(notifiedRest)))
	}
	return err
}

func (c *Courier) wakeUp() {
	select {
	case c.wake <- struct{}{}:
	default: // it is awake
	}
}

// work makes an attempt at a row, and then at those that waited for its slot.
func (c *Courier) work(ctx context.Context, r row, attempts *sync.WaitGroup) {
	for {
		done := c.attempt(ctx, r)
		start, back, wanted := c.lanes.done(done)
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
