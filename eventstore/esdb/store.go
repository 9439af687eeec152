// Package esdb keeps the log in EventStoreDB or KurrentDB, on one node or a cluster.
//
// Such a server appends to one stream at a time. So Append first makes its checks, by reading the ends of the streams on the
// leader, and then its writes one by one in the order given. A process that dies between two of them leaves a prefix, which its
// callers can complete. An append that is sent again is recognised by the ids of its events: the server knows them at their
// places, and for an append that expects nothing, of which it remembers only the newest, the stream is read first.
//
// An event's position is its commit position in $all. The server's own streams and types, which begin with $, and links are neither
// yielded nor counted.
//
// The client library needs care, and only this package uses it: see connection.go and errors.go. The server must be EventStoreDB
// 22.10 or later, because older ones do not return positions when a stream is read.
package esdb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
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

// Store is a log in EventStoreDB. It implements eventstore.Store.
type Store struct {
	conn      *connection
	namespace string
	leader    bool // subscriptions too want the leader
	patience  time.Duration
	poll      time.Duration
	heads     heads

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
	}
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

// patiently makes attempts until one succeeds, fails for good, or patience runs out. One attempt takes no longer than
// leaves room for another.
func (s *Store) patiently(ctx context.Context, attempt func(context.Context) error) error {
	return s.attempts(ctx, s.patience/2, attempt)
}

// attempts is patiently with another limit for each.
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
	if err == nil || eventstore.Conflict(err) != nil || errors.Is(err, eventstore.ErrInvalid) ||
		errors.Is(err, eventstore.ErrUnavailable) || errors.Is(err, errForeign) || errors.Is(err, errOld) {
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
