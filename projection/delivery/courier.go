package delivery

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leadlog/leadlog/eventstore"
)

// row is a delivery that a courier has in hand.
type row struct {
	id, webhookID, kind, stream string
	revision, position          int64
	attempts                    int // made before
	url                         string
	dead                        bool // its endpoint is deleted
}

// CourierOptions are what a Courier is made of. Pool, Store, Secrets and Log are required.
type CourierOptions struct {
	Pool    *pgxpool.Pool
	Store   eventstore.Store
	Secrets *Secrets
	Log     *slog.Logger
	// AllowPrivateTargets lets it connect to any address and port.
	AllowPrivateTargets bool
	Schedule            []time.Duration // empty: DefaultSchedule
	Timeout             time.Duration   // of an attempt; 0: 15 s
}

// Courier sends what is due. Any number of them may work on one database.
type Courier struct {
	pool     *pgxpool.Pool
	config   *pgx.ConnConfig
	store    eventstore.Store
	secrets  *Secrets
	log      *slog.Logger
	client   *http.Client
	schedule []time.Duration
	lanes    *lanes
	results  chan result
	wake     chan struct{}
}

// NewCourier prepares a courier. It connects in Run.
func NewCourier(o CourierOptions) *Courier {
	if len(o.Schedule) == 0 {
		o.Schedule = DefaultSchedule()
	}
	if o.Timeout == 0 {
		o.Timeout = 15 * time.Second
	}
	config := o.Pool.Config().ConnConfig.Copy()
	config.RuntimeParams["application_name"] = "leadlog courier"
	return &Courier{
		pool: o.Pool, config: config, store: o.Store, secrets: o.Secrets, log: o.Log,
		client: newClient(o.AllowPrivateTargets, o.Timeout), schedule: o.Schedule,
		lanes:   &lanes{byID: map[string]*lane{}, rows: map[string]struct{}{}},
		results: make(chan result, mostInFlight), wake: make(chan struct{}, 1),
	}
}

const (
	poll      = 250 * time.Millisecond // behind the notifications, which may be lost
	pause     = 200 * time.Millisecond // after the database failed
	settleMax = mostInFlight
)

// Run sends until the context ends. Then it takes up nothing more and lets the attempts under way finish, which their
// timeout bounds.
func (c *Courier) Run(ctx context.Context) {
	working := context.WithoutCancel(ctx)
	var attempts, settling sync.WaitGroup
	settling.Go(func() { c.settleAll(ctx) })
	for ctx.Err() == nil {
		if err := c.serve(ctx, working, &attempts); err != nil && ctx.Err() == nil {
			c.log.Warn("courier lost its session", slog.Any("error", err))
			sleep(ctx, pause)
		}
	}
	attempts.Wait()
	close(c.results)
	settling.Wait()
	c.client.CloseIdleConnections()
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// serve runs one session to its end. Attempts outlive it: what they came to is written down by the pool.
func (c *Courier) serve(ctx, working context.Context, attempts *sync.WaitGroup) error {
	s, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer s.close(ctx)
	var reclaimed time.Time
	for {
		if time.Since(reclaimed) > poll {
			if err := s.reclaim(ctx); err != nil {
				return err
			}
			reclaimed = time.Now()
		}
		total, busy, free := c.lanes.free()
		var rows []row
		if total > 0 {
			if rows, err = s.claim(ctx, total, busy, free); err != nil {
				return err
			}
		}
		for _, r := range rows {
			c.lanes.take(r)
			attempts.Go(func() { c.results <- c.attempt(working, r) })
		}
		if len(rows) > 0 {
			continue
		}
		if err := c.idle(ctx, s); err != nil {
			return err
		}
	}
}

// idle waits for a notification, for a slot that became free, or for the poll.
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
	_, err := s.conn.WaitForNotification(waiting)
	close(stop)
	watching.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil && waiting.Err() != nil && !s.conn.IsClosed() {
		return nil
	}
	return err
}

// attempt carries a row out and says what came of it.
func (c *Courier) attempt(ctx context.Context, r row) result {
	done := result{row: r, state: cancelled}
	if r.dead {
		return done
	}
	body, err := render(ctx, c.store, r)
	var secret string
	if err == nil {
		// The latest moment: a secret is destroyed when its endpoint is deleted, and then nothing more is sent.
		secret, err = c.secrets.Get(ctx, r.webhookID)
	}
	if errors.Is(err, ErrNoSecret) {
		return done
	}
	if err != nil { // of ours, not the endpoint's: it costs no attempt
		c.log.Error("delivery not made ready", slog.String("deliveryId", r.id), slog.Any("error", err))
		done.state, done.wait = queued, c.schedule[0]
		return done
	}
	done.attempted, done.outcome = true, send(ctx, c.client, r, body, []string{secret}, time.Now)
	c.lanes.attempted(r.webhookID, done.outcome.success())
	if done.outcome.success() {
		done.state = delivered
		return done
	}
	wait, again := next(c.schedule, r.attempts+1, done.outcome, time.Now())
	if done.state, done.wait = failed, wait; again {
		done.state = queued
	}
	return done
}

// settleTries is how often results are tried to be written down once the courier is told to end.
const settleTries = 10

// settleAll writes down results as they come, those together that are there, and does not rest before they are: a row
// whose result is lost is sent again.
func (c *Courier) settleAll(ctx context.Context) {
	working := context.WithoutCancel(ctx)
	for first := range c.results {
		batch := []result{first}
		for len(batch) < settleMax && len(c.results) > 0 {
			batch = append(batch, <-c.results)
		}
		for tries := 0; ; {
			err := c.settle(working, batch)
			if err == nil {
				break
			}
			c.log.Warn("results of deliveries not written down", slog.Int("results", len(batch)), slog.Any("error", err))
			if ctx.Err() != nil {
				if tries++; tries >= settleTries {
					break
				}
			}
			sleep(working, pause)
		}
		for _, r := range batch {
			c.lanes.leave(r.row)
		}
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
}
