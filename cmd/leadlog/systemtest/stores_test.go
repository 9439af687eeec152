package systemtest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore/esdbtest"
)

// TestOnEventStoreDB repeats tests with the log in EventStoreDB.
func TestOnEventStoreDB(t *testing.T) {
	pgtest.System(t)
	t.Parallel()
	for name, test := range map[string]func(*testing.T){
		"signed webhook":        TestWebhooks_SignedDelivery,
		"forget":                TestForget_LeavesNoPersonalData,
		"import":                TestImport_JSONLines,
		"export while serving":  TestExport_WhileServing,
		"replay while serving":  TestReplay_WhileServing,
		"linearizable captures": TestLinearizable_Captures,
		"linearizable tokens":   TestLinearizable_Tokens,
		"restart of dev":        TestDev_Restart,
	} {
		t.Run(name, test)
	}
}

// onEventStoreDB reports whether a test has its log in EventStoreDB.
func onEventStoreDB(t *testing.T) bool {
	return strings.HasPrefix(t.Name(), "TestOnEventStoreDB/") || t.Name() == "TestChaos_OnEventStoreDB"
}

// withEventStore adds the address of a new EventStoreDB, if the test has its log there.
func withEventStore(t *testing.T, settings map[string]string) map[string]string {
	t.Helper()
	if onEventStoreDB(t) {
		settings["LEADLOG_EVENTSTORE_URL"] = esdbtest.Empty(t)
	}
	return settings
}

// A server appends system events. A view must not advance over system events after the newest event of the log, because
// it would be ahead of the log at the next start.
func TestOnEventStoreDB_SystemEventsAreNoProgress(t *testing.T) {
	pgtest.System(t)
	t.Parallel()
	settings := emptySettings(t)
	server := esdbtest.Start(t)
	server.NoiseAfterAppends()
	settings["LEADLOG_EVENTSTORE_URL"] = server.URL()
	jwt := provision(t, settings)
	for i, appends := range []string{
		"server 24.10.1.0, appends by locks", "server 26.1.0.0, appends in one call",
		"server 24.10.1.0, appends by locks",
	} {
		if i%2 == 1 {
			server.Upgrade()
		} else {
			server.Downgrade()
		}
		p, base := serve(t, settings)
		got := mustCall(t, "POST", base+"/api/v1/crm/leads", jwt, fmt.Sprintf(`{"phone":"987654321%d"}`, i)).is(t, 201)
		for _, path := range []string{
			"/api/v1/crm/leads", "/api/v1/crm/audit/tokens", "/api/v1/crm/sources/report?interval=day",
		} {
			join := "?"
			if strings.Contains(path, "?") {
				join = "&"
			}
			mustCall(t, "GET", base+path+join+"minPosition="+got.header.Get("X-Log-Position"), jwt, "").is(t, 200)
		}
		server.Noise(100)
		ready := waitReady(t, base)
		require.Contains(t, ready.data()["components"], map[string]any{"name": "log", "ready": true, "detail": appends})
		p.stop(t)
	}
	launch(t, settings, "verify").exits(t, 0)
}

func TestOnEventStoreDB_Down(t *testing.T) {
	pgtest.System(t)
	t.Parallel()
	settings := emptySettings(t)
	server := esdbtest.Start(t)
	settings["LEADLOG_EVENTSTORE_URL"] = server.URL() + "&maxDiscoverAttempts=1"
	jwt := provision(t, settings)
	_, base := serve(t, settings)
	waitReady(t, base)
	capture := func(phone string) answer {
		return mustCall(t, "POST", base+"/api/v1/crm/leads", jwt, `{"phone":"`+phone+`"}`)
	}
	require.Equal(t, 201, capture("9876543210").status)
	server.Shut()
	down := capture("9876543211")
	require.Equal(t, 503, down.status, down.body)
	require.NotEmpty(t, down.header.Get("Retry-After"))
	ready := mustCall(t, "GET", base+"/readyz", "", "").is(t, 503)
	require.Contains(t, ready.data()["components"], map[string]any{
		"name": "log", "ready": false, "detail": "does not answer",
	})
	require.Equal(t, 200, mustCall(t, "GET", base+"/healthz", "", "").status)
	require.Equal(t, 200, mustCall(t, "GET", base+"/api/v1/crm/leads", jwt, "").status, "the views are in PostgreSQL")
	server.Reopen()
	require.Eventually(t, func() bool {
		got, err := call(t.Context(), "POST", base+"/api/v1/crm/leads", jwt, `{"phone":"9876543212"}`)
		return err == nil && got.status == 201
	}, soon, 50*time.Millisecond, "the service recovers without a restart")
}
