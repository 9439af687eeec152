package storetest

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
)

func openMemory(faulty fault) func(testing.TB) eventstore.Store {
	return func(testing.TB) eventstore.Store {
		if faulty == noFault {
			return Memory()
		}
		return newMemory(faulty)
	}
}

// TestMemory_Conformance passes, except in the subprocesses of TestSuite_DetectsFaults.
func TestMemory_Conformance(t *testing.T) {
	t.Parallel()
	faulty, wait := fault(os.Getenv(faultVariable)), timeout
	if faulty != noFault {
		wait = 2 * time.Second
	}
	can := Capabilities{GapFree: true}
	suite{open: openMemory(faulty), can: can, timeout: wait}.run(t)
}

// faultVariable is the environment variable with the fault of a subprocess.
const faultVariable = "LEADLOG_STORETEST_FAULT"

// TestSuite_DetectsFaults runs the suite on stores with one fault each, which must fail a test.
func TestSuite_DetectsFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault fault
		test  string // group and name
	}{
		{wrongActual, "expectations/conflict: later revision"},
		{anyAsNoStream, "expectations/any revision"},
		{lastConflict, "streams/first conflict is reported"},
		{halfAppend, "streams/conflict writes nothing"},
		{ignoredChecks, "checks/check that fails"},
		{lateCheck, "races/checks against a move"},
		{freshRetry, "retries/same position"},
		{doubledRetry, "retries/at any revision"},
		{doubledRetry, "races/one append sent many times"},
		{retryAtHead, "retries/after later appends"},
		{retryByChecks, "retries/with checks that no longer hold"},
		{retryByPrefix, "retries/longer append"},
		{unvalidated, "invalid/stream written twice"},
		{firstPosition, "expectations/new stream"},
		{checkedToZero, "log/checks alone return the head"},
		{gaps, "log/positions without gaps"},
		{skipped, "many writers/thousands of events to two subscribers"},
		{doubled, "many writers/thousands of events to two subscribers"},
		{shuffled, "subscriptions/from the start"},
		{noCheckpoints, "subscriptions/progress without matches"},
		{farCheckpoints, "subscriptions/progress without matches"},
		{eagerCheckpoints, "subscriptions/from the start"},
		{patternPrefixes, "names/prefix is text"},
		{ignoredTypes, "filters/type"},
		{localTimes, "round trip/times"},
		{seconds, "round trip/times"},
		{tidyData, "round trip/data"},
		{lostMetadata, "round trip/every field"},
		{wrongActual, "model/any sequence of calls"},
		{retryAtHead, "model/any sequence of calls"},
		{skipped, "model/any sequence of calls"},
	} {
		t.Run(string(c.fault)+", by "+c.test, func(t *testing.T) {
			t.Parallel()
			path := "TestMemory_Conformance/" + c.test
			output := runFaulty(t, c.fault, path)
			require.Contains(t, output, "--- FAIL: "+strings.ReplaceAll(path, " ", "_"))
		})
	}
}

// runFaulty runs a test of this program in a subprocess, in which the memory store has a fault.
func runFaulty(t *testing.T, faulty fault, path string) string {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	pattern := "^" + strings.ReplaceAll(path, "/", "$/^") + "$"
	run := exec.CommandContext(t.Context(), program, "-test.run="+pattern, "-rapid.nofailfile", "-rapid.shrinktime=0s")
	run.Env = append(os.Environ(), faultVariable+"="+string(faulty))
	output, err := run.CombinedOutput()
	require.Error(t, err, "the suite passes with the fault:\n%s", output)
	return string(output)
}
