package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/eventstore"
)

// replicated is the state of replication to synchronous standbys, if the server requires any
// (synchronous_standby_names).
//
// PostgreSQL makes a commit visible to others when its wait for the standbys ends. A wait also ends when it is
// cancelled, when its backend is terminated, and when the primary restarts. A failover may then lose visible events. So
// an event counts as replicated after the completed wait of a later commit: a standby that has a commit has every
// commit before it.
//
//   - An append that stores events is such a commit. One that stores none emits a WAL message, so that its commit
//     waits.
//   - A read that returns events after the last position known to be replicated has to be confirmed by the commit of a
//     WAL message, shared by all waiting reads. It returns nothing before that.
//   - The connection that appends never cancels its wait. While a standby is missing, appends are unavailable, their
//     events are invisible, and reads of all other events succeed.
//
// Without a synchronous standby, none of this costs a round trip.
type replicated struct {
	timeout time.Duration // of a read
	commits eventstore.Batcher[mark, error]

	mu       sync.Mutex
	required bool
	upTo     eventstore.Position
}

// mark is an event that was read. If it is replicated, all events before it are.
type mark struct {
	position eventstore.Position
	id       ulid.ULID
}

// ErrNotReplicated means that events that were read are not known to be on the synchronous standbys, and must not be
// returned. It is wrapped with eventstore.ErrUnavailable.
var ErrNotReplicated = errors.New("a synchronous standby has not confirmed what was read")

var (
	errCancelledWait = errors.New("the wait for a synchronous standby was cancelled")
	errReplaced      = errors.New("events that were read are no longer on the log")
)

// selectRequired reports whether a commit of this session waits for a standby. Events that are read from a standby are
// on a standby.
const selectRequired = `current_setting('synchronous_standby_names') <> ''
	AND current_setting('synchronous_commit') NOT IN ('off', 'local') AND NOT pg_is_in_recovery()`

// require records whether a standby is required. When the requirement is new, no position is known to be replicated.
func (r *replicated) require(required bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if required && !r.required {
		r.upTo = 0
	}
	r.required = required
}

// committed records a commit that completed its wait, and the position up to which events were visible to it.
func (r *replicated) committed(position eventstore.Position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.upTo = max(r.upTo, position)
}

func (r *replicated) position() eventstore.Position {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.upTo
}

// check queries on a new connection whether a standby is required.
func (r *replicated) check(ctx context.Context, conn *pgx.Conn) error {
	var required bool
	if err := conn.QueryRow(ctx, `SELECT `+selectRequired,
		pgx.QueryExecModeSimpleProtocol).Scan(&required); err != nil {
		return err
	}
	r.require(required)
	return nil
}

// confirm waits until an event that was read is replicated. Known is the replicated position before the read.
func (r *replicated) confirm(ctx context.Context, known eventstore.Position, newest mark) error {
	r.mu.Lock()
	required := r.required
	r.mu.Unlock()
	if !required || newest.position <= known {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	answer, err := r.commits.Do(waiting, newest)
	if err == nil {
		err = answer
	}
	if waiting.Err() != nil {
		err = ErrNotReplicated
	}
	if err != nil {
		return unavailable(ctx, err)
	}
	return nil
}

// commit commits a WAL message and waits for the standbys. The events must be visible to that transaction: otherwise
// they were read from a server that has been replaced since. Cancelling this wait is harmless, because the transaction
// changes nothing.
func (s *Store) commit(ctx context.Context, read []mark) ([]error, error) {
	errs := make([]error, len(read))
	fail := func(err error) ([]error, error) { // for all of them, because retrying each would not help
		for i := range errs {
			errs[i] = err
		}
		return errs, nil
	}
	positions, ids := make([]int64, len(read)), make([][16]byte, len(read))
	for i, m := range read {
		positions[i], ids[i] = int64(m.position), m.id
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return fail(err)
	}
	defer conn.Release()
	var required bool
	var head int64
	var present []bool
	err = conn.QueryRow(ctx, `
		SELECT pg_logical_emit_message(true, 'leadlog', '')::text, `+selectRequired+`,
		       coalesce((SELECT position FROM log.event ORDER BY position DESC LIMIT 1), 0),
		       ARRAY(SELECT EXISTS (SELECT FROM log.event e WHERE e.position = r.position AND e.event_id = r.id)
		               FROM unnest($1::bigint[], $2::uuid[]) WITH ORDINALITY AS r (position, id, ordinal)
		               ORDER BY r.ordinal)`,
		positions, ids).Scan(nil, &required, &head, &present)
	switch {
	case err != nil:
		return fail(err)
	case !waited(conn.Conn().PgConn()):
		return fail(errCancelledWait)
	}
	s.replicas.require(required)
	s.replicas.committed(eventstore.Position(head))
	for i := range errs {
		if !present[i] {
			errs[i] = errReplaced
		}
	}
	return errs, nil
}

// cancelledKey is the key under which a connection records that a wait for a standby was cancelled.
const cancelledKey = "leadlog: wait cancelled"

// noticeCancelledWait handles the warnings of a connection. For PostgreSQL a cancelled wait is not an error: the commit
// succeeds with a warning, whose code is generic and whose text is in the server's language. The warning is identified
// by the function that reports it.
func noticeCancelledWait(conn *pgconn.PgConn, notice *pgconn.Notice) {
	if notice.Routine == "SyncRepWaitForLSN" {
		conn.CustomData()[cancelledKey] = true
	}
}

// waited reports whether no wait of a connection was cancelled since the last call.
func waited(conn *pgconn.PgConn) bool {
	_, cancelled := conn.CustomData()[cancelledKey]
	delete(conn.CustomData(), cancelledKey)
	return !cancelled
}

// newest is the newest event that this process has read or written, or the head at its start. It is checked on each new
// connection before any other use: a standby that was promoted before it had received everything lacks this event, or
// has another one at its position.
type newest struct {
	mu       sync.Mutex
	position eventstore.Position
	id       ulid.ULID

	once sync.Once
	lost chan struct{} // closed when a database lacks the event
}

// see records an event.
func (n *newest) see(position eventstore.Position, id ulid.ULID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if position > n.position {
		n.position, n.id = position, id
	}
}

// check looks for the event on a new connection. The error is eventstore.ErrDiverged if it is missing.
func (n *newest) check(ctx context.Context, conn *pgx.Conn) error {
	n.mu.Lock()
	position, id := n.position, n.id
	n.mu.Unlock()
	if position == 0 {
		return nil
	}
	var present bool
	err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM log.event WHERE position = $1 AND event_id = $2)`,
		int64(position), [16]byte(id)).Scan(&present)
	if err == nil && !present {
		n.once.Do(func() { close(n.lost) })
		err = fmt.Errorf("%w: event %s at position %d", eventstore.ErrDiverged, id, position)
	}
	return err
}

// Diverged returns a channel that is closed when the database turns out to lack events that this process has seen.
// After that, calls that need a new connection fail with ErrDiverged, and the Store should be closed.
func (s *Store) Diverged() <-chan struct{} { return s.newest.lost }
