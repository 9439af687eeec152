package systemtest

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// The test runs the runbook's steps with two processes. At and within each step, each process can read events that the
// other has sealed. At the end, the old key is not needed.
func TestSealKey_Rotation(t *testing.T) {
	t.Parallel()
	settings := serveSettings(t)
	jwt := provision(t, settings)
	before, after := settings["LEADLOG_SEAL_KEY"],
		base64.StdEncoding.EncodeToString([]byte("another key of thirty-two bytes."))
	var processes [2]*program
	var bases [2]string
	for i := range processes {
		processes[i], bases[i] = serve(t, settings)
	}
	early := captureAs(t, bases[0], jwt, "early").data()["leadId"]
	people := 0
	requireReadable := func() {
		t.Helper()
		for i, base := range bases {
			people++
			body := fmt.Sprintf(`{"email":"number%d@example.com","metadata":{"source":"website"}}`, people)
			mustCall(t, "POST", base+"/api/v1/crm/leads", jwt, body).is(t, 201)
			mustCall(t, "POST", bases[1-i]+"/api/v1/crm/leads", jwt, body).is(t, 200)
			reported := mustCall(t, "GET", fmt.Sprintf("%s/api/v1/crm/leads/%s/events", base, early), jwt, "")
			require.Contains(t, fmt.Sprint(reported.body), "early@example.com")
		}
	}
	for _, keys := range []string{before + "," + after, after + "," + before, after} {
		settings["LEADLOG_SEAL_KEY"] = keys
		for i := range processes {
			processes[i].stop(t)
			processes[i], bases[i] = serve(t, settings)
			if keys != after {
				processes[i].waitFor(t, processes[i].err, `(nothing needs the earlier keys of LEADLOG_SEAL_KEY)`)
			}
			requireReadable()
		}
	}
}

// A process with another key once stopped the views and webhooks of all others, because they could not read its sealed
// events.
func TestSealKey_RejectsUnknownKey(t *testing.T) {
	t.Parallel()
	settings := serveSettings(t)
	provision(t, settings)
	file := writeFile(t, "leads.csv", "phone\n9876543210\n")
	launch(t, settings, "import", file, "--account", "acme").exits(t, 0)
	other := maps.Clone(settings)
	other["LEADLOG_SEAL_KEY"] = base64.StdEncoding.EncodeToString([]byte("the key of quite another stage!!"))
	for _, args := range [][]string{{"serve"}, {"import", file, "--account", "acme"}} {
		printed := launch(t, other, args...).exits(t, 1).err.String()
		require.Contains(t, printed, "LEADLOG_SEAL_KEY opens no person's key")
		require.Contains(t, printed, "Try: the LEADLOG_SEAL_KEY of the service")
	}

	// The runbook's steps after the loss of the key.
	conn, err := pgx.Connect(t.Context(), settings["LEADLOG_DATABASE_URL"])
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	_, err = conn.Exec(t.Context(), `DELETE FROM person.key`)
	require.NoError(t, err)
	again := launch(t, other, "import", writeFile(t, "again.csv", "phone,name\n9876543210,Asha\n"),
		"--account", "acme").exits(t, 0)
	require.Contains(t, again.err.String(), "1 new leads")
}
