package migration

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ErrPooler means that a pooler gives each transaction another session of the server, so that leases, LISTEN and the
// settings of a session do not hold.
var ErrPooler = errors.New("a pooler in transaction or statement mode is between leadlog and PostgreSQL: " +
	"set pool_mode=session for this database, or connect to PostgreSQL directly")

// CheckPooler returns ErrPooler if two connections share a session of the server, or one changes it. It sets nothing,
// because other clients of a pooler would get the setting. It returns nil when it cannot connect; the first use of
// the database has that error.
func CheckPooler(ctx context.Context, url string) error {
	pool, err := pgxpool.ParseConfig(url) // parses the pool_ parameters, which the server rejects
	if err != nil {
		return fmt.Errorf("database address: %w", err)
	}
	config := pool.ConnConfig
	config.RuntimeParams = map[string]string{"application_name": "leadlog start"}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	one, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil
	}
	defer one.Close(ctx)
	first, err := backend(ctx, one)
	if err != nil || first == fmt.Sprint(one.PgConn().PID()) { // a pooler invents the number that it reports
		return err
	}
	// The next statement, without or with another connection in between, gets the session that was used last, or one
	// in turn.
	again, err := backend(ctx, one)
	if err != nil {
		return err
	}
	other, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("a second connection through the pooler: %w", err)
	}
	defer other.Close(ctx)
	second, err := backend(ctx, other)
	if err != nil {
		return fmt.Errorf("a second connection through the pooler: %w", err)
	}
	if again != first || second == first {
		return ErrPooler
	}
	if _, err := other.PgConn().Exec(ctx, `BEGIN`).ReadAll(); err != nil { // which keeps its session
		return err
	}
	last, err := backend(ctx, one)
	if err == nil && last != first {
		err = ErrPooler
	}
	return err
}

// backend returns the number of the server's process, by a statement that needs no session.
func backend(ctx context.Context, conn *pgx.Conn) (string, error) {
	results, err := conn.PgConn().Exec(ctx, `SELECT pg_backend_pid()`).ReadAll()
	if err != nil {
		return "", err
	}
	return string(results[0].Rows[0][0]), nil
}
