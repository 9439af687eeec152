package pgtest

import (
	"net/url"
	"os"
	"strings"
	"testing"
)

// Disconnect makes a test's database as good as down: nobody can connect, and every session in it ends.
func Disconnect(t testing.TB, address string) {
	t.Helper()
	name := nameIn(t, address)
	outage(t, "ALTER DATABASE "+quote(name)+" ALLOW_CONNECTIONS false")
	outage(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '"+strings.ReplaceAll(name, "'", "''")+"'")
}

// Reconnect ends what Disconnect began.
func Reconnect(t testing.TB, address string) {
	t.Helper()
	outage(t, "ALTER DATABASE "+quote(nameIn(t, address))+" ALLOW_CONNECTIONS true")
}

func outage(t testing.TB, statement string) {
	t.Helper()
	if err := execute(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

func nameIn(t testing.TB, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal("not the address of a test's database")
	}
	return strings.TrimPrefix(u.Path, "/")
}

// Beside is the address of another database on the server of a test's database: for what cannot be asked for from within.
func Beside(t testing.TB, address string) string {
	t.Helper()
	other, err := withDatabase(address, nameIn(t, os.Getenv(URLVariable)))
	if err != nil {
		t.Fatal(err)
	}
	return other
}
