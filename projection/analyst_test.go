package projection_test

import (
	"context"
	"crypto/rand"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/projection/view"
)

// as connects to a World's database under another role. Only the directory of the server's socket is protected.
func as(t *testing.T, w *projectiontest.World, role string) *pgx.Conn {
	t.Helper()
	address, err := url.Parse(w.URL)
	require.NoError(t, err)
	address.User = url.User(role)
	conn, err := pgx.Connect(t.Context(), address.String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// analyst runs deploy/analyst.sql for a role of the test's own, because roles belong to the whole server.
func analyst(t *testing.T, w *projectiontest.World) (role string) {
	t.Helper()
	role = "analyst_" + strings.ToLower(rand.Text()[:12])
	superuser := as(t, w, "postgres")
	for range 2 { // the script is repeatable
		pgtest.Exec(t, superuser, strings.ReplaceAll(script(t, "analyst.sql"), "leadlog_analyst", role))
	}
	t.Cleanup(func() {
		for _, statement := range []string{`DROP OWNED BY ` + role, `DROP ROLE ` + role} {
			_, err := superuser.Exec(context.Background(), statement)
			require.NoError(t, err)
		}
		closed(t, w, superuser)
	})
	return role
}

// script returns a script of deploy with the one that it includes.
func script(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../deploy/" + name)
	require.NoError(t, err)
	readers, err := os.ReadFile("../deploy/readers.sql")
	require.NoError(t, err)
	return strings.Replace(string(text), `\ir readers.sql`, string(readers), 1)
}

// closed closes a superuser's session, which the role that drops the database may not terminate.
func closed(t *testing.T, w *projectiontest.World, superuser *pgx.Conn) {
	t.Helper()
	pid := superuser.PgConn().PID()
	require.NoError(t, superuser.Close(context.Background()))
	require.Eventually(t, func() bool {
		var exists bool
		err := w.Pool.QueryRow(context.Background(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)`,
			pid).Scan(&exists)
		return err == nil && !exists
	}, projectiontest.Soon, time.Millisecond)
}

func TestAnalyst_ReadsViewsAndCopiesOnly(t *testing.T) {
	t.Parallel()
	w := projectiontest.NewOnPostgres(t)
	w.WriteHistory(t, 21, 150)
	w.Project(t)
	copied := func(into string, projectors ...projection.Projector) {
		r := w.Replay(projectors...)
		r.Into, r.Until = into, projection.Until{Position: 100}
		require.NoError(t, r.Run(t.Context()))
	}
	early := []projection.Projector{view.Lead{}, view.Touch{}}
	copied("before", early...)
	conn := as(t, w, analyst(t, w))
	copied("later", view.All()...)
	require.NoError(t, w.Replay(view.All()...).Run(t.Context())) // and replaces the tables of the views

	for namespace, readable := range map[string]bool{"views": true, "later": true, "before": false} {
		projectors := view.All()
		if !readable {
			projectors = early
		}
		for _, p := range projectors {
			for _, table := range p.Tables() {
				_, err := conn.Exec(t.Context(), `SELECT * FROM `+namespace+`.`+table)
				if readable {
					require.NoError(t, err, "%s.%s", namespace, table)
				} else {
					require.True(t, forbidden(err), "%s.%s: %v", namespace, table, err)
				}
			}
		}
	}
	copied("before", early...) // again, after the analyst's role exists
	pgtest.Exec(t, conn, `SELECT * FROM before.lead`)

	_, err := conn.Exec(t.Context(), `SET default_transaction_read_only = off`) // it only prevents mistakes
	require.NoError(t, err)
	for _, statement := range []string{
		`SELECT * FROM log.event`, `SELECT * FROM log.event_readable`, `SELECT * FROM secret.webhook`,
		`SELECT * FROM delivery.delivery`, `SELECT log.readable('{}')`, `UPDATE views.lead SET status = 'won'`,
		`DELETE FROM later.lead`, `TRUNCATE views.checkpoint`,
		`INSERT INTO views.source_day VALUES ('a', '2026-01-01', 'api', 1, 1, 1)`, `DROP TABLE views.lead`,
		`CREATE TABLE views.mine ()`, `CREATE TABLE later.mine ()`, `CREATE SCHEMA mine`,
	} {
		_, err := conn.Exec(t.Context(), statement)
		require.True(t, forbidden(err), "%s: %v", statement, err)
	}
}

// forbidden reports whether an error is insufficient privilege.
func forbidden(err error) bool {
	answer, ok := err.(*pgconn.PgError)
	return ok && answer.Code == "42501"
}

// A reader can change its own timeouts, and so keep a transaction open for any time.
func TestReplay_EndsReadersOfView(t *testing.T) {
	t.Parallel()
	w := projectiontest.NewOnPostgres(t)
	configure(t, w, 2)
	projectiontest.CatchUp(t, w.Runner(t, view.Account{}))
	want := w.DumpTable(t, "views", "account")
	superuser := as(t, w, "postgres")
	closed(t, w, superuser)
	reader := as(t, w, analyst(t, w)) // whose script lets the owner of the views end its session
	pgtest.Exec(t, reader, `SET idle_in_transaction_session_timeout = 0; BEGIN; SELECT FROM views.account`)
	require.NoError(t, w.Replay(view.Account{}).TerminateReadersAtOnce().Run(t.Context()))
	_, err := reader.Exec(t.Context(), `SELECT FROM views.account`)
	require.Error(t, err)
	require.Equal(t, want, w.DumpTable(t, "views", "account"))
}
