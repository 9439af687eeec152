package esdb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	client "github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/google/uuid"
	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/eventstore"
)

// Options configure a Store. Only URL is required.
type Options struct {
	// URL is a connection string as in the server's documentation: esdb://host:2113 or kurrentdb://host:2113, several
	// hosts separated by commas, esdb+discover://name or kurrentdb+discover://name for DNS discovery, with user,
	// password and parameters such as tls=false or tlsCaFile. The user must be allowed to read $all.
	URL string

	// Namespace is a prefix of all stream names on the server, so that several logs can share one. Callers do not see
	// it.
	Namespace string

	// Timeout is how long a call is retried while the server cannot be reached, before it fails with ErrUnavailable. 0
	// means 5 s.
	Timeout time.Duration

	// Poll is how long a subscription waits for messages before it reads the end of the log itself. 0 means 250 ms.
	Poll time.Duration

	// Log receives the client library's messages. nil means slog.Default().
	Log *slog.Logger
}

// cacheBytes bounds each of the caches of a store.
const cacheBytes = 16 << 20

// Store is a log in EventStoreDB. It implements eventstore.Store.
type Store struct {
	conn      *connection
	namespace string
	leader    bool // subscriptions require the leader too
	timeout   time.Duration
	poll      time.Duration
	heads     heads

	tails     *cache[string, tail] // of streams without an undecided transaction
	decisions *cache[slot, *decision]
	verdicts  *cache[eventstore.Position, bool] // by the position of the commit record
	observed  *observed
	behind    eventstore.Batcher[streamRevision, []*record]
	seen      atomic.Uint64 // position of the newest record that was read or written
	latency   latency
	queue     *eventstore.Queue
	server    atomic.Pointer[Server] // of the last connection; nil before the first

	locksOnly     bool // does not use AppendRecords; false except in tests
	shortestGrace time.Duration
	beforeCall    func(what string) error // called before each call of the server; nil except in tests

	closing context.Context // done after Close
	close   context.CancelCauseFunc
}

var _ eventstore.Store = (*Store)(nil)

// errClosed is the cause of the errors of a closed Store.
var errClosed = errors.New("the store is closed")

// Open prepares a store without waiting for a connection: the first call that needs the server fails if the server is
// down. The caller must close the store.
func Open(_ context.Context, options Options) (*Store, error) {
	log := options.Log
	if log == nil {
		log = slog.Default()
	}
	config, err := configuration(options.URL, log)
	if err != nil {
		return nil, err
	}
	if err := validateNamespace(options.Namespace); err != nil {
		return nil, err
	}
	s := &Store{
		conn: &connection{
			config: config, log: log, lingering: time.Minute,
			backoff: eventstore.Backoff{Shortest: shortestBackoff, Longest: 10 * longestBackoff},
		},
		namespace: options.Namespace,
		leader:    config.NodePreference == client.NodePreferenceLeader,
		timeout:   cmp.Or(options.Timeout, 5*time.Second),
		poll:      cmp.Or(options.Poll, 250*time.Millisecond),
		tails:     newCache(cacheBytes, func(stream string, _ tail) int { return len(stream) }),
		decisions: newCache(cacheBytes, func(_ slot, d *decision) int { return bytesOf(d.records) }),
		verdicts:  newCache(cacheBytes, func(eventstore.Position, bool) int { return 0 }),
		observed:  newObserved(),

		shortestGrace: shortestGrace,
	}
	s.behind = eventstore.Batcher[streamRevision, []*record]{
		Query: s.readBehind, Concurrency: 4, MaxBatch: 256, Timeout: s.timeout / 2,
	}
	s.queue = eventstore.NewQueue(s.appendGroup, eventstore.QueueOptions{
		Groups: lockedGroups, Appends: 1,
		Bytes: eventstore.MaxAnywhere, Waiting: 4096, Timeout: 3 * s.timeout,
	})
	s.conn.connected = s.connected
	s.closing, s.close = context.WithCancelCause(context.Background())
	return s, nil
}

// Appends share no calls of a server without AppendRecords: a group of several would only wait for its slowest.
const lockedGroups = 512

// Bounds of the calls of AppendRecords. A server stores a group of 16 captures in a fifth of the time of 16 calls, so
// appends wait for the next call rather than have one of their own.
const (
	togetherGroups  = 2
	togetherAppends = 64
)

// connected is called with the server of each new connection. It decides how appends are stored: together in one call,
// or each by locks.
func (s *Store) connected(server Server) {
	server.AppendRecords = server.AppendRecords && !s.locksOnly
	if old := s.server.Swap(&server); old == nil || *old != server {
		s.conn.log.Info("event store: connected", "server", server.String())
	}
	if server.AppendRecords {
		s.queue.Resize(togetherGroups, togetherAppends)
	} else {
		s.queue.Resize(lockedGroups, 1)
	}
}

// Server returns what the server of the last connection has said of itself. It is empty before the first.
func (s *Store) Server() Server {
	if known := s.server.Load(); known != nil {
		return *known
	}
	return Server{}
}

// Close ends running calls with ErrUnavailable, and closes the connection.
func (s *Store) Close() {
	s.close(errClosed)
	s.conn.close()
	s.queue.Close()
}

// Waiting returns how many appends are queued in this process.
func (s *Store) Waiting() int { return s.queue.Waiting() }

// within cancels a call's context when the store is closed.
func (s *Store) within(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.closing, func() { cancel(errClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// Epoch implements eventstore.Store. The id is that of an event on a stream outside of the log, appended by the first
// call.
func (s *Store) Epoch(ctx context.Context) (string, error) {
	ctx, cancel := s.within(ctx)
	defer cancel()
	var epoch string
	err := s.retryTransient(ctx, func(ctx context.Context) error {
		begun, err := s.page(ctx, epochStream, client.Forwards, client.Start{}, 1)
		if err != nil {
			return err
		}
		if len(begun) == 0 {
			if err := s.begin(ctx); err != nil && !wrongExpected(err) {
				return err
			}
			return errMoved // it exists now: read it
		}
		epoch = begun[0].ID.String()
		return nil
	})
	return epoch, err
}

// begin appends the event that identifies the log.
func (s *Store) begin(ctx context.Context) error {
	id := ulid.Make()
	_, err := ask(ctx, s.conn, func(ctx context.Context, c *link) (*client.WriteResult, error) {
		return c.AppendToStream(onLeader(ctx), s.name(epochStream), client.AppendToStreamOptions{
			ExpectedRevision: client.NoStream{},
		},
			client.EventData{
				EventID: uuid.UUID(id), EventType: "leadlog.epoch.v1", ContentType: client.ContentTypeJson,
				Data:     []byte(`{}`),
				Metadata: fmt.Appendf(nil, `{"at":%q}`, ulid.Time(id.Time()).UTC().Format(time.RFC3339Nano)),
			})
	})
	return err
}
