package projection

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/projection/schema"
)

// Options configure a Runner. URL, Store and Projectors are required.
type Options struct {
	// URL is the address of the read models' database. Each projector has a connection of its own there, which must
	// be a session of the server: its lease would not last in a pooler in transaction mode.
	URL        string
	Store      eventstore.Store
	Projectors []Projector
	// Schema is where the tables are; empty means schema.Views.
	Schema string
	// Tail is shared by runners on one log; nil means one of its own.
	Tail *Tail
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
	workers []*worker
}

// pace is how often a runner does what it does.
type pace struct {
	batch    int           // most events of a transaction
	rest     time.Duration // least time between the beginnings of two transactions, while it keeps up
	marks    time.Duration // least time between two transactions that only move a checkpoint
	takeover time.Duration // how often a standby asks for the lease
	retry    time.Duration // first pause after a failure
	longest  time.Duration // longest pause after failures
	stall    time.Duration // how long a view may stay behind the log without moving
	stale    time.Duration // until it is looked again whether a stale view was made anew: whoever replays it waits for that
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
	config, err := sessionConfig(o.URL, o.Schema)
	if err != nil {
		return nil, err
	}
	r := &Runner{store: o.Store}
	for _, p := range o.Projectors {
		named := config.Copy()
		schema.Bound(named)
		named.RuntimeParams["application_name"] = "leadlog projector " + p.Name()
		r.workers = append(r.workers, &worker{
			projector: p, store: o.Store, tail: o.Tail, schema: o.Schema, config: named,
			log: o.Log.With(slog.String("projector", p.Name())), watch: o.Watch,
			pace:   pace{batch: o.Batch, rest: o.Rest, marks: 100 * time.Millisecond, takeover: time.Second, retry: 100 * time.Millisecond, longest: 30 * time.Second, stale: 3 * time.Second, stall: time.Minute},
			status: Status{Name: p.Name(), State: Standby},
		})
	}
	return r, nil
}

func sessionConfig(url, tables string) (*pgx.ConnConfig, error) {
	pool, err := pgxpool.ParseConfig(url) // knows the pool_ parameters, which the server does not
	if err != nil {
		return nil, fmt.Errorf("database address: %w", err)
	}
	config := pool.ConnConfig
	schema.Session(config)
	config.RuntimeParams["search_path"] = pgx.Identifier{tables}.Sanitize()
	// After a crash rows and checkpoint are a little older, together, and the log is read again from there.
	config.RuntimeParams["synchronous_commit"] = "off"
	return config, nil
}

// Run keeps the views up to date until the context ends. It tries again after every error, which Status and Log report.
func (r *Runner) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, w := range r.workers {
		running.Go(func() { w.run(ctx) })
	}
	running.Wait()
}

// Status returns the status of each projector, in the order of Options. An error says that the head of the log could not be read;
// everything but Lag is right then.
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
