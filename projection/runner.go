package projection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/projection/schema"
)

// Options configure a Runner. URL, Store and Projectors are required.
type Options struct {
	// URL is the address of the read models' database. A connection there must be a session of the server: a lease would not last in
	// a pooler in transaction mode.
	URL        string
	Store      eventstore.Store
	Projectors []Projector
	// Schema is where the tables are; empty means schema.Views.
	Schema string
	// Tail is shared by runners on one log; nil means one of its own.
	Tail *Tail
	// Leases is shared by what runs in a process, and is closed by the caller after Run; nil means one of its own.
	Leases *schema.Leases
	// Rest is the least time between two transactions of a projector that keeps up, so that events which come one by one share
	// a transaction; 0 means 20 ms. A view is behind by this time, and by up to five times as much under load.
	Rest time.Duration
	// Batch is the most events of a transaction; 0 means 1000.
	Batch int
	// Watch is called with every batch of events that was applied, and must return at once. It may be nil.
	Watch func(Applied)
	// Log gets failures and takeovers; nil means slog.Default().
	Log *slog.Logger
}

// Runner runs projectors independently of each other: one that fails does not delay the others.
type Runner struct {
	store   eventstore.Store
	config  *pgxpool.Config
	leases  *schema.Leases
	shared  bool // leases are closed by the caller
	workers []*worker
}

// maxSessions is how many sessions write views at a time, if there are not more processors.
const maxSessions = 4

// pace is how often a runner does what it does.
type pace struct {
	batch    int           // most events of a transaction
	rest     time.Duration // least time between the beginnings of two transactions, while it keeps up
	marks    time.Duration // least time between two transactions that only move a checkpoint
	takeover time.Duration // how often a standby tries to take the lease
	retry    time.Duration // first pause after a failure
	longest  time.Duration // longest pause after failures
	stall    time.Duration // how long a view may stay behind the log without moving
	stale    time.Duration // pause before a stale view is checked again: an operator who has replayed it waits for that
}

// New prepares a runner. It connects in Run.
func New(o Options) (*Runner, error) {
	if o.Schema == "" {
		o.Schema = schema.Views
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Tail == nil {
		o.Tail = NewTail(o.Store, o.Projectors...)
	}
	if o.Batch == 0 {
		o.Batch = 1000
	}
	if o.Rest == 0 {
		o.Rest = 20 * time.Millisecond
	}
	config, err := poolConfig(o.URL, o.Schema)
	if err != nil {
		return nil, err
	}
	schema.Bound(config.ConnConfig)
	config.ConnConfig.RuntimeParams["application_name"] = "leadlog projectors"
	config.MinConns, config.MaxConns = 0, int32(min(len(o.Projectors), max(maxSessions, runtime.GOMAXPROCS(0))))
	r := &Runner{store: o.Store, config: config, leases: o.Leases, shared: o.Leases != nil}
	if !r.shared {
		r.leases = schema.NewLeases(config.ConnConfig)
	}
	for _, p := range o.Projectors {
		r.workers = append(r.workers, &worker{
			projector: p, store: o.Store, tail: o.Tail, schema: o.Schema, leases: r.leases,
			log: o.Log.With(slog.String("projector", p.Name())), watch: o.Watch,
			pace:   pace{batch: o.Batch, rest: o.Rest, marks: 100 * time.Millisecond, takeover: time.Second, retry: 100 * time.Millisecond, longest: 30 * time.Second, stale: 3 * time.Second, stall: time.Minute},
			status: Status{Name: p.Name(), State: Standby},
		})
	}
	return r, nil
}

// poolConfig is the configuration of sessions that write the tables of a schema.
func poolConfig(url, tables string) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("database address: %w", err)
	}
	schema.Session(config.ConnConfig)
	config.ConnConfig.RuntimeParams["search_path"] = pgx.Identifier{tables}.Sanitize()
	// After a crash rows and checkpoint are a little older, together, and the log is read again from there.
	config.ConnConfig.RuntimeParams["synchronous_commit"] = "off"
	return config, nil
}

// Run keeps the views up to date until the context ends. It tries again after every error, which Status and Log report.
func (r *Runner) Run(ctx context.Context) {
	if !r.shared {
		defer r.leases.Close()
	}
	pool, err := pgxpool.NewWithConfig(ctx, r.config)
	if err != nil { // it does not connect yet
		panic(err)
	}
	defer pool.Close()
	var running sync.WaitGroup
	for _, w := range r.workers {
		running.Go(func() { w.run(ctx, pool) })
	}
	running.Wait()
}

// Status returns the status of each projector, in the order of Options. With an error the head of the log could not be read, and
// Lag is not set.
func (r *Runner) Status(ctx context.Context) ([]Status, error) {
	head, err := r.store.Head(ctx)
	all := make([]Status, len(r.workers))
	for i, w := range r.workers {
		all[i] = w.snapshot()
		if err != nil {
			continue
		}
		if head > all[i].Position {
			all[i].Lag = uint64(head - all[i].Position)
		}
		all[i].Stalled = w.stalled(all[i])
	}
	return all, err
}

// State is what a process does with a projector.
type State string

const (
	// Running: this process keeps the view up to date.
	Running State = "running"
	// Standby: another process keeps it up to date, or this one is about to.
	Standby State = "standby"
	// Failed: the last attempt failed, and another will follow.
	Failed State = "failed"
	// Stale: the view must not be written until the operator acts. Err has what to do.
	Stale State = "stale"
)

// Status is how a projector is doing.
type Status struct {
	Name     string
	State    State
	Position eventstore.Position // how far the view has come, as last seen by this process
	Lag      uint64              // positions from there to the head of the log
	Err      error               // why it is failed or stale
	Failures uint64              // since the process began
	Stalled  bool                // the view has been behind without progress for a minute or more, by successive calls of Status
}

// Applied is a batch of events whose rows and checkpoint have been written. Events is valid only during the call.
type Applied struct {
	Projector    string
	Events       []Event
	Began, Ended time.Time
}

// worker runs one projector.
type worker struct {
	projector Projector
	store     eventstore.Store
	tail      *Tail
	schema    string
	leases    *schema.Leases
	log       *slog.Logger
	watch     func(Applied) // may be nil
	pace      pace

	// limit is how many events the next transaction has. It falls to one after a failure and doubles with every success, so that
	// all events before the one that fails are applied, and the error names that one.
	limit int
	pause time.Duration // after the next failure

	mu       sync.Mutex
	status   Status
	behindAt eventstore.Position // where the view was when the status was read last,
	behind   time.Time           // and since when it is known to be there, behind the log; zero when it was not behind
}

// run calls serve, again and again, until the context ends.
func (w *worker) run(ctx context.Context, pool *pgxpool.Pool) {
	w.limit, w.pause = w.pace.batch, w.pace.retry
	for {
		err := w.serve(ctx, pool)
		if ctx.Err() != nil {
			return
		}
		if eventstore.Sleep(ctx, w.failed(err)) != nil {
			return
		}
	}
}

// failed records an error and returns how long to wait before the next attempt.
func (w *worker) failed(err error) time.Duration {
	if errors.Is(err, errOvertaken) {
		w.log.Info("projector restarts: its checkpoint was moved, as by a replay that replaces the view")
		w.update(func(s *Status) { s.State, s.Err = Standby, nil })
		return w.pace.retry
	}
	err = schema.Unavailable(err)
	w.limit = 1
	pause := w.pause/2 + rand.N(w.pause/2+1)
	w.pause = min(2*w.pause, w.pace.longest)
	state := Failed
	if stale(err) {
		state, pause = Stale, w.pace.stale
	}

	w.mu.Lock()
	again := w.status.State == state && w.status.Err != nil && w.status.Err.Error() == err.Error()
	w.status.State, w.status.Err = state, err
	w.status.Failures++
	w.mu.Unlock()

	level := slog.LevelError
	if again {
		level = slog.LevelDebug // logged once
	}
	w.log.Log(context.Background(), level, "projector stopped", slog.String("state", string(state)),
		slog.Any("error", err), slog.String("retryIn", pause.String()))
	return pause
}

// opened notes that this process has the lock. After a failure the state stays Failed while events wait to be applied: one of them
// may fail again.
func (w *worker) opened(position, head eventstore.Position) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status.Position = position
	if w.status.State == Failed && position < head {
		return
	}
	if w.status.State != Running {
		w.log.Info("projector runs here", slog.Uint64("position", uint64(position)))
	}
	w.status.State, w.status.Err = Running, nil
}

// applied notes a success: whatever failed before is over.
func (w *worker) applied(position eventstore.Position) {
	w.limit, w.pause = min(2*w.limit, w.pace.batch), w.pace.retry
	w.update(func(s *Status) { s.State, s.Position, s.Err = Running, position, nil })
}

func (w *worker) standby(position eventstore.Position) {
	w.update(func(s *Status) { s.State, s.Position, s.Err = Standby, position, nil })
}

func (w *worker) update(change func(*Status)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.status)
}

func (w *worker) snapshot() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status
}

// stalled reports whether a view with this status stays behind the log without moving, whichever process has its lease.
func (w *worker) stalled(s Status) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case s.Lag == 0:
		w.behind = time.Time{}
		return false
	case w.behind.IsZero() || s.Position != w.behindAt:
		w.behindAt, w.behind = s.Position, time.Now()
	}
	return time.Since(w.behind) >= w.pace.stall
}

// session is the time in which this process has the lease: it applies events until something fails. When the lease is lost, another
// process may apply events before this one notices. They still write one after the other: see checkpoint.advance.
type session struct {
	*worker
	pool        *pgxpool.Pool
	checkpoint  checkpoint
	chosen      func(Event) bool // nil: all are
	maintenance Maintenance      // nil: there is none
	maintainAt  time.Time        // not before
	events      []Event          // of the latest batch; the next one uses the same memory
}

// serve waits for the lease and runs one session to its end, which is always an error.
func (w *worker) serve(ctx context.Context, pool *pgxpool.Pool) error {
	lease, err := w.lease(ctx, pool)
	if err != nil {
		return err
	}
	defer lease.Release()
	s := session{worker: w, pool: pool}
	err = s.run(lease.Context)
	if lease.Context.Err() != nil {
		pool.Reset() // the server may have restarted, and ended all sessions
	}
	return cmp.Or(context.Cause(lease.Context), err)
}

// lease waits for the projector's lease. Meanwhile it reports how far the process that has it has come.
func (w *worker) lease(ctx context.Context, pool *pgxpool.Pool) (*schema.Lease, error) {
	for {
		lease, err := w.leases.Take(ctx, schema.ProjectorLease(w.schema, w.projector.Name()))
		if err != nil || lease != nil {
			return lease, err
		}
		seen, _, err := findCheckpoint(ctx, pool, w.projector.Name())
		if err != nil {
			return nil, err
		}
		w.standby(seen.position)
		if err := eventstore.Sleep(ctx, w.pace.takeover); err != nil {
			return nil, err
		}
	}
}

// run applies events from the checkpoint on.
func (s *session) run(ctx context.Context) (err error) {
	if p, maintains := s.projector.(Maintainer); maintains {
		s.maintenance = p.Maintenance()
	}
	var head eventstore.Position
	if s.checkpoint, head, err = openCheckpoint(ctx, s.pool, s.projector, s.store); err != nil {
		return err
	}
	if p, chooses := s.projector.(Chooser); chooses {
		if s.chosen, err = p.Choose(ctx, s.pool); err != nil {
			return err
		}
	}
	s.opened(s.checkpoint.position, head)
	return s.follow(ctx)
}

// follow applies the stored events, then new ones as they are appended.
func (s *session) follow(ctx context.Context) error {
	f, err := s.tail.follow(ctx, s.checkpoint.position, s.projector.Filter())
	if err != nil {
		return err
	}
	defer f.close()
	var written time.Time
	for behind := false; ; {
		if err := s.maintain(ctx, f, behind); err != nil {
			return err
		}
		batch, err := s.collect(ctx, f, written.Add(s.pace.marks))
		if err != nil {
			return err
		}
		if batch.position <= s.checkpoint.position {
			continue
		}
		began := time.Now()
		if s.checkpoint, err = s.checkpoint.apply(ctx, s.pool, batch, prepare(s.projector, batch.events)); err != nil {
			return err
		}
		written = time.Now()
		if s.watch != nil && len(batch.events) > 0 {
			s.watch(Applied{s.projector.Name(), batch.events, began, written})
		}
		s.applied(batch.position)
		if s.maintenance != nil {
			s.maintenance.Note(batch.events)
		}
		if behind = len(batch.events) >= s.limit; !behind {
			if err := eventstore.Sleep(ctx, time.Until(began.Add(crowded(s.pace.rest, len(batch.events))))); err != nil {
				return err
			}
		}
	}
}

// collect waits for events and returns those that the log has by then, at most limit. When only positions come, or events that are not
// chosen, it returns the latest position once the time quiet has passed. When nothing comes, it returns an empty batch in time for
// maintenance. A batch may be used until the next call.
func (s *session) collect(ctx context.Context, f *follower, quiet time.Time) (b batch, err error) {
	clear(s.events) // so that nothing is kept while nothing comes
	due, moved := s.wake(), false
	for {
		next, err := f.next(ctx, s.events[:0], s.limit, due)
		if err != nil || next.position == 0 {
			return b, err
		}
		if b = next; s.chosen != nil {
			b.events = slices.DeleteFunc(b.events, func(e Event) bool { return !s.chosen(e) })
		}
		s.events = b.events
		if len(b.events) > 0 {
			return b, nil
		}
		if !moved {
			due, moved = time.After(time.Until(quiet)), true
		}
	}
}

const maintenanceRetry = 30 * time.Second // after a failure

// maintain does maintenance step by step until an event comes. It does nothing while the view is behind.
func (s *session) maintain(ctx context.Context, f *follower, behind bool) error {
	if s.maintenance == nil || behind {
		return nil
	}
	for first := true; first || f.idle(); first = false {
		if time.Now().Before(s.maintainAt) || !s.maintenance.Due() {
			return nil
		}
		err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			if err := s.checkpoint.hold(ctx, tx); err != nil {
				return err
			}
			return s.maintenance.Run(ctx, tx)
		})
		if err = schema.Unavailable(err); ctx.Err() != nil || errors.Is(err, eventstore.ErrUnavailable) || errors.Is(err, errOvertaken) {
			return err
		}
		if err != nil {
			s.maintainAt = time.Now().Add(maintenanceRetry)
			s.log.Warn("search index build failed", slog.Any("error", err), slog.String("retryIn", maintenanceRetry.String()))
		}
	}
	return nil
}

// wake returns a channel that fires when maintenance is due although no event has come; nil when none is pending.
func (s *session) wake() <-chan time.Time {
	if s.maintenance == nil || !s.maintenance.Pending() {
		return nil
	}
	return time.After(max(MaintenancePause, time.Until(s.maintainAt)))
}

// crowded returns how long to rest after so many events: up to five times rest. A read or a transaction costs about the same
// however many events it has, so a few events are handled soon, and many are handled together, later.
func crowded(rest time.Duration, events int) time.Duration {
	const crowd = 20
	return rest * time.Duration(min(1+events/crowd, 5))
}

// Delay returns how long the oldest event that a projector has not yet applied has been on the log, as of a Status. If the tail
// does not reach back that far, it reads the log, so it should not be called often.
func (r *Runner) Delay(ctx context.Context, s Status) (time.Duration, error) {
	for _, w := range r.workers {
		if s.Lag == 0 || w.projector.Name() != s.Name {
			continue
		}
		until, filter := s.Position+eventstore.Position(s.Lag), w.projector.Filter()
		next, reaches := w.tail.firstBetween(s.Position, until, filter)
		var err error
		if !reaches {
			next, err = firstBetween(ctx, r.store, s.Position, until, filter)
		}
		if err != nil || next == nil {
			return 0, err
		}
		return max(0, time.Since(next.At)), nil
	}
	return 0, nil
}

// firstBetween returns the first event after a position, up to another, that a filter selects; nil when there is none.
func firstBetween(ctx context.Context, store eventstore.Store, after, until eventstore.Position, filter eventstore.Filter) (*eventstore.Recorded, error) {
	for page, err := range eventstore.ReadTo(ctx, store, after, until, filter) {
		if err != nil {
			return nil, err
		}
		if len(page.Events) > 0 {
			return &page.Events[0], nil
		}
	}
	return nil, nil
}
