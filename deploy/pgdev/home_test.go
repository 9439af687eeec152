package pgdev

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestInitdb_Interrupted(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	half := filepath.Join(dir, ".initdb-1", "base")
	require.NoError(t, os.MkdirAll(half, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(half), "PG_VERSION"), []byte("15\n"), 0o600))
	require.Equal(t, "1", ask(t, started(t, dir).URL(), `SELECT '1'`))
	require.NoDirExists(t, filepath.Dir(half))
}

func TestSocketDir_InterruptedStart(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	h, err := homeIn(dir, fallbackRoot, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(h.socketDir(), 0o700)) // it was to be given to PostgreSQL's user next
	stopped(t, started(t, dir))
}

func TestHome_UnreachableDirectory(t *testing.T) {
	t.Parallel()
	parent := newDir(t)
	require.NoError(t, os.MkdirAll(parent, 0o700))
	dir, fallback := filepath.Join(parent, "data"), filepath.Join(newDir(t), "lib")
	var said strings.Builder
	log := slog.New(slog.NewTextHandler(&said, nil))
	h, err := homeIn(dir, fallback, log)
	require.NoError(t, err)
	if os.Geteuid() != 0 {
		require.Equal(t, dir, h.dir, "a plain user reaches what is its own")
		return
	}
	require.Equal(t, fallback, filepath.Dir(h.dir))
	require.Contains(t, said.String(), h.dir)
	require.True(t, h.account.reaches(h.dir))

	// Once the data is there it stays there, even when the directory can be reached later.
	require.NoError(t, h.account.mkdir(h.cluster()))
	require.NoError(t, os.Chmod(parent, 0o755))
	again, err := homeIn(dir, fallback, log)
	require.NoError(t, err)
	require.Equal(t, h, again)
}

// A service connects to its PostgreSQL by the port, which a restart must find free. The ephemeral range of Linux begins
// at 32768, those of others later.
func TestFreePort_BelowEphemeralRange(t *testing.T) {
	t.Parallel()
	for range 100 {
		port, err := freePort(0)
		require.NoError(t, err)
		require.Less(t, port, 32768)
	}
}

func TestSocketDir_LongPath(t *testing.T) {
	t.Parallel()
	s := started(t, filepath.Join(newDir(t), strings.Repeat("long", 20), "with space"))
	require.Equal(t, "1", ask(t, s.URL(), `SELECT '1'`))
	socketDir := s.home.socketDir()
	require.Less(t, len(socketDir), longestSocketDir)
	stopped(t, s)
	require.NoDirExists(t, socketDir)
}

func TestThrowaway_Removed(t *testing.T) {
	t.Parallel()
	s, err := Start(t.Context(), Options{Throwaway: true})
	require.NoError(t, err)
	require.Equal(t, "off", ask(t, s.URL(), `SHOW fsync`))
	stopped(t, s)
	waitFor(t, s.Done())
	require.NoDirExists(t, s.Dir())
}

func TestThrowaway_SweptAfterKill(t *testing.T) {
	t.Parallel()
	orphan, err := Start(t.Context(), Options{Throwaway: true})
	require.NoError(t, err)
	killed(orphan)
	next, err := Start(t.Context(), Options{Throwaway: true})
	require.NoError(t, err)
	t.Cleanup(func() { stopped(t, next) })
	waitFor(t, orphan.Done())
	require.Eventually(t, func() bool { return !exists(orphan.Dir()) }, testTimeout, 10*time.Millisecond)
}

func TestNoBinariesError(t *testing.T) {
	t.Parallel()
	_, err := findBinaries(99)
	var missing *NoBinariesError
	require.ErrorAs(t, err, &missing)
	require.ErrorContains(t, err, "apt-get install postgresql-99")
	require.ErrorContains(t, &NoBinariesError{}, "make postgres")
}
