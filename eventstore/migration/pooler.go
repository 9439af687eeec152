package migration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ErrPooler means that a pooler gives each transaction another session of the server, so that leases, LISTEN and the
// settings of a session do not hold.
var ErrPooler = errors.New("a pooler in transaction or statement mode is between leadlog and PostgreSQL: " +
	"set pool_mode=session for this database, or connect to PostgreSQL directly")

// poolerRounds is how often CheckPooler compares sessions. One round finds a pooler without other clients; in between,
// other clients may take the session that would be shared.
const poolerRounds = 8

// CheckPooler returns ErrPooler if two connections share a session of the server, or one changes it. A pooler in
// session mode never does that. It sets nothing, because other clients of a pooler would get the setting. It returns
// nil when it cannot connect; the first use of the database has that error.
func CheckPooler(ctx context.Context, url string) error {
	pool, err := pgxpool.ParseConfig(url) // parses the pool_ parameters, which the server rejects
	if err != nil {
		return fmt.Errorf("database address: %w", err)
	}
	config := pool.ConnConfig
	config.RuntimeParams = map[string]string{"application_name": "leadlog start"}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	one, first, err := firstBackend(ctx, config)
	if err != nil {
		return nil
	}
	defer one.Close(ctx)
	if first == fmt.Sprint(one.PgConn().PID()) { // a pooler invents the number that it reports
		return nil
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
	for range poolerRounds {
		// Twice, because a pooler may take its sessions in turn. Then while the other connection is in a transaction,
		// which keeps its session.
		for _, step := range []struct {
			conn            *pgx.Conn
			session, before string
		}{
			{one, first, ""}, {one, first, ""}, {other, second, "BEGIN"}, {one, first, ""}, {other, second, "ROLLBACK"},
		} {
			session, err := backend(ctx, step.conn, step.before)
			if err != nil {
				return err
			}
			if session != step.session || first == second {
				return ErrPooler
			}
		}
	}
	return nil
}

// firstBackend connects, and returns the number of the server's process. It sets no parameters, so a timeout of the
// database may end the session before.
func firstBackend(ctx context.Context, config *pgx.ConnConfig) (conn *pgx.Conn, number string, err error) {
	const attempts = 5
	for range attempts {
		if conn, err = pgx.ConnectConfig(ctx, config); err != nil {
			return nil, "", err
		}
		if number, err = backend(ctx, conn); err == nil {
			return conn, number, nil
		}
		_ = conn.Close(ctx)
	}
	return nil, "", err
}

// backend returns the number of the server's process, by a statement that needs no session, after other statements.
func backend(ctx context.Context, conn *pgx.Conn, before ...string) (string, error) {
	statements := strings.Join(append(before, "SELECT pg_backend_pid()"), ";")
	results, err := conn.PgConn().Exec(ctx, statements).ReadAll()
	if err != nil {
		return "", err
	}
	return string(results[len(results)-1].Rows[0][0]), nil
}
