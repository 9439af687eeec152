// Package postgres keeps the log in PostgreSQL: one table, one writer at a time, group commit.
//
// Calls of Append wait in the process, in an eventstore.Queue. Of these up to 512 at a time are passed to the SQL
// function log.append in one round trip, which is also the transaction (append.go). So one disk flush and one lock
// serve many callers, and the lock is never held while the server waits for a client. Positions have no gaps and follow
// the order of commits, over any number of processes: a subscription that has read everything up to a position has
// skipped nothing.
//
// Subscriptions (subscribe.go) read the log when their own process has appended, when another process notifies
// (notify.go), and when they poll.
//
// When the connection of an append breaks, its outcome is unknown, and the same batch is sent again: log.append
// recognises by their ids the events that were stored.
//
// If the server requires a synchronous standby, no result contains events that the standby lacks (standby.go). A
// database that lacks events which the process has seen is not used: it is a promoted standby that had not received
// them. See [Store.Diverged].
//
// All tables are in the schema log of the database; see migrations.
package postgres

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/migration"
)

// Options configure a Store. Only URL is required.
type Options struct {
	// URL is the address of the database, with parameters of libpq and pgxpool.
	URL string

	// MaxReaders bounds the connections that read; 0 means the URL's pool_max_conns or pgxpool's default. In addition
	// the store has one connection that writes, one that notifies and, for subscriptions, one that listens.
	MaxReaders int

	// AppendTimeout is how long an append waits for the database before it returns ErrUnavailable; 0 means 5 s.
	AppendTimeout time.Duration

	// Queue is how many appends may wait in the process before further ones return ErrUnavailable at once; 0 means
	// 4096.
	Queue int

	// Poll is the interval at which subscriptions read the log without a notification; 0 means 250 ms.
	Poll time.Duration

	// OnBatch is called after every written batch, and must not block. It may be nil.
	OnBatch func(Batch)

	// Log receives lost and restored connections; nil means slog.Default().
	Log *slog.Logger
}

// Batch describes the appends that were sent to the database in one round trip.
type Batch struct {
	Appends int
	Events  int // of all its appends, including refused ones
	Took    time.Duration
}

// Store is a log in PostgreSQL. It implements eventstore.Store.
type Store struct {
	pool     *pgxpool.Pool
	queue    *eventstore.Queue
	writer   *writer
	waker    *waker
	notifier *notifier
	newest   newest
	replicas replicated
	firsts   eventstore.Batcher[readStart, page]
	poll     time.Duration

	closing  context.Context // done after Close
	close    context.CancelFunc
	starting sync.Mutex // guards running against a concurrent Close
	running  sync.WaitGroup
}

var _ eventstore.Store = (*Store)(nil)

// errClosed is the cause of errors of a closed Store.
var errClosed = errors.New("the store is closed")

// Open prepares a store without waiting for a connection. The first call that needs one, such as Current, fails if the
// database is down or not migrated. The caller must close the store.
func Open(ctx context.Context, options Options) (*Store, error) {
	config, err := poolConfig(options)
	if err != nil {
		return nil, err
	}
	s := &Store{newest: newest{lost: make(chan struct{})}, poll: cmp.Or(options.Poll, 250*time.Millisecond)}
	config.AfterConnect = s.connected
	pool, err := migration.NewPool(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("database pool: %w", err)
	}
	log := options.Log
	if log == nil {
		log = slog.Default()
	}
	s.pool = pool
	s.firsts = eventstore.Batcher[readStart, page]{
		Query: s.firstPages, Concurrency: readQueries, MaxBatch: readBatch, Timeout: queryTimeout,
	}
	s.closing, s.close = context.WithCancel(context.Background())
	timeout := cmp.Or(options.AppendTimeout, 5*time.Second)
	s.replicas.timeout = timeout
	s.replicas.commits = eventstore.Batcher[mark, error]{
		Query: s.commit, Concurrency: 1, MaxBatch: 1024, Timeout: queryTimeout,
	}
	s.writer = newWriter(config.ConnConfig, timeout, log)
	s.writer.connected, s.writer.appended, s.writer.replicas = s.connected, s.appended, &s.replicas
	if options.OnBatch != nil {
		s.writer.onBatch = options.OnBatch
	}
	s.queue = eventstore.NewQueue(s.writer.appendGroup, eventstore.QueueOptions{
		Prepare: func(a eventstore.Append) (any, error) { return newRequest(a) },
		Groups:  1, Appends: maxBatch, Bytes: maxBatchBytes, Waiting: cmp.Or(options.Queue, 4096), Timeout: timeout,
	})
	s.waker, s.notifier = newWaker(config.ConnConfig, log), newNotifier(config.ConnConfig)
	s.running.Go(func() {
		<-s.closing.Done()
		s.queue.Close()
		s.writer.close()
	})
	s.running.Go(func() { s.notifier.run(s.writer.ended) })
	return s, nil
}

// Close completes the queued appends, ends subscriptions and closes all connections.
func (s *Store) Close() {
	s.starting.Lock()
	s.close()
	s.starting.Unlock()
	s.running.Wait()
	s.pool.Close()
}

// Waiting returns how many appends are queued in this process.
func (s *Store) Waiting() int { return s.queue.Waiting() }

// Readers returns statistics of the connections that read.
func (s *Store) Readers() *pgxpool.Stat { return s.pool.Stat() }

// connectTimeout is the timeout of connecting, and of the check that a pooled connection is alive.
const connectTimeout = 5 * time.Second

func poolConfig(options Options) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(options.URL)
	if err != nil {
		return nil, fmt.Errorf("database address: %w", err)
	}
	if options.MaxReaders > 0 {
		config.MaxConns = int32(options.MaxReaders)
	}
	config.PingTimeout = connectTimeout // without it, a connection whose server has vanished is never closed
	setSession(config.ConnConfig)
	return config, nil
}

// connected checks a new connection before it is used.
func (s *Store) connected(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout) // the pool sets no timeout
	defer cancel()
	if err := s.replicas.check(ctx, conn); err != nil {
		return err
	}
	return s.newest.check(ctx, conn)
}

const cachedStatements = 32 // per connection

// setSession sets session parameters that the log relies on and that otherwise depend on the server and the role.
func setSession(config *pgx.ConnConfig) {
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectTimeout
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "leadlog"
	}
	config.OnNotice = noticeCancelledWait
	// The driver reserves memory for its statement cache, by default 512 statements in each connection.
	config.StatementCacheCapacity = min(config.StatementCacheCapacity, cachedStatements)
	migration.SetSession(config) // read committed: after log.append has its lock, it must see all earlier commits
	maps.Copy(config.RuntimeParams, map[string]string{
		// A cancelled wait for a standby is a warning.
		"client_min_messages": "warning",
		// Every query of the log is a short index scan, and a cached plan from when the table was small must not use a
		// sequential scan.
		"enable_seqscan":  "off",
		"plan_cache_mode": "force_generic_plan",
	})
}

// named returns the configuration of a connection for a task, which is visible in pg_stat_activity.
func named(config *pgx.ConnConfig, task string) *pgx.ConnConfig {
	config = config.Copy()
	config.RuntimeParams["application_name"] += " " + task
	return config
}

// unavailable wraps an error of the database at this package's boundary. An error of the context can still be
// identified.
func unavailable(ctx context.Context, err error) error {
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		err = fmt.Errorf("%w: %w", ended, err)
	}
	return fmt.Errorf("%w: %w", eventstore.ErrUnavailable, err)
}

//go:embed migrations/*.sql
var migrationFiles embed.FS

var logSchema = migration.Schema{Name: "log", Holds: "the log", Files: migrationFiles}

// Migrate migrates the log's schema to the current version, and creates it in an empty database. Concurrent migrations
// wait for each other.
func Migrate(ctx context.Context, url string) error { return logSchema.Up(ctx, url) }

// Current returns migration.ErrOld or ErrNew if the schema of the database's log is not of this program's version, and
// migration.ErrEncoding.
func (s *Store) Current(ctx context.Context) error {
	err := logSchema.Current(ctx, s.pool)
	if err == nil || errors.Is(err, migration.ErrOld) || errors.Is(err, migration.ErrNew) ||
		errors.Is(err, migration.ErrEncoding) {
		return err
	}
	return unavailable(ctx, err)
}
