package pgtest

import "testing"

// System skips a test in the short mode of go test, which make test and make race use. It is for tests that take many
// seconds, or need a browser: chaos, faults, failovers, restores, and repeats on a second engine. make system runs
// them.
func System(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("make system runs it")
	}
}
