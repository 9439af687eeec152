package migration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Connect connects with a configuration's parameters. They are in the startup message, so that they hold from the first
// moment; if a pooler rejects them there, one statement sets them.
func Connect(ctx context.Context, config *pgx.ConnConfig) (*pgx.Conn, error) {
	conn, err := pgx.ConnectConfig(ctx, config)
	if !startupRefused(err) {
		return conn, err
	}
	config = config.Copy()
	setAfterConnect(config)
	return pgx.ConnectConfig(ctx, config)
}

// NewPool makes a pool whose connections are like those of Connect. It changes the configuration. The first connection
// is made twice, to learn whether a pooler rejects the parameters.
func NewPool(ctx context.Context, config *pgxpool.Config) (*pgxpool.Pool, error) {
	var known, refused atomic.Bool
	config.BeforeConnect = func(ctx context.Context, config *pgx.ConnConfig) error {
		if !known.Load() {
			conn, err := pgconn.ConnectConfig(ctx, &config.Config)
			if err == nil {
				_ = conn.Close(ctx)
			}
			refused.Store(startupRefused(err))
			known.Store(err == nil || startupRefused(err))
		}
		if refused.Load() {
			setAfterConnect(config)
		}
		return nil
	}
	return pgxpool.NewWithConfig(ctx, config)
}

// startupRefused reports whether pgbouncer rejected a connection because of a parameter in its startup message.
func startupRefused(err error) bool {
	answer, ok := errors.AsType[*pgconn.PgError](err)
	return ok && answer.Code == "08P01" && strings.HasPrefix(answer.Message, "unsupported startup parameter")
}

// atStartup are the parameters that pgbouncer accepts in a startup message, and options, which is no setting.
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
	statement, next := "SELECT "+strings.Join(calls, ", "), config.AfterConnect
	timeout := cmp.Or(config.ConnectTimeout, 5*time.Second) // the timeout of connecting has ended
	config.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		if err := conn.ExecParams(ctx, statement, values, nil, nil, nil).Read().Err; err != nil {
			return fmt.Errorf("parameters of the session: %w", err)
		}
		if next != nil {
			return next(ctx, conn)
		}
		return nil
	}
}
