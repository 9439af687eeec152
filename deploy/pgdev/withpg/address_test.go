package main

import (
	"net"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// reserve returns an address of a checkout, and the URL at which it leads to a new socket.
func reserve(t *testing.T, checkout string) (*address, string) {
	t.Helper()
	t.Chdir(checkout)
	a, err := reserveAddress()
	require.NoError(t, err)
	t.Cleanup(func() { a.lock.Close() })
	dir := t.TempDir()
	listener, err := net.Listen("unix", filepath.Join(dir, ".s.PGSQL.16384"))
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	database, err := a.link("postgres://leadlog@/leadlog?host=" + url.QueryEscape(dir) + "&port=16384")
	require.NoError(t, err)
	u, err := url.Parse(database)
	require.NoError(t, err)
	require.Equal(t, "leadlog", u.User.Username())
	require.Equal(t, "/leadlog", u.Path)
	conn, err := net.Dial("unix", filepath.Join(u.Query().Get("host"), ".s.PGSQL."+u.Query().Get("port")))
	require.NoError(t, err)
	conn.Close()
	return a, database
}

func TestAddress_SameInNextRun(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	checkout, another := t.TempDir(), t.TempDir()
	first, url := reserve(t, checkout)
	_, concurrent := reserve(t, checkout)
	require.NotEqual(t, url, concurrent, "two runs at once")
	_, elsewhere := reserve(t, another)
	require.NotEqual(t, url, elsewhere, "another checkout")
	require.NoError(t, first.lock.Close())
	_, next := reserve(t, checkout)
	require.Equal(t, url, next)
}
