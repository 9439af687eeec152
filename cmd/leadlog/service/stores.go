package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/worker/forget"
	"github.com/leadlog/leadlog/deploy/pgdev"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/esdb"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/delivery"
	"github.com/leadlog/leadlog/projection/schema"
	"github.com/leadlog/leadlog/projection/secret"
	"github.com/leadlog/leadlog/projection/view"
	"github.com/leadlog/leadlog/query/logtree"
)

// Stores are the log and the views' database, opened for a command that people run by hand.
type Stores struct {
	URL      string // of the views' database
	Store    *SealedLog
	Sparse   bool // positions of the log may have gaps
	Pool     *pgxpool.Pool
	SealKeys [][]byte // the current one first; nil if there is none
	Log      *slog.Logger
	events   string        // address of the log
	private  *pgdev.Server // nil: the database is another
}

// CollectLess makes the garbage collector run less often, for commands that go through many events or rows and allocate
// much on the way. It saves them a sixth of their time or more, and the memory limit keeps them under 256 MiB resident,
// besides the bytes that the command keeps. GOGC or GOMEMLIMIT, if set, is left alone.
func CollectLess(kept int64) {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetGCPercent(400)
		debug.SetMemoryLimit(200<<20 + kept)
	}
}

// OpenStores opens the log and the views' database, whose schemas must be of this program's version. Without a seal
// key, only events without personal data can be read.
func (d SealedDatabase) OpenStores(ctx context.Context, c cli.Output) (_ *Stores, err error) {
	var check cli.Checker
	d.Check(&check)
	keys, err := d.sealKeys(&check)
	if err = errors.Join(err, check.Err()); err != nil {
		return nil, err
	}
	log := cli.Logger(c)
	views, events, private, err := d.OpenExisting(ctx, log)
	if err != nil {
		return nil, err
	}
	h := &Stores{
		URL: views, Sparse: esdb.Understands(events), SealKeys: keys, Log: log, events: events, private: private,
	}
	defer func() {
		if err != nil {
			h.Close()
		}
	}()
	if h.Pool, err = OpenLong(ctx, views); err != nil {
		return nil, fmt.Errorf("LEADLOG_DATABASE_URL: %w", err)
	}
	if h.Store, err = openSealedLog(ctx, events, h.Pool, keys, log); err != nil {
		return nil, err
	}
	return h, schema.Current(ctx, h.Pool)
}

// AnalyzeLog tells PostgreSQL, if it has the log, of so many new events.
func (h *Stores) AnalyzeLog(ctx context.Context, events int64) {
	if !h.Sparse {
		Analyze(ctx, h.events, "log", events, h.Log)
	}
}

// Analyze is schema.Analyze for all tables of a schema in the database at an address. What prevents it is logged, and
// ends no command.
func Analyze(ctx context.Context, address, namespace string, written int64, log *slog.Logger) {
	pool, err := OpenLong(ctx, address)
	if err == nil {
		defer pool.Close()
		err = pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
			return schema.Analyze(ctx, conn.Conn(), log, namespace, nil, written)
		})
	}
	if err != nil {
		log.Warn("tables not analyzed", slog.String("schema", namespace), slog.Any("error", err))
	}
}

// Close closes both, and leaves the private PostgreSQL.
func (h *Stores) Close() {
	if h.Store != nil {
		h.Store.Close()
	}
	if h.Pool != nil {
		h.Pool.Close()
	}
	StopPrivate(h.private, h.Log)
}

// eraseTimeout is how long a command waits for the views to reach an erasure. No HTTP request waits for it.
const eraseTimeout = 10 * time.Minute

// Eraser erases persons in these stores.
func (h *Stores) Eraser() forget.Eraser {
	return forget.Eraser{Keys: h.Store, Views: forget.Database{Pool: h.Pool, Timeout: eraseTimeout}}
}

// LogTree reads the tree of the log, which services keep.
func (h *Stores) LogTree(ctx context.Context) (logtree.Reader, error) {
	origin, _, err := command.LoadOrigin(ctx, h.Store)
	return logtree.Reader{Pool: h.Pool, Log: h.Store.raw, Origin: origin}, err
}

// RunViews keeps the views and the deliveries' queue up to date until stop is called, for when no service is running.
// Beside a running service it is on standby.
func (h *Stores) RunViews(ctx context.Context) (stop func(), err error) {
	epoch, err := h.Store.Epoch(ctx)
	if err != nil {
		return nil, err
	}
	if err := delivery.Begin(ctx, h.Pool, h.Store); err != nil {
		return nil, err
	}
	fanOut := delivery.FanOut{Epoch: epoch, Filters: delivery.NewFilters(h.Store, nil)}
	return h.project(ctx, map[string][]projection.Projector{
		schema.Views: view.All(), schema.Deliveries: {fanOut},
	})
}

// RunView is RunViews for one view.
func (h *Stores) RunView(ctx context.Context, name string) (stop func(), err error) {
	others := func(p projection.Projector) bool { return p.Name() != name }
	projectors := slices.DeleteFunc(view.All(), others)
	return h.project(ctx, map[string][]projection.Projector{schema.Views: projectors})
}

// project runs projectors, by their schema, until stop is called.
func (h *Stores) project(ctx context.Context, projectors map[string][]projection.Projector) (stop func(), err error) {
	tail := eventstore.NewTail(h.Store, projection.Union(slices.Concat(slices.Collect(maps.Values(projectors))...)))
	leases := schema.NewLeases(h.Pool.Config().ConnConfig)
	following, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	stop = func() { cancel(); running.Wait(); leases.Close() }
	for tables, ofSchema := range projectors {
		runner, err := projection.New(projection.Options{
			URL: h.URL, Store: h.Store, Tail: tail, Leases: leases, Projectors: ofSchema, Schema: tables, Log: h.Log,
		})
		if err != nil {
			stop()
			return nil, err
		}
		running.Go(func() { runner.Run(following) })
	}
	return stop, nil
}

// BrokenSecrets returns a function that finds endpoints whose signing secret is missing or cannot be opened; nil when
// there is no seal key.
func (h *Stores) BrokenSecrets() func(context.Context) (map[string]error, error) {
	if len(h.SealKeys) == 0 {
		return nil
	}
	return secret.Endpoints{Store: secret.New(h.Pool, h.Store.Box)}.Broken
}

// BrokenIntakes returns a function that finds intakes whose secrets are missing or cannot be opened; nil when there is
// no seal key.
func (h *Stores) BrokenIntakes() func(context.Context) (map[string]error, error) {
	if len(h.SealKeys) == 0 {
		return nil
	}
	return secret.Intakes{Store: secret.New(h.Pool, h.Store.Box)}.Broken
}
