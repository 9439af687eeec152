package systemtest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Who runs many services on one server bounds what each may do there, for the sake of the others.
func TestCommandsTakeTheirTimeWhateverTheServersDefaultsAre(t *testing.T) {
	t.Parallel()
	settings, jwt, base := served(t)
	captured := mustCall(t, "POST", base+"/api/v1/crm/leads", jwt, `{"phone":"9876543210"}`).is(t, 201)
	mustCall(t, "GET", base+"/api/v1/crm/leads?minPosition="+captured.header.Get("X-Log-Position"), jwt, "").is(t, 200)
	require.NoError(t, inDatabase(t.Context(), t, settings["LEADLOG_DATABASE_URL"],
		`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET idle_in_transaction_session_timeout = 1', current_database()); END $$`))
	launch(t, settings, "verify").ends(t, 0)
	launch(t, settings, "replay", "lead").ends(t, 0)
	launch(t, settings, "forget", captured.data()["leadId"].(string), "--account", "acme", "--yes").ends(t, 0)
	launch(t, settings, "verify").ends(t, 0)
}
