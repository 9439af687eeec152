package migration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Connect connects with a configuration's parameters, in a way that poolers accept.
func Connect(ctx context.Context, config *pgx.ConnConfig) (*pgx.Conn, error) {
	config = config.Copy()
	setAfterConnect(config)
	return pgx.ConnectConfig(ctx, config)
}

// NewPool makes a pool whose connections are like those of Connect.
func NewPool(ctx context.Context, config *pgxpool.Config) (*pgxpool.Pool, error) {
	config.BeforeConnect = func(_ context.Context, config *pgx.ConnConfig) error {
		setAfterConnect(config)
		return nil
	}
	return pgxpool.NewWithConfig(ctx, config)
}

// atStartup are the parameters that pgbouncer accepts in a startup message, and options, which is no setting. With any
// other, pgbouncer rejects the connection.
var atStartup = []string{
	"application_name", "client_encoding", "datestyle", "timezone", "standard_conforming_strings", "options",
}

// setAfterConnect moves the other parameters from the startup message to one statement after it.
func setAfterConnect(config *pgx.ConnConfig) {
	var calls []string
	var values [][]byte
	for _, name := range slices.Sorted(maps.Keys(config.RuntimeParams)) {
		if slices.Contains(atStartup, strings.ToLower(name)) {
			continue
		}
		calls = append(calls, fmt.Sprintf("set_config($%d, $%d, false)", len(values)+1, len(values)+2))
		values = append(values, []byte(name), []byte(config.RuntimeParams[name]))
		delete(config.RuntimeParams, name)
	}
	if calls == nil {
		return
	}
	statement, next := "SELECT "+strings.Join(calls, ", "), config.AfterConnect
	config.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		if err := conn.ExecParams(ctx, statement, values, nil, nil, nil).Read().Err; err != nil {
			return fmt.Errorf("settings of the session: %w", err)
		}
		if next == nil {
			return nil
		}
		return next(ctx, conn)
	}
}
