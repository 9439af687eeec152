package systemtest

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
)

// asRole returns a database's address for another role. The server's socket needs no password.
func asRole(t *testing.T, address, role string) string {
	t.Helper()
	u, err := url.Parse(address)
	require.NoError(t, err)
	u.User = url.User(role)
	return u.String()
}

func inDatabase(ctx context.Context, t *testing.T, address, statement string) error {
	t.Helper()
	conn, err := pgx.Connect(ctx, address)
	require.NoError(t, err)
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, statement)
	return err
}

// scripted returns a function that runs scripts of deploy with psql as a superuser. Roles are global to a server, so
// they get a unique prefix and are dropped at the end.
func scripted(
	t *testing.T, database string, roles ...string,
) (prefix string, run func(script string, variables ...string)) {
	t.Helper()
	prefix = "r" + strings.ToLower(rand.Text()[:12]) + "_"
	superuser := asRole(t, database, "postgres")
	t.Cleanup(func() {
		for _, statement := range []string{"DROP OWNED BY %s CASCADE", "DROP ROLE %s"} {
			for _, role := range roles {
				require.NoError(t,
					inDatabase(context.Background(), t, superuser, strings.ReplaceAll(statement, "%s", prefix+role)))
			}
		}
	})
	return prefix, func(script string, variables ...string) {
		t.Helper()
		own := t.TempDir()
		for _, file := range []string{script, "readers.sql"} {
			text, err := os.ReadFile("../../../deploy/" + file)
			require.NoError(t, err)
			require.NoError(t,
				os.WriteFile(filepath.Join(own, file),
					[]byte(strings.ReplaceAll(string(text), "leadlog_", prefix)), 0o600))
		}
		args := []string{"-q", "-v", "ON_ERROR_STOP=1", "-d", superuser, "-f", filepath.Join(own, script)}
		for _, v := range variables {
			args = append(args, "-v", v)
		}
		tool(t, "psql", args...)
	}
}

// The test follows the instructions in deploy/roles.sql.
func TestRoles_ServiceCannotChangeLog(t *testing.T) {
	t.Parallel()
	settings := emptySettings(t)
	own := settings["LEADLOG_DATABASE_URL"]
	prefix, run := scripted(t, own, "analyst", "owner", "writer", "reader")
	roles := func() { run("roles.sql") }
	roles()
	settings["LEADLOG_DATABASE_URL"] = asRole(t, own, prefix+"owner")
	launch(t, settings, "migrate").exits(t, 0)
	settings["LEADLOG_DATABASE_URL"] = asRole(t, own, prefix+"writer")
	early := launch(t, settings, "verify").exits(t, 1)
	require.Contains(t, early.err.String(), "permission denied for schema")
	require.Contains(t, early.err.String(), "Try: deploy/roles.sql")
	roles()

	jwt := newAccount(t, settings, "acme")
	_, base := serve(t, settings)
	receiver := newReceiver(t)
	require.Equal(t, 201,
		mustCall(t, "POST", base+"/webhooks/endpoints", jwt, `{"url":"`+receiver.URL+`","events":["lead.created"]}`).
			status)
	captured := captureAs(t, base, jwt, "asha")
	seenBy(t, base, jwt, captured)
	require.Eventually(t, func() bool {
		return len(receiver.missing([]string{captured.header.Get("X-Log-Position")})) == 0
	}, soon, 10*time.Millisecond)
	for _, args := range [][]string{{"replay", "all"}, {"verify"}} {
		launch(t, settings, args...).exits(t, 0)
	}

	for role, statements := range map[string][]string{
		"writer": {
			`UPDATE log.event SET data = ''`, `DELETE FROM log.event`, `TRUNCATE log.event`, `DROP TABLE log.event`,
			`DELETE FROM log.epoch`,
		},
		"reader": {
			`BEGIN READ WRITE; DELETE FROM views.lead`, `SELECT * FROM secret.webhook`,
			`SELECT * FROM delivery.endpoint`,
		},
	} {
		for _, statement := range statements {
			var refused *pgconn.PgError
			require.ErrorAs(t, inDatabase(t.Context(), t, asRole(t, own, prefix+role), statement),
				&refused, "%s: %s", role, statement)
			require.Equal(t, "42501", refused.Code, "%s: %s", role, statement)
		}
	}
	reader := asRole(t, own, prefix+"reader")
	require.NoError(t, inDatabase(t.Context(), t, reader, `SELECT * FROM log.event_readable`))
	require.NoError(t, inDatabase(t.Context(), t, reader, `SELECT * FROM views.lead`))
	settings["LEADLOG_DATABASE_URL"] = reader
	require.Contains(t, launch(t, settings, "tail", "--from", "0").exits(t, 1).err.String(), "Try: deploy/roles.sql",
		"it may not read the keys of persons")
	settings["LEADLOG_DATABASE_URL"] = asRole(t, own, prefix+"writer")
	exportsBehind(t, settings, asRole(t, own, "postgres"), prefix+"reader", func() {
		mustCall(t, "POST", base+tokensPath, jwt, `{"name":"CI","expiresInDays":3}`).is(t, 201)
	})

	// The analyst can also read a table of a later migration.
	run("analyst.sql")
	require.NoError(t, inDatabase(t.Context(), t, asRole(t, own, prefix+"owner"), `CREATE TABLE views.later ()`))
	keepInUse(t, asRole(t, own, "postgres"), prefix+"writer")
	roles()
	require.NoError(t,
		inDatabase(t.Context(), t, asRole(t, own, prefix+"analyst"),
			`SELECT * FROM views.lead; SELECT * FROM views.later`))
}

// exportsBehind exports tokens as a read-only role while the view of the running service lacks the token that create
// creates. The export must wait for the view.
func exportsBehind(t *testing.T, settings map[string]string, superuser, role string, create func()) {
	t.Helper()
	holder, err := pgx.Connect(t.Context(), superuser)
	require.NoError(t, err)
	defer holder.Close(context.WithoutCancel(t.Context()))
	pgtest.Exec(t, holder, `BEGIN`)
	pgtest.Exec(t, holder, `SELECT FROM views.checkpoint WHERE projector = 'token_event' FOR UPDATE`)
	create()
	own := maps.Clone(settings)
	own["LEADLOG_DATABASE_URL"] = asRole(t, superuser, role)
	export := launch(t, own, "export", "tokens", "--account", "acme")
	waiting := func() bool {
		return pgtest.Value[bool](t, holder,
			`SELECT EXISTS (SELECT FROM pg_stat_activity WHERE usename = '`+role+`' AND query LIKE 'SELECT position `+
				`FROM views.checkpoint%')`)
	}
	require.Eventually(t, func() bool {
		pgtest.Exec(t, holder, `SELECT pg_stat_clear_snapshot()`)
		select {
		case <-export.exited:
			return true
		default:
			return waiting()
		}
	}, soon, 5*time.Millisecond)
	pgtest.Exec(t, holder, `ROLLBACK`)
	export.exits(t, 0)
	require.Contains(t, export.out.String(), "token.created")
}

// The schema's owner and a superuser rebuild views and make as-of copies, as operators do after leadlog migrate.
func TestRoles_ReplayKeepsOwner(t *testing.T) {
	t.Parallel()
	settings := emptySettings(t)
	own := settings["LEADLOG_DATABASE_URL"]
	prefix, run := scripted(t, own, "owner", "writer", "reader")
	as := func(role string, args ...string) {
		settings["LEADLOG_DATABASE_URL"] = asRole(t, own, role)
		launch(t, settings, args...).exits(t, 0)
		settings["LEADLOG_DATABASE_URL"] = asRole(t, own, prefix+"writer")
	}
	run("roles.sql")
	as(prefix+"owner", "migrate")
	run("roles.sql")
	jwt := newAccount(t, settings, "acme")
	_, base := serve(t, settings)
	seenBy(t, base, jwt, captureAs(t, base, jwt, "asha"))
	lost := captureAs(t, base, jwt, "lost")
	seenBy(t, base, jwt, lost)

	as(prefix+"owner", "replay", "all")
	as("postgres", "replay", "lead")
	seenBy(t, base, jwt, captureAs(t, base, jwt, "after"))

	as(prefix+"owner", "replay", "all", "--into", "day_of_owner")
	as("postgres", "replay", "all", "--into", "day_of_superuser")
	// roles.sql makes the service the owner of a copy that is older than the roles.
	superuser := asRole(t, own, "postgres")
	require.NoError(t,
		inDatabase(t.Context(), t, superuser,
			`ALTER SCHEMA day_of_owner OWNER TO postgres; ALTER TABLE day_of_owner.lead OWNER TO postgres`))
	run("roles.sql")
	path := base + "/api/v1/crm/leads/" + lost.data()["leadId"].(string)
	mustCall(t, "DELETE", path, jwt, "").is(t, 200)
	for _, copied := range []string{"day_of_owner", "day_of_superuser"} {
		require.Equal(t, 2, queryInt(t, settings, `SELECT count(*) FROM `+copied+`.lead`), copied)
	}
}

// The service's role creates the log, as with copy-log.
func TestRoles_TakeOverExistingLog(t *testing.T) {
	t.Parallel()
	settings := emptySettings(t)
	own := settings["LEADLOG_DATABASE_URL"]
	prefix, run := scripted(t, own, "owner", "writer", "reader")
	run("roles.sql")
	settings["LEADLOG_DATABASE_URL"] = asRole(t, own, prefix+"writer")
	launch(t, settings, "migrate").exits(t, 0)
	run("roles.sql")
	newAccount(t, settings, "acme")
	var refused *pgconn.PgError
	require.ErrorAs(t, inDatabase(t.Context(), t, settings["LEADLOG_DATABASE_URL"], `DELETE FROM log.event`), &refused)
	require.Equal(t, "42501", refused.Code)
	require.Zero(t, queryInt(t, settings, `
		SELECT (SELECT count(*) FROM pg_class WHERE relnamespace = 'log'::regnamespace AND relowner = '`+prefix+
		`writer'::regrole)
		     + (SELECT count(*) FROM pg_proc WHERE pronamespace = 'log'::regnamespace AND proowner = '`+prefix+
		`writer'::regrole)
		     + (SELECT count(*) FROM pg_namespace WHERE nspname = 'log' AND nspowner = '`+prefix+`writer'::regrole)`))
}

// keepInUse locks every table of a role until the test ends, as a busy service does. A statement that waits for such a
// lock fails.
func keepInUse(t *testing.T, superuser, owner string) {
	t.Helper()
	require.NoError(t, inDatabase(t.Context(), t, superuser,
		`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET lock_timeout = ''5s''', current_database()); END $$`))
	conn, err := pgx.Connect(t.Context(), superuser)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close(context.Background())) })
	pgtest.Exec(t, conn, `BEGIN; DO $$
		DECLARE name regclass;
		BEGIN
			FOR name IN SELECT oid FROM pg_class WHERE relkind IN ('r', 'p') AND relowner = '`+owner+`'::regrole LOOP
				EXECUTE format('LOCK TABLE %s IN ACCESS SHARE MODE', name);
			END LOOP;
			ASSERT name IS NOT NULL;
		END $$`)
}

// Readers acquire every lock that they can, and the service continues. TestReplay_EndsReadersOfView covers replays.
func TestRoles_ReadersBlockNothing(t *testing.T) {
	pgtest.System(t)
	t.Parallel()
	settings := emptySettings(t)
	own := settings["LEADLOG_DATABASE_URL"]
	prefix, run := scripted(t, own, "analyst", "owner", "writer", "reader", "account_readers")
	run("roles.sql")
	settings["LEADLOG_DATABASE_URL"] = asRole(t, own, prefix+"owner")
	launch(t, settings, "migrate").exits(t, 0)
	run("roles.sql")
	run("analyst.sql")
	run("account-reader.sql", "account=acme")
	settings["LEADLOG_DATABASE_URL"] = asRole(t, own, prefix+"writer")
	superuser := asRole(t, own, "postgres")
	conn, err := pgx.Connect(t.Context(), superuser)
	require.NoError(t, err)
	var ofAccount string
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT role FROM reader.account`).Scan(&ofAccount))
	require.NoError(t, conn.Close(t.Context()))
	t.Cleanup(func() {
		for _, statement := range []string{`DROP OWNED BY ` + ofAccount, `DROP ROLE ` + ofAccount} {
			require.NoError(t, inDatabase(context.Background(), t, superuser, statement))
		}
	})

	for _, role := range []string{ofAccount, prefix + "analyst", prefix + "reader"} {
		address := asRole(t, own, role)
		for _, statement := range []string{
			`SELECT pg_advisory_lock(hashtextextended('leadlog append', 'log'::regnamespace::oid::bigint))`,
			`SELECT pg_try_advisory_xact_lock_shared(1, 2)`, `SELECT lo_create(0)`,
			`BEGIN READ WRITE; CREATE TEMPORARY TABLE mine ()`,
			`BEGIN READ WRITE; LOCK TABLE log.append_lock IN SHARE UPDATE EXCLUSIVE MODE`,
			`BEGIN READ WRITE; LOCK TABLE log.migration_lock IN SHARE MODE`,
			`BEGIN READ WRITE; LOCK TABLE lease.session IN ROW EXCLUSIVE MODE`,
			`SELECT lease.acquire('projector views.lead')`, `BEGIN READ WRITE; LOCK TABLE views.lead IN ROW SHARE MODE`,
			`BEGIN READ WRITE; SELECT FROM views.lead FOR KEY SHARE`,
		} {
			var refused *pgconn.PgError
			require.ErrorAs(t, inDatabase(t.Context(), t, address, statement), &refused, "%s: %s", role, statement)
			require.Equal(t, "42501", refused.Code, "%s: %s", role, statement)
		}
		reader, err := pgx.Connect(t.Context(), address)
		require.NoError(t, err)
		defer reader.Close(context.Background())
		for _, statement := range []string{
			`SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0`,
			`LISTEN leadlog_log; LISTEN leadlog_delivery; LISTEN leadlog_forgotten`,
			`SELECT pg_notify(c, repeat('x', 7000) || n)
				FROM generate_series(1, 2000) n, unnest(ARRAY['leadlog_log', 'leadlog_delivery',
				  'leadlog_forgotten']) c`,
			`BEGIN; LOCK TABLE views.lead IN ACCESS SHARE MODE; SELECT FROM views.lead`,
		} {
			_, err := reader.Exec(t.Context(), statement)
			require.NoError(t, err, "%s: %s", role, statement)
		}
		tables := []string{"views.lead"}
		if role == prefix+"reader" { // this role may read the log
			tables = append(tables, "log.append_lock")
			_, err := reader.Exec(t.Context(), `LOCK TABLE log.append_lock IN ACCESS SHARE MODE`)
			require.NoError(t, err)
		}
		// CREATE RULE locks before it checks permissions, and would block all later statements
		for _, table := range tables {
			for _, statement := range []string{
				`CREATE RULE mine AS ON INSERT TO %s DO INSTEAD NOTHING`, `COMMENT ON TABLE %s IS 'mine'`,
			} {
				var refused *pgconn.PgError
				statement = `SET lock_timeout = '5s'; BEGIN READ WRITE; ` + fmt.Sprintf(statement, table)
				require.ErrorAs(t, inDatabase(t.Context(), t, address, statement), &refused, "%s: %s", role, statement)
				require.Equal(t, "42501", refused.Code, "%s: %s", role, statement)
				require.Contains(t, refused.Message, "readers may not run", "%s: %s", role, statement)
			}
		}
	}

	jwt := newAccount(t, settings, "acme")
	_, base := serve(t, settings)
	receiver := newReceiver(t)
	mustCall(t, "POST", base+"/webhooks/endpoints", jwt, `{"url":"`+receiver.URL+`","events":["lead.created"]}`).
		is(t, 201)
	captured := captureAs(t, base, jwt, "asha")
	seenBy(t, base, jwt, captured)
	require.Eventually(t, func() bool {
		return len(receiver.missing([]string{captured.header.Get("X-Log-Position")})) == 0
	}, soon, 10*time.Millisecond)
	mustCall(t, "DELETE", base+"/api/v1/crm/leads/"+captured.data()["leadId"].(string), jwt, "").is(t, 200)
	waitReady(t, base)
	settings["LEADLOG_DATABASE_URL"] = asRole(t, own, prefix+"owner")
	launch(t, settings, "migrate").exits(t, 0)
}

// The test follows the instructions in deploy/keys.sql, after deploy/roles.sql.
func TestRoles_SeparateOwnerOfPersonKeys(t *testing.T) {
	t.Parallel()
	settings := emptySettings(t)
	own := settings["LEADLOG_DATABASE_URL"]
	prefix, run := scripted(t, own, "keys", "owner", "writer", "reader")
	run("roles.sql")
	as := func(role string) string { return asRole(t, own, prefix+role) }
	command := func(args ...string) {
		t.Helper()
		launch(t, settings, args...).exits(t, 0)
	}
	settings["LEADLOG_DATABASE_URL"] = as("owner")
	command("migrate")
	programs, err := pgdev.FindBinaries()
	require.NoError(t, err)
	superuser := asRole(t, own, "postgres")
	require.Error(t, exec.CommandContext(t.Context(), filepath.Join(programs.Dir, "psql"),
		"-q", "-d", superuser, "-v", "service=nosuch", "-f", "../../../deploy/keys.sql").Run())
	require.Zero(t, queryInt(t, map[string]string{"LEADLOG_DATABASE_URL": superuser},
		`SELECT count(*) FROM pg_tables WHERE schemaname = 'person' AND tableowner = 'leadlog_keys'`),
		"a failed run changes nothing")
	for range 2 { // both scripts can be repeated
		run("roles.sql")
		run("keys.sql", "service="+prefix+"writer")
	}
	command("migrate")

	// The service captures, reads, seals with a new key and erases.
	settings["LEADLOG_DATABASE_URL"] = as("writer")
	jwt := newAccount(t, settings, "acme")
	p, base := serve(t, settings)
	asha, ravi := captureAs(t, base, jwt, "asha"), captureAs(t, base, jwt, "ravi")
	path := base + "/api/v1/crm/leads/"
	require.Equal(t, 200, mustCall(t, "DELETE", path+ravi.data()["leadId"].(string), jwt, "").status)
	p.stop(t)
	settings["LEADLOG_SEAL_KEY"] = base64.StdEncoding.EncodeToString([]byte("another key of thirty-two bytes.")) + "," +
		settings["LEADLOG_SEAL_KEY"]
	p, base = serve(t, settings)
	p.waitFor(t, p.err, `nothing needs the earlier keys.*"(persons)":1`)
	path = base + "/api/v1/crm/leads/"
	require.Equal(t, "asha@example.com",
		mustCall(t, "GET", path+asha.data()["leadId"].(string), jwt, "").data()["email"])
	command("verify")

	// No other role can read keys, and the owner of the keys can read nothing else.
	for role, statements := range map[string][]string{
		"reader": {`SELECT * FROM person.key`, `SELECT count(*) FROM person.key`, `TABLE person.key`},
		"writer": {`TRUNCATE person.key`, `ALTER TABLE person.key OWNER TO CURRENT_USER`, `DROP TABLE person.key`},
		"keys": {
			`SELECT * FROM log.event`, `SELECT * FROM views.lead`, `SELECT * FROM delivery.attempt`,
			`SELECT * FROM secret.webhook`,
		},
	} {
		for _, statement := range statements {
			var refused *pgconn.PgError
			require.ErrorAs(t, inDatabase(t.Context(), t, as(role), statement), &refused, "%s: %s", role, statement)
			require.Equal(t, "42501", refused.Code, "%s: %s", role, statement)
		}
	}
	require.NoError(t,
		inDatabase(t.Context(), t, as("reader"), `SELECT * FROM log.event_readable; SELECT * FROM views.lead`))
	kept := tool(t, "pg_dump", "--schema=person", "--exclude-table-data=person.destroyed", as("keys"))
	require.Contains(t, kept, "lead-"+asha.data()["leadId"].(string))
	require.NotContains(t, kept, "lead-"+ravi.data()["leadId"].(string))
	require.NotContains(t, kept, "asha@example.com")

	// The roles can rebuild lost views, and the keys are kept.
	require.NoError(t, inDatabase(t.Context(), t, asRole(t, own, "postgres"), `DROP SCHEMA views CASCADE`))
	meera := captureAs(t, base, jwt, "meera")
	settings["LEADLOG_DATABASE_URL"] = as("owner")
	command("migrate")
	run("roles.sql")
	settings["LEADLOG_DATABASE_URL"] = as("writer")
	command("replay", "all")
	for name, lead := range map[string]answer{"asha": asha, "meera": meera} {
		shown := mustCall(t, "GET", path+lead.data()["leadId"].(string), jwt, "")
		require.Equal(t, name+"@example.com", shown.data()["email"], shown.body)
	}
	command("verify")
}
