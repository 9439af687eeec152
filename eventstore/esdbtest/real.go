package esdbtest

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

const (
	// URLVariable names the address of a real server for tests that do not need their own. It need not be empty.
	URLVariable = "LEADLOG_TEST_ESDB_URL"

	// StartVariable names a program that starts an empty real server, prints its address as one line, and stops it on
	// SIGTERM. It is run for each test that needs its own server.
	StartVariable = "LEADLOG_TEST_ESDB_START"
)

// Shared returns the address of a server that others may use too, so the test must use its own namespace: the real
// server at URLVariable, or a new test server, with AppendRecords, if that is not set.
func Shared(t testing.TB) string {
	t.Helper()
	if address := os.Getenv(URLVariable); address != "" {
		return address
	}
	return Empty(t)
}

// Empty returns the address of an empty server for this test alone: a real one if StartVariable names a program that
// starts it, otherwise a test server with AppendRecords.
func Empty(t testing.TB) string {
	t.Helper()
	program := os.Getenv(StartVariable)
	if program == "" {
		server := Start(t)
		server.Upgrade()
		return server.URL()
	}
	command := exec.Command(program) //nolint:gosec,noctx // the program named by the variable; it ends with the test
	command.Stderr = t.Output()
	out, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		t.Fatalf("%s: %v", StartVariable, err)
	}
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		_ = command.Wait() // it is terminated by the signal
	})
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("%s printed no address: %v", StartVariable, err)
	}
	return strings.TrimSpace(address)
}
