package schema

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Leases are held by sessions, and end with them: see the schema lease. Each name is what its holder does.

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

// TakeLease takes a lease for the session, and reports whether the session has it now. In a transaction, the lease is taken when
// that commits, and no other session can take it until then.
func TakeLease(ctx context.Context, session Querier, name string) (mine bool, err error) {
	err = session.QueryRow(ctx, `SELECT lease.take($1)`, name).Scan(&mine)
	return mine, err
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
