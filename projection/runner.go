package projection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/migration"
	"github.com/leadlog/leadlog/projection/schema"
)

// Options configure a Runner. URL, Store and Projectors are required.
type Options struct {
	// URL is the address of the views' database. Its connections must be sessions of the server: a pooler in
	// transaction mode would not keep a lease.
	URL        string
	Store      eventstore.Store
	Projectors []Projector
	// Schema is the schema of the tables; empty means schema.Views.
	Schema string
	// Tail is shared by the followers of the log; nil means a tail of its own.
	Tail *eventstore.Tail
	// Leases is shared within a process and closed by the caller after Run; nil means leases of its own.
	Leases *schema.Leases
	// MinInterval is the least time between two transactions of a projector that keeps up, so that single appends share
	// a transaction. A view lags by this time, and by up to five times as much under load. 0 means 20 ms.
	MinInterval time.Duration
	// Batch is the maximum number of events in a transaction; 0 means 1000.
	Batch int
	// Watch is called with every applied batch of events, and must not block. It may be nil.
	Watch func(Applied)
	// Log receives failures and takeovers; nil means slog.Default().
	Log *slog.Logger
}

// Runner keeps the views of projectors up to date. Those that keep up with the log share a transaction for each page of
// it. A failing projector, or one that is behind, has its own, so that it does not delay the others.
type Runner struct {
	store   eventstore.Store
	tail    *eventstore.Tail
	config  *pgxpool.Config // of the sessions that write views
	leases  *schema.Leases
	shared  bool // leases are closed by the caller
	pace    *pace
	workers []*worker
}

// maxSessions is the maximum number of sessions that write views, unless there are more processors.
const maxSessions = 4

// pace holds the batch size and the intervals of a runner.
type pace struct {
	batch       int           // maximum number of events in a transaction
	minInterval time.Duration // least time between the starts of two transactions, while the view keeps up
	checkpoints time.Duration // least time between two transactions that only move a checkpoint
	takeover    time.Duration // how often a standby tries to take the lease
	retry       time.Duration // first pause after a failure
	maxRetry    time.Duration // longest pause after failures
	stall       time.Duration // how long a view may lag without progress
	// pause before a stale view is checked again, short because an operator waits for it after a replay
	stale time.Duration
	bulk  int // events after which the tables are analyzed
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
		o.Tail = eventstore.NewTail(o.Store, Union(o.Projectors))
	}
	if o.Batch == 0 {
		o.Batch = 1000
	}
	if o.MinInterval == 0 {
		o.MinInterval = 20 * time.Millisecond
	}
	config, err := poolConfig(o.URL, o.Schema)
	if err != nil {
		return nil, err
	}
	config.ConnConfig.RuntimeParams["application_name"] = "leadlog projectors"
	// its statements take long
	analyzing := &analyzer{config: config.ConnConfig.Copy(), schema: o.Schema, sem: make(chan struct{}, 1)}
	schema.Bound(config.ConnConfig)
	config.MinConns, config.MaxConns = 0, int32(min(len(o.Projectors), max(maxSessions, runtime.GOMAXPROCS(0))))
	r := &Runner{
		store: o.Store, tail: o.Tail, config: config, leases: o.Leases, shared: o.Leases != nil,
		pace: &pace{
			batch: o.Batch, minInterval: o.MinInterval, checkpoints: 100 * time.Millisecond, takeover: time.Second,
			retry: 100 * time.Millisecond, maxRetry: 30 * time.Second, stall: time.Minute, stale: 3 * time.Second,
			bulk: 10_000,
		},
	}
	if !r.shared {
		r.leases = schema.NewLeases(config.ConnConfig)
	}
	for _, p := range o.Projectors {
		r.workers = append(r.workers, &worker{
			projector: p, store: o.Store, tail: o.Tail, schema: o.Schema, leases: r.leases, analyzer: analyzing,
			log: o.Log.With(slog.String("projector", p.Name())), watch: o.Watch, pace: r.pace,
			status: Status{Name: p.Name(), State: Standby, Unread: true},
		})
	}
	return r, nil
}

// poolConfig returns the configuration of sessions that write the tables of a schema.
func poolConfig(url, tables string) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("database address: %w", err)
	}
	schema.Session(config.ConnConfig)
	config.ConnConfig.RuntimeParams["search_path"] = pgx.Identifier{tables}.Sanitize()
	// A crash loses the last transactions, rows and checkpoint together, and the log is read again from there.
	config.ConnConfig.RuntimeParams["synchronous_commit"] = "off"
	return config, nil
}

// Run keeps the views up to date until the context is done. It retries after every error, which Status and Log report.
func (r *Runner) Run(ctx context.Context) {
	if !r.shared {
		defer r.leases.Close()
	}
	pool, err := migration.NewPool(ctx, r.config)
	if err != nil { // it does not connect yet
		panic(err)
	}
	defer pool.Close()
	var running sync.WaitGroup
	together := newGroup(ctx, r.tail, pool, r.pace)
	together.shared = true
	for _, w := range r.workers {
		if len(r.workers) > 1 {
			w.together = together
		}
		running.Go(func() { w.run(ctx, pool) })
	}
	running.Wait()
}

// Status returns the status of each projector, in the order of Options. If it returns an error, the head of the log
// could not be read, and Lag is not set.
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

// State is the state of a projector in this process.
type State string

const (
	// Running: this process keeps the view up to date.
	Running State = "running"
	// Standby: another process keeps the view up to date, or this one is about to.
	Standby State = "standby"
	// Failed: the last attempt failed and will be retried.
	Failed State = "failed"
	// Stale: the view must not be written until the operator acts. Err names the action.
	Stale State = "stale"
)

// Status is the status of a projector.
type Status struct {
	Name     string
	State    State
	Position eventstore.Position // of the view, as last read by this process
	Unread   bool                // this process has not read the position yet, which is 0
	Lag      uint64              // positions from there to the head of the log
	Err      error               // why it is failed or stale
	Failures uint64              // since the process began
	// the view has lagged without progress for a minute or more, by successive calls of Status
	Stalled bool
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
	tail      *eventstore.Tail
	schema    string
	leases    *schema.Leases
	analyzer  *analyzer
	log       *slog.Logger
	watch     func(Applied) // may be nil
	pace      *pace
	together  *group // of the views that keep up; nil: this is the only one

	// limit is the maximum number of events in the next transaction. It falls to one after a failure and doubles with
	// every success, so that all events before a failing one are applied, and the error names that event.
	limit   int
	backoff eventstore.Backoff

	mu       sync.Mutex
	status   Status
	live     bool                // the view keeps up with the log
	oldest   time.Time           // time of the first event that is being applied; zero: none is
	lagAt    eventstore.Position // position of the view when the status was read last
	lagSince time.Time           // since when the view has lagged at that position; zero when it does not lag
}

// run calls serve in a loop until the context is done.
func (w *worker) run(ctx context.Context, pool *pgxpool.Pool) {
	w.limit, w.backoff = w.pace.batch, eventstore.Backoff{Shortest: w.pace.retry, Longest: w.pace.maxRetry}
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
	err = lostPosition(schema.Unavailable(err))
	w.limit = 1
	pause := w.backoff.Next()
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

// opened records that this process has the lease. After a failure the state stays Failed while there are events to
// apply: one of them may fail again.
func (w *worker) opened(position, head eventstore.Position) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status.Position, w.status.Unread, w.live, w.oldest = position, false, false, time.Time{}
	if w.status.State == Failed && position < head {
		return
	}
	if w.status.State != Running {
		w.log.Info("projector runs here", slog.Uint64("position", uint64(position)))
	}
	w.status.State, w.status.Err = Running, nil
}

// applying records the batch that is being applied, and whether the view keeps up.
func (w *worker) applying(b batch, live bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.live = live; len(b.events) > 0 {
		w.oldest = b.events[0].At
	}
}

// delay returns the age of the oldest event that is being applied. Known is false if the view does not keep up.
func (w *worker) delay() (age time.Duration, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.oldest.IsZero() {
		return 0, w.live
	}
	return max(0, time.Since(w.oldest)), w.live
}

// applied records a success and resets the backoff.
func (w *worker) applied(position eventstore.Position) {
	w.limit = min(2*w.limit, w.pace.batch)
	w.backoff.Reset()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.oldest = time.Time{}
	w.status.State, w.status.Position, w.status.Err = Running, position, nil
}

func (w *worker) standby(position eventstore.Position) {
	w.update(func(s *Status) { s.State, s.Position, s.Unread, s.Err = Standby, position, false, nil })
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

// stalled reports whether a view with this status has lagged without progress, whichever process has its lease.
func (w *worker) stalled(s Status) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case s.Lag == 0:
		w.lagSince = time.Time{}
		return false
	case w.lagSince.IsZero() || s.Position != w.lagAt:
		w.lagAt, w.lagSince = s.Position, time.Now()
	}
	return time.Since(w.lagSince) >= w.pace.stall
}

// session is the time in which this process has the lease: it applies events until an error. When the lease is lost,
// another process may apply events before this one notices. The checkpoint still orders their transactions: see
// advanceSQL.
type session struct {
	*worker
	ctx         context.Context // of the lease
	pool        *pgxpool.Pool
	checkpoint  checkpoint
	processed   eventstore.Position // up to here, events are applied or not for this view
	moved       time.Time           // when the checkpoint was written last
	filter      eventstore.Filter
	chosen      func(Event) bool // whether the projector needs an event; nil: it needs all
	maintenance Maintenance      // nil: the projector has none
	maintainAt  time.Time        // maintenance is due no earlier
	written     int              // events since the tables were last analyzed
	derived     int              // those after which the derived tables are to be analyzed, after maintenance
	analyzing   sync.WaitGroup
	left        chan error // receives why the session has left its group
}

// serve waits for the lease and runs one session, which always ends with an error.
func (w *worker) serve(ctx context.Context, pool *pgxpool.Pool) error {
	lease, err := w.lease(ctx, pool)
	if err != nil {
		return err
	}
	defer lease.Release()
	s := session{worker: w, pool: pool, filter: w.projector.Filter()}
	err = s.run(lease.Context)
	if lease.Context.Err() != nil {
		pool.Reset() // the server may have restarted, which ends all sessions
	}
	return cmp.Or(context.Cause(lease.Context), err)
}

// lease waits for the projector's lease. While another process has it, lease records that process's position.
func (w *worker) lease(ctx context.Context, pool *pgxpool.Pool) (*schema.Lease, error) {
	for {
		lease, err := w.leases.Acquire(ctx, schema.ProjectorLease(w.schema, w.projector.Name()))
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

// run applies events after the checkpoint.
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
	s.processed = s.checkpoint.position
	s.opened(s.checkpoint.position, head)
	ctx, cancel := context.WithCancel(ctx)
	defer s.analyzing.Wait()
	defer cancel()
	for s.ctx = ctx; ; {
		if err := newGroup(ctx, s.tail, s.pool, s.pace).follow(s); !errors.Is(err, errKeepsUp) {
			return err
		}
		if err := s.together.follow(s); !errors.Is(err, errBehind) {
			return err
		}
	}
}

const maintenanceRetry = 30 * time.Second // after a failure

// maintain runs a step of maintenance. Done is false if none is due.
func (s *session) maintain(ctx context.Context) (done bool, err error) {
	if s.maintenance == nil || time.Now().Before(s.maintainAt) || !s.maintenance.Due() {
		return false, nil
	}
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if err := s.checkpoint.lock(ctx, tx); err != nil {
			return err
		}
		return s.maintenance.Run(ctx, tx)
	})
	if err = schema.Unavailable(err); ctx.Err() != nil || errors.Is(err, eventstore.ErrUnavailable) ||
		errors.Is(err, errOvertaken) {
		return true, err
	}
	if err != nil {
		s.maintainAt = time.Now().Add(maintenanceRetry)
		s.log.Warn("derived tables not built", slog.Any("error", err), slog.String("retryIn", maintenanceRetry.String()))
	}
	return true, nil
}

// analyzer analyzes tables of views, those of one view at a time.
type analyzer struct {
	config *pgx.ConnConfig
	schema string
	sem    chan struct{} // of capacity 1
}

// analyze analyzes the view's tables in the background after many events, as an import writes them, once the view has
// caught up, and again once its derived tables have.
func (s *session) analyze(f *eventstore.Follower) {
	pending := s.maintenance != nil && s.maintenance.Pending()
	if !f.Idle() || s.written < s.pace.bulk && (s.derived == 0 || pending) {
		return
	}
	written := s.written + s.derived
	if s.written, s.derived = 0, 0; pending {
		s.derived = written
	}
	s.analyzing.Go(func() {
		err := s.analyzer.run(s.ctx, s.log, s.projector.Tables(), written)
		if err != nil && s.ctx.Err() == nil {
			s.log.Warn("tables not analyzed", slog.Any("error", err))
		}
	})
}

func (a *analyzer) run(ctx context.Context, log *slog.Logger, tables []string, written int) error {
	if err := send(ctx, struct{}{}, a.sem); err != nil {
		return err
	}
	defer func() { <-a.sem }()
	conn, err := migration.Connect(ctx, a.config)
	if err != nil {
		return err
	}
	defer closeConn(ctx, conn)
	return schema.Analyze(ctx, conn, log, a.schema, tables, int64(written))
}

// Delay returns how long the oldest event that a projector has not yet applied has been on the log, as of a Status, or
// longer if it selects few events. Unless the projector runs here and keeps up, it reads the log, so it should not be
// called often. The error is errUnread if the position is not known: a search of the whole log would delay the first
// answer that a process is ready.
func (r *Runner) Delay(ctx context.Context, s Status) (time.Duration, error) {
	for _, w := range r.workers {
		if s.Lag == 0 || w.projector.Name() != s.Name {
			continue
		}
		if s.Unread {
			return 0, errUnread
		}
		if delay, known := w.delay(); known && s.State == Running {
			return delay, nil
		}
		next, err := nextBetween(ctx, r.store, s.Position, s.Position+eventstore.Position(s.Lag), w.projector.Filter())
		if err != nil || next == nil {
			return 0, err
		}
		return max(0, time.Since(next.At)), nil
	}
	return 0, nil
}

var errUnread = errors.New("the position of the view has not been read yet")

// nextBetween returns the first event after a position, up to another, that a filter selects; nil when there is none.
// If a read of bounded time finds none, it returns the next event of any kind after what was read, which is no later.
func nextBetween(
	ctx context.Context, store eventstore.Store, after, until eventstore.Position, filter eventstore.Filter,
) (*eventstore.Recorded, error) {
	events, reached, err := eventstore.ReadRange(ctx, store, eventstore.Range{
		After: after, Until: until, Filter: filter, Limit: 1,
	})
	if err == nil && len(events) == 0 && reached < until {
		events, _, err = eventstore.ReadRange(ctx, store, eventstore.Range{After: reached, Until: until, Limit: 1})
	}
	if err != nil || len(events) == 0 {
		return nil, err
	}
	return &events[0], nil
}
