package schema

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/migration"
)

// A lease is held by a session and ends with it: see the schema lease. Its name says what its holder does.

// ProjectorLease is the lease of the session that runs a projector on the views of a schema.
func ProjectorLease(schema, projector string) string { return "projector " + schema + "." + projector }

// ReplayLease is the lease of the session that builds a copy of a view in a schema.
func ReplayLease(schema, projector string) string { return "replay " + schema + "." + projector }

// CourierLease is the lease of a courier, and CourierLeases matches all of them with LIKE.
func CourierLease(id int32) string { return fmt.Sprint(courierLease, id) }

// The names of couriers' leases.
const (
	courierLease  = "courier "
	CourierLeases = courierLease + "%"
)

// Querier is a connection or a transaction.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Executor is a connection or a transaction.
type Executor interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// AcquireLease acquires a lease for the session, and reports whether the session has it now. In a transaction, the
// lease is acquired at the commit, and no other session can acquire it before that.
func AcquireLease(ctx context.Context, session Querier, name string) (acquired bool, err error) {
	err = session.QueryRow(ctx, `SELECT lease.acquire($1)`, name).Scan(&acquired)
	return acquired, err
}

// ReleaseLease ends a lease of the session before the session ends.
func ReleaseLease(ctx context.Context, session Executor, name string) error {
	_, err := session.Exec(ctx, `DELETE FROM lease.session WHERE name = $1 AND pid = pg_backend_pid()`, name)
	return err
}

// ReleaseLeases ends all leases of the session before the session ends.
func ReleaseLeases(ctx context.Context, session Executor) error {
	_, err := session.Exec(ctx, `DELETE FROM lease.session WHERE pid = pg_backend_pid()`)
	return err
}

// Leases holds leases with one session, for work on other connections. The loss of the session is detected within about
// a second, in which another process may already have acquired the lease: the work must tolerate that.
type Leases struct {
	config *pgx.ConnConfig

	mu      sync.Mutex
	session *leaseSession // nil: not connected
}

// leaseSession is a connection and the context that ends with it.
type leaseSession struct {
	conn *pgx.Conn
	ctx  context.Context // ends with the connection
	end  context.CancelCauseFunc
}

// leaseCheck is the interval between checks that the session is alive.
const leaseCheck = time.Second

// NewLeases prepares a session. Acquire connects it, also after a loss.
func NewLeases(config *pgx.ConnConfig) *Leases {
	config = config.Copy()
	Session(config)
	BoundBy(config, 5*time.Second)
	config.RuntimeParams["application_name"] = "leadlog leases"
	config.RuntimeParams["synchronous_commit"] = "off" // a lease has no meaning after a crash of the server
	config.RuntimeParams["lock_timeout"] = "1s"        // while another transaction takes the lease
	return &Leases{config: config}
}

// Lease is the exclusive right of one session to do a piece of work.
type Lease struct {
	// Context ends when the lease is lost or released, or when the context of Acquire is done. After a loss its cause
	// is eventstore.ErrUnavailable.
	Context context.Context
	release func()
}

// Release releases the lease.
func (l *Lease) Release() { l.release() }

// Acquire acquires a lease that the caller does not have. It returns nil when another session has it.
func (l *Leases) Acquire(ctx context.Context, name string) (*Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session == nil {
		conn, err := migration.Connect(ctx, l.config)
		if err != nil {
			return nil, err
		}
		l.session = &leaseSession{conn: conn}
		l.session.ctx, l.session.end = context.WithCancelCause(context.Background())
		go l.watch(l.session)
	}
	s := l.session
	acquired, err := AcquireLease(ctx, s.conn, name)
	if answer, ok := errors.AsType[*pgconn.PgError](err); ok && answer.Code == "55P03" { // lock_timeout
		return nil, nil
	}
	if err != nil {
		l.checkEnd(s, err)
		return nil, err
	}
	if !acquired {
		return nil, nil
	}
	held, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })
	return &Lease{held, func() {
		stop()
		cancel(nil)
		l.release(s, name)
	}}, nil
}

func (l *Leases) release(s *leaseSession, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s != l.session {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	l.checkEnd(s, ReleaseLease(ctx, s.conn, name))
}

// watch detects the end of a session.
func (l *Leases) watch(s *leaseSession) {
	for eventstore.Sleep(s.ctx, leaseCheck) == nil {
		l.mu.Lock()
		if s == l.session {
			_, err := s.conn.Exec(s.ctx, `SELECT`)
			l.checkEnd(s, err)
		}
		l.mu.Unlock()
	}
}

// checkEnd ends the leases of a session whose connection was closed by an error. The caller holds the lock.
func (l *Leases) checkEnd(s *leaseSession, err error) {
	if s.conn.IsClosed() {
		l.end(fmt.Errorf("%w: session of leases lost: %w", eventstore.ErrUnavailable, err))
	}
}

// end closes the session. The caller holds the lock.
func (l *Leases) end(cause error) {
	s := l.session
	l.session = nil
	s.end(cause)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.conn.Close(ctx) // the connection is closed in any case
}

// Close closes the session, which ends all leases.
func (l *Leases) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session != nil {
		l.end(errors.New("leases are closed"))
	}
}
