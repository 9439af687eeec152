// Package esdb keeps the log in EventStoreDB or KurrentDB, on one node or a cluster.
//
// Such a server appends to one stream at a time. So an append to several is a transaction over streams, which the log itself decides:
//
//   - All events are stored on one of the written streams, the transaction's home, by one call. The last of them is the commit record.
//     Its metadata has the checks. An event's metadata says which stream it is of, and its revision there.
//   - Before, each of the other streams gets a lock for each of its events: a record without payload that names the home, and the slot
//     there that the transaction is about to take.
//   - A lock is decided once that slot is taken: committed by the transaction's own records, aborted by any other record. After a grace,
//     every process that needs a locked stream may close the slot, and the transaction is made again.
//   - The one invariant: a record is appended behind another only with that one's number as the expected revision, and only when every
//     lock up to there is decided. So the order of events in a stream is that of its records.
//   - An append is valid if everything that it checked was so just before the position of its commit record. What is not valid is
//     ignored. The log alone decides that: every process comes to the same answer at any time, and no check waits for another.
//
// An append that is sent again is recognised by the ids of its events at their places. An append that expects nothing has none, so its
// stream is searched first.
//
// An event's position is its commit position in $all. The server's own streams and types, which begin with $, and links are neither
// yielded nor counted.
//
// The client library needs care, and only this package uses it: see connection.go and errors.go. The server must be EventStoreDB
// 22.10 or later, because older ones do not return positions when a stream is read.
//
// Each append to a stream is a call of its own. The protocol's BatchAppend would carry all of them in one call; on the double, that
// took a capture from five calls to two and about doubled the rate of 64 callers. It is not used, because the client library neither
// offers it nor shares its connection: it would need a second connection with its own discovery, credentials and handling of failures.
package esdb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	client "github.com/EventStore/EventStore-Client-Go/v4/esdb"

	"github.com/leadlog/leadlog/eventstore"
)

// Options configure a Store. Only URL is required.
type Options struct {
	// URL is a connection string as the server's documentation has them: esdb://host:2113 or kurrentdb://host:2113,
	// several hosts separated by commas, esdb+discover://name or kurrentdb+discover://name for DNS discovery, with
	// user, password and parameters such as tls=false or tlsCaFile. The user must be allowed to read $all.
	URL string

	// Namespace is a prefix of every stream's name on the server, so that several logs can share one. Callers do not see it.
	Namespace string

	// Patience is how long a call tries again while the server cannot be reached before it fails with ErrUnavailable; 0 means 5 s.
	Patience time.Duration

	// Poll is how long a subscription waits without hearing anything before it reads how far the log goes; 0 means 250 ms.
	Poll time.Duration

	// Log gets the messages of the client library; nil means slog.Default().
	Log *slog.Logger
}

// cacheBytes bounds each of the caches of a store.
const cacheBytes = 16 << 20

// Store is a log in EventStoreDB. It implements eventstore.Store.
type Store struct {
	conn      *connection
	namespace string
	leader    bool // subscriptions too want the leader
	patience  time.Duration
	poll      time.Duration
	heads     heads

	tails     *cache[string, tail] // of streams without an undecided transaction
	decisions *cache[slot, *decision]
	verdicts  *cache[eventstore.Position, bool] // by the position of the commit record
	spans     *cache[string, span]
	behind    eventstore.Batcher[place, []*record]
	seen      atomic.Uint64 // position of the newest record that was read or written
	latency   latency
	turns     eventstore.Transactor // of appends that met others on their streams
	followers followers

	shortestGrace time.Duration
	beforeCall    func(what string) error // called before each call of the server; nil except in tests

	closing context.Context // ended by Close
	close   context.CancelCauseFunc
}

var _ eventstore.Store = (*Store)(nil)

// errClosed is the cause when a closed Store is asked for something.
var errClosed = errors.New("the store is closed")

// Open prepares a store without waiting for a connection: whether the server is down shows in the first call that needs it. The
// caller must close the store.
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
		conn:      &connection{config: config, log: log, lingering: time.Minute},
		namespace: options.Namespace,
		leader:    config.NodePreference == client.NodePreferenceLeader,
		patience:  cmp.Or(options.Patience, 5*time.Second),
		poll:      cmp.Or(options.Poll, 250*time.Millisecond),
		tails:     newCache(cacheBytes, func(stream string, _ tail) int { return len(stream) }),
		decisions: newCache(cacheBytes, func(_ slot, d *decision) int { return bytesOf(d.records) }),
		verdicts:  newCache(cacheBytes, func(eventstore.Position, bool) int { return 0 }),
		spans:     newCache(cacheBytes, func(stream string, _ span) int { return len(stream) }),

		shortestGrace: shortestGrace,
	}
	s.behind = eventstore.Batcher[place, []*record]{Ask: s.readBehind, Concurrency: 4, MaxBatch: 256, Timeout: s.patience / 2}
	s.closing, s.close = context.WithCancelCause(context.Background())
	return s, nil
}

// Close ends what is running with ErrUnavailable, and the connection.
func (s *Store) Close() {
	s.close(errClosed)
	s.conn.close()
}

// within bounds a call by the store's life.
func (s *Store) within(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.closing, func() { cancel(errClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// retryTransient makes attempts until one succeeds, fails for good, or the timeout has passed. One attempt takes no longer than
// leaves room for another.
func (s *Store) retryTransient(ctx context.Context, attempt func(context.Context) error) error {
	return s.attempts(ctx, s.patience/2, attempt)
}

// attempts is retryTransient with another limit for each attempt.
func (s *Store) attempts(ctx context.Context, limit time.Duration, attempt func(context.Context) error) error {
	for retry := s.retrying(); ; {
		err := once(ctx, limit, attempt)
		if err == nil {
			return nil
		}
		if err := retry.pause(ctx, err); err != nil {
			return err
		}
	}
}

func once(ctx context.Context, limit time.Duration, attempt func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return attempt(ctx)
}

// retry paces attempts after failures and ends them when patience has run out.
type retry struct {
	until    time.Time
	patience time.Duration
	next     time.Duration
}

const shortestPause, longestPause = 5 * time.Millisecond, 500 * time.Millisecond

func (s *Store) retrying() *retry {
	r := &retry{patience: s.patience}
	r.reset()
	return r
}

// reset starts anew after something went well.
func (r *retry) reset() { r.until, r.next = time.Now().Add(r.patience), shortestPause }

// pause returns nil after a while if an attempt after this failure is worth it, else the error to report.
func (r *retry) pause(ctx context.Context, failure error) error {
	if ctx.Err() != nil || !passing(failure) || time.Now().Add(r.next).After(r.until) {
		return outcome(ctx, failure)
	}
	if eventstore.Sleep(ctx, r.next) != nil {
		return outcome(ctx, failure)
	}
	r.next = min(2*r.next, longestPause)
	return nil
}

// outcome is a failure as callers get it. Conflicts and callers' mistakes stay what they are; that the caller's
// context ended stays recognisable; everything else is the engine's fault.
func outcome(ctx context.Context, err error) error {
	if err == nil || eventstore.Conflict(err) != nil || errors.Is(err, eventstore.ErrInvalid) || errors.Is(err, eventstore.ErrUnknownPosition) ||
		errors.Is(err, eventstore.ErrUnavailable) || errors.Is(err, errForeign) || errors.Is(err, errOld) ||
		errors.Is(err, errRefused) || wrongExpected(err) {
		return err
	}
	if ended := ctx.Err(); ended != nil {
		if errors.Is(context.Cause(ctx), errClosed) {
			err = errClosed
		} else if !errors.Is(err, ended) {
			err = fmt.Errorf("%w: %w", ended, err)
		}
	}
	return fmt.Errorf("%w: %w", eventstore.ErrUnavailable, err)
}

// heads remembers how far back from the log's end the newest event of ours was found.
type heads struct {
	mu     sync.Mutex
	newest eventstore.Position
	seen   eventstore.Position // nothing of ours stands between newest and here
}

func (h *heads) known() (newest, seen eventstore.Position) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.newest, h.seen
}

func (h *heads) found(newest, seen eventstore.Position) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if seen > h.seen {
		h.newest, h.seen = newest, seen
	}
}
