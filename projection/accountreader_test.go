package projection_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/projection/view"
)

// accountReader runs deploy/account-reader.sql like psql, for a role of the test's own.
func accountReader(t *testing.T, w *projectiontest.World, account string) *pgx.Conn {
	t.Helper()
	superuser := as(t, w, "postgres")
	for range 2 { // the script is repeatable
		require.NoError(t, confine(t, w, superuser, account, "3s"))
	}
	role := pgtest.Value[string](t, superuser, `SELECT role FROM reader.account WHERE account = $1`, account)
	group := rolePrefix(w) + "account_readers"
	t.Cleanup(func() {
		statements := []string{`DROP OWNED BY ` + role, `DROP ROLE ` + role}
		var last bool
		require.NoError(t, superuser.QueryRow(context.Background(),
			`SELECT count(*) = 1 FROM pg_auth_members WHERE roleid = $1::text::regrole`, group).Scan(&last))
		if last {
			statements = append(statements, `DROP OWNED BY `+group+` CASCADE`, `DROP ROLE `+group)
		}
		for _, statement := range statements {
			_, err := superuser.Exec(context.Background(), statement)
			require.NoError(t, err)
		}
		closed(t, w, superuser)
	})
	return as(t, w, role)
}

// rolePrefix replaces leadlog_ in names of roles, because roles belong to the whole server and each test has its own.
func rolePrefix(w *projectiontest.World) string {
	return fmt.Sprintf("r%x_", sha256.Sum256([]byte(w.URL)))[:14] + "_"
}

func confine(t *testing.T, w *projectiontest.World, superuser *pgx.Conn, account, lockTimeout string) error {
	t.Helper()
	text := strings.NewReplacer("leadlog_", rolePrefix(w), ":'account'", "'"+account+"'", "lock_timeout = '3s'",
		"lock_timeout = '"+lockTimeout+"'").
		Replace(script(t, "account-reader.sql"))
	_, err := superuser.Exec(t.Context(), text)
	return err
}

// A statement that waits for an exclusive lock blocks every later reader.
func TestAccountReader_LockTimeout(t *testing.T) {
	t.Parallel()
	w := projectiontest.NewOnPostgres(t)
	superuser, analyst := as(t, w, "postgres"), as(t, w, "postgres")
	t.Cleanup(func() { closed(t, w, superuser); closed(t, w, analyst) })
	pgtest.Exec(t, analyst, `BEGIN; SELECT FROM views.lead`)
	var gaveUp *pgconn.PgError
	require.ErrorAs(t, confine(t, w, superuser, "acme", "100ms"), &gaveUp)
	require.Equal(t, "55P03", gaveUp.Code)
	exists := pgtest.Value[bool](t, analyst, `SELECT EXISTS (SELECT FROM pg_roles WHERE rolname ^@ $1)`, rolePrefix(w))
	require.False(t, exists, "nothing is changed")
}

func TestAccountReader_SeesOneAccount(t *testing.T) {
	t.Parallel()
	w := projectiontest.NewOnPostgres(t)
	w.WriteHistory(t, 22, 300)
	w.Project(t)
	analyst := as(t, w, analyst(t, w))
	acme, globex := accountReader(t, w, "acme"), accountReader(t, w, "globex")
	count := func(conn *pgx.Conn, table, where string) (n int) {
		t.Helper()
		require.NoError(t, conn.QueryRow(t.Context(), `SELECT count(*) FROM `+table+` WHERE `+where).Scan(&n), table)
		return n
	}
	confined := func(namespace string) {
		t.Helper()
		for _, p := range view.All() {
			for _, name := range p.Tables() {
				table, column := namespace+"."+name, "account"
				switch name {
				case "account":
					column = "account_id"
				case "time_index", "conversion_state": // of no account, so an account's reader may not read them
					continue
				}
				for account, conn := range map[string]*pgx.Conn{"acme": acme, "globex": globex} {
					own := count(analyst, table, column+` = '`+account+`'`)
					require.Equal(t, own, count(conn, table, `true`), "%s of %s", table, account)
				}
				require.Equal(t, count(analyst, table, `true`), serviceCount(t, w, table), "others see what they saw")
			}
		}
	}
	require.Positive(t, count(acme, "views.lead", `true`))
	require.Positive(t, count(globex, "views.lead", `true`))
	confined("views")

	r := w.Replay(view.All()...)
	r.Into, r.Until = "asof", projection.Until{Position: 200}
	require.NoError(t, r.Run(t.Context()))
	confined("asof")
	again := r
	again.Projectors = []projection.Projector{view.Lead{}, view.Touch{}}
	require.NoError(t, again.Run(t.Context()))
	confined("asof")
	require.NoError(t, w.Replay(view.All()...).Run(t.Context())) // replaces the tables of the views
	confined("views")

	for _, statement := range []string{`SET default_transaction_read_only = off`, `SET row_security = off`} {
		pgtest.Exec(t, acme, statement)
	}
	for _, statement := range []string{
		`SELECT * FROM views.lead`, // fails, because row_security = off forbids filtered reads
		`ALTER TABLE views.lead DISABLE ROW LEVEL SECURITY`, `DROP POLICY all_rows ON views.lead`,
		`SELECT * FROM views.checkpoint`, `SELECT * FROM log.event`, `SELECT * FROM secret.webhook`,
		`SELECT * FROM person.key`, `SELECT * FROM delivery.delivery`, `DELETE FROM views.lead`,
		`SET ROLE postgres`, `CREATE SCHEMA mine`,
	} {
		_, err := acme.Exec(t.Context(), statement)
		require.True(t, forbidden(err), "%s: %v", statement, err)
	}
}

// serviceCount returns how many rows the owner of the views can read.
func serviceCount(t *testing.T, w *projectiontest.World, table string) (n int) {
	t.Helper()
	require.NoError(t, w.Pool.QueryRow(t.Context(), `SELECT count(*) FROM `+table).Scan(&n))
	return n
}

// Every role sees the names of roles and policies. They must not name accounts.
func TestAccountReader_HidesAccounts(t *testing.T) {
	t.Parallel()
	w := projectiontest.NewOnPostgres(t)
	acme, globex := accountReader(t, w, "acme"), accountReader(t, w, "globex")
	for _, catalogue := range []string{
		`SELECT rolname || rolconfig::text FROM pg_roles`, `SELECT row(p.*)::text FROM pg_policies p`,
		`SELECT coalesce(shobj_description(oid, 'pg_authid'), '') FROM pg_roles`,
		`SELECT prosrc FROM pg_proc WHERE pronamespace = 'reader'::regnamespace`,
	} {
		for _, line := range pgtest.Rows[*string](t, globex, catalogue) {
			if line != nil {
				require.NotContains(t, *line, "acme", catalogue)
			}
		}
	}
	require.Equal(t, "acme", pgtest.Value[string](t, acme, `SELECT reader.account()`))
	_, err := acme.Exec(t.Context(), `SELECT * FROM reader.account`)
	require.True(t, forbidden(err), "%v", err)
}
