package systemtest

import (
	"encoding/base64"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

// TestTheKeysOfPersonsHaveAnOwnerOfTheirOwn uses deploy/keys.sql as it says, after deploy/roles.sql.
func TestTheKeysOfPersonsHaveAnOwnerOfTheirOwn(t *testing.T) {
	t.Parallel()
	settings := production(t)
	own := settings["LEADLOG_DATABASE_URL"]
	prefix, run := scripted(t, own, "keys", "owner", "writer", "reader")
	run("roles.sql")
	as := func(role string) string { return asRole(t, own, prefix+role) }
	command := func(args ...string) {
		t.Helper()
		launch(t, settings, args...).ends(t, 0)
	}
	settings["LEADLOG_DATABASE_URL"] = as("owner")
	command("migrate")
	for range 2 { // both may be run again, one after the other
		run("roles.sql")
		run("keys.sql", "service="+prefix+"writer")
	}
	command("migrate")

	// The service takes in, shows, seals anew and erases.
	settings["LEADLOG_DATABASE_URL"] = as("writer")
	jwt := newAccount(t, settings, "acme")
	p, base := serve(t, settings)
	asha, ravi := captureAs(t, base, jwt, "asha"), captureAs(t, base, jwt, "ravi")
	path := base + "/api/v1/crm/leads/"
	require.Equal(t, 200, mustCall(t, "DELETE", path+ravi.data()["leadId"].(string), jwt, "").status)
	p.stop(t)
	settings["LEADLOG_SEAL_KEY"] = base64.StdEncoding.EncodeToString([]byte("another key of thirty-two bytes.")) + "," + settings["LEADLOG_SEAL_KEY"]
	p, base = serve(t, settings)
	p.sees(t, p.err, `nothing needs the earlier keys.*"(persons)":1`)
	path = base + "/api/v1/crm/leads/"
	require.Equal(t, "asha@example.com", mustCall(t, "GET", path+asha.data()["leadId"].(string), jwt, "").data()["email"])
	command("verify")

	// Nobody else sees a key, nor does who has the keys see anything else.
	for role, statements := range map[string][]string{
		"reader": {`SELECT * FROM person.key`, `SELECT count(*) FROM person.key`, `TABLE person.key`},
		"writer": {`TRUNCATE person.key`, `ALTER TABLE person.key OWNER TO CURRENT_USER`, `DROP TABLE person.key`},
		"keys":   {`SELECT * FROM log.event`, `SELECT * FROM views.lead`, `SELECT * FROM delivery.attempt`, `SELECT * FROM secret.webhook`},
	} {
		for _, statement := range statements {
			var refused *pgconn.PgError
			require.ErrorAs(t, inDatabase(t.Context(), t, as(role), statement), &refused, "%s: %s", role, statement)
			require.Equal(t, "42501", refused.Code, "%s: %s", role, statement)
		}
	}
	require.NoError(t, inDatabase(t.Context(), t, as("reader"), `SELECT * FROM log.event_readable; SELECT * FROM views.lead`))
	kept := tool(t, "pg_dump", "--schema=person", "--exclude-table-data=person.destroyed", as("keys"))
	require.Contains(t, kept, "lead-"+asha.data()["leadId"].(string))
	require.NotContains(t, kept, "lead-"+ravi.data()["leadId"].(string))
	require.NotContains(t, kept, "asha@example.com")

	// Views that are lost are made again by the same roles, while the keys stay where they are.
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
