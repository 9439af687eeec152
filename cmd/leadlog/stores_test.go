package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore/esdbtest"
)

// TestOnEventStoreDB runs again, with the log in EventStoreDB, what the other tests run with the log in PostgreSQL.
func TestOnEventStoreDB(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*testing.T){
		"an endpoint gets what is captured after it, signed": TestAnEndpointRegisteredJustBeforeACaptureGetsItSigned,
		"export and tail":                         TestExportAndTailOfARunningService,
		"replay and verify":                       TestReplayWhileTheServiceGoesOn,
		"revocation over two processes":           TestRevocationIsExactAcrossProcesses,
		"simultaneous callers over two processes": TestSimultaneousCallersGetWhatOneAfterTheOtherWould,
		"dev started again":                       TestDevStartedAgainHasEverythingItHad,
		"another claim key":                       TestALogIsNotServedUnderAnotherClaimKey,
	} {
		t.Run(name, test)
	}
}

// onStore completes settings with where the log is: beside the views, or, for a test that TestOnEventStoreDB runs, in a
// server of the test's own.
func onStore(t *testing.T, settings map[string]string) map[string]string {
	t.Helper()
	if strings.HasPrefix(t.Name(), "TestOnEventStoreDB/") {
		settings["LEADLOG_EVENTSTORE_URL"] = esdbtest.Start(t).URL()
	}
	return settings
}

func TestAnEventStoreDBThatIsDownAnswers503WithRetryAfter(t *testing.T) {
	t.Parallel()
	settings := production(t)
	server := esdbtest.Start(t)
	settings["LEADLOG_EVENTSTORE_URL"] = server.URL() + "&maxDiscoverAttempts=1"
	jwt := provisioned(t, settings)
	_, base := serve(t, settings)
	require.Equal(t, 200, mustCall(t, "GET", base+"/readyz", "", "").status)
	capture := func(phone string) answer {
		return mustCall(t, "POST", base+"/api/v1/crm/leads", jwt, `{"phone":"`+phone+`"}`)
	}
	require.Equal(t, 201, capture("9876543210").status)
	server.Shut()
	down := capture("9876543211")
	require.Equal(t, 503, down.status, down.body)
	require.NotEmpty(t, down.header.Get("Retry-After"))
	ready := mustCall(t, "GET", base+"/readyz", "", "")
	require.Equal(t, 503, ready.status)
	require.Contains(t, ready.data()["components"], map[string]any{"name": "log", "ready": false, "detail": "does not answer"})
	require.Equal(t, 200, mustCall(t, "GET", base+"/healthz", "", "").status)
	require.Equal(t, 200, mustCall(t, "GET", base+"/api/v1/crm/leads", jwt, "").status, "the views are elsewhere")
	server.Reopen()
	require.Eventually(t, func() bool {
		got, err := call(t.Context(), "POST", base+"/api/v1/crm/leads", jwt, `{"phone":"9876543212"}`)
		return err == nil && got.status == 201
	}, time.Minute, 50*time.Millisecond, "and it recovers by itself")
}
