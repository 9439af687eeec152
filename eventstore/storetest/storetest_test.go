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
		if faulty == honest {
			return Memory()
		}
		return newMemory(faulty)
	}
}

// TestMemoryStore passes the suite, but in the processes that TestTheSuiteCatches starts to see it fail.
func TestMemoryStore(t *testing.T) {
	t.Parallel()
	faulty, wait := fault(os.Getenv(faultVariable)), patience
	if faulty != honest {
		wait = 2 * time.Second
	}
	can := Capabilities{GapFree: true}
	suite{open: openMemory(faulty), can: can, patience: wait}.run(t)
}

// faultVariable names the fault of the memory store in a process that a test starts.
const faultVariable = "LEADLOG_STORETEST_FAULT"

// TestTheSuiteCatches runs groups of the suite against faulty stores and names the law that each must break.
func TestTheSuiteCatches(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault fault
		law   string // group, and the sentence in it
	}{
		{wrongActual, "expectations/a stream that went on is a conflict"},
		{laxAny, "expectations/an append that expects nothing"},
		{lastConflict, "several streams/of several conflicts the first"},
		{halfAppend, "several streams/an append with a conflict writes nothing"},
		{ignoredChecks, "checks/a check that fails refuses the append"},
		{lateCheck, "races/nothing that checked a stream is stored after"},
		{freshRetry, "the same append again/returns the same position"},
		{doubledRetry, "the same append again/is the same when it expects nothing"},
		{doubledRetry, "races/one append sent many times"},
		{retryAtHead, "the same append again/is the same after others followed"},
		{retryByChecks, "the same append again/is the same although what it checked has moved"},
		{retryByPrefix, "the same append again/is told from one that only begins alike"},
		{unvalidated, "what is not well formed/a stream that is written twice"},
		{firstPosition, "expectations/a new stream is begun"},
		{checkedToZero, "the whole log/an append of nothing but checks"},
		{gaps, "the whole log/positions count from one"},
		{skipped, "many writers/ten thousand"},
		{doubled, "many writers/ten thousand"},
		{shuffled, "subscriptions/from the start"},
		{noMarks, "subscriptions/reports progress past"},
		{farMarks, "subscriptions/reports progress past"},
		{eagerMarks, "subscriptions/from the start"},
		{patternPrefixes, "stream names/a prefix is text"},
		{ignoredTypes, "filters/a type alone"},
		{localTimes, "round trip/times are UTC"},
		{seconds, "round trip/times are UTC"},
		{tidyData, "round trip/data comes back byte for byte"},
		{lostMetadata, "round trip/every field"},
		{wrongActual, "the model/any sequence"},
		{retryAtHead, "the model/any sequence"},
		{skipped, "the model/any sequence"},
	} {
		t.Run(string(c.fault)+", by "+c.law, func(t *testing.T) {
			t.Parallel()
			path := "TestMemoryStore/" + c.law
			output := runFaulty(t, c.fault, path)
			require.Contains(t, output, "--- FAIL: "+strings.ReplaceAll(path, " ", "_"))
		})
	}
}

// runFaulty runs a test of this program in a process of its own, where the memory store has a fault.
func runFaulty(t *testing.T, faulty fault, path string) string {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	pattern := "^" + strings.ReplaceAll(path, "/", "$/^")
	run := exec.CommandContext(t.Context(), program, "-test.run="+pattern, "-rapid.nofailfile", "-rapid.shrinktime=0s")
	run.Env = append(os.Environ(), faultVariable+"="+string(faulty))
	output, err := run.CombinedOutput()
	require.Error(t, err, "the suite took the fault:\n%s", output)
	return string(output)
}
