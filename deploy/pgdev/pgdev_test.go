package pgdev

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// testTimeout bounds every wait of these tests.
const testTimeout = 3 * time.Minute

// newDir is a data directory that PostgreSQL's user can reach.
func newDir(t *testing.T) string {
	t.Helper()
	parent, err := MkdirTemp("pgdev-test-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(parent)) })
	return filepath.Join(parent, "data")
}

func started(t *testing.T, dir string) *Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	// Small, so that several fit beside each other.
	s, err := Start(ctx, Options{Dir: dir, Settings: map[string]string{"shared_buffers": "16MB", "fsync": "off"}})
	require.NoError(t, err)
	t.Cleanup(func() { stopped(t, s) })
	return s
}

func stopped(t *testing.T, s *Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	require.NoError(t, s.Stop(ctx))
}

func ask(t *testing.T, url, query string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	var answer string
	require.NoError(t, conn.QueryRow(t.Context(), query).Scan(&answer))
	return answer
}

func execute(t *testing.T, url, statement string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), statement)
	require.NoError(t, err)
}

// killed has the effect of a kill -9 of this process: the kernel releases its lock, and PostgreSQL continues to run.
func killed(s *Server) { s.stopOnce.Do(func() { close(s.stopping); s.users.Close() }) }

func waitFor(t *testing.T, ended <-chan struct{}) {
	t.Helper()
	select {
	case <-ended:
	case <-time.After(testTimeout):
		require.FailNow(t, "PostgreSQL has not ended")
	}
}

func TestStart_KeepsData(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	first := started(t, dir)
	require.False(t, first.Adopted())
	require.Equal(t, Role, ask(t, first.URL(), `SELECT current_user`))
	require.Equal(t, "off", ask(t, first.URL(), `SELECT current_setting('is_superuser')`))
	require.Equal(t, "on", ask(t, first.URL(), `SELECT current_setting('data_checksums')`))
	execute(t, first.URL(), `CREATE TABLE lead AS SELECT 'kept' AS note`)
	stopped(t, first)
	waitFor(t, first.Done())

	second := started(t, dir)
	require.Equal(t, "kept", ask(t, second.TCPURL(), `SELECT note FROM lead`))
	require.Equal(t, first.TCPURL(), second.TCPURL(), "port and password stay the same")
}

func TestStart_NotAsRoot(t *testing.T) {
	t.Parallel()
	s := started(t, newDir(t))
	uid, _, err := ownerOf(s.home.cluster())
	require.NoError(t, err)
	require.NotZero(t, uid)
	info, err := os.Stat(s.home.cluster())
	require.NoError(t, err)
	require.Equal(t, os.ModeDir|0o700, info.Mode())
}

func TestTCPURL_Password(t *testing.T) {
	t.Parallel()
	s := started(t, newDir(t))
	for _, url := range []string{
		strings.Replace(s.TCPURL(), s.password, "wrong", 1),
		strings.Replace(s.TCPURL(), Role+":"+s.password, superuser+":x", 1),
	} {
		_, err := pgx.Connect(t.Context(), url)
		require.Error(t, err)
	}
	info, err := os.Stat(filepath.Join(s.Dir(), "password"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
}

func TestStart_AfterKill(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	first := started(t, dir)
	execute(t, first.URL(), `CREATE TABLE lead AS SELECT 'kept' AS note`)
	require.NoError(t, syscall.Kill(first.running.pid, syscall.SIGKILL))
	waitFor(t, first.Done())
	stopped(t, first)

	second := started(t, dir)
	require.False(t, second.Adopted())
	require.Equal(t, "kept", ask(t, second.URL(), `SELECT note FROM lead`))
}

// The recovering server may be killed too.
func TestStart_RetriesAfterKill(t *testing.T) {
	t.Parallel()
	// The program is written long before it is started: for as long as a child of another test has it open, its text is
	// busy.
	programs := filepath.Dir(newDir(t))
	does := filepath.Join(programs, "does")
	require.NoError(t, os.WriteFile(filepath.Join(programs, "postgres"), []byte("#!/bin/sh\n. "+does+"\n"), 0o755))
	s := started(t, newDir(t))
	stopped(t, s)
	for script, again := range map[string]bool{"kill -9 $$": true, "exit 1": false} {
		require.NoError(t, os.WriteFile(does, []byte(script), 0o644))
		err := s.launchOnce(t.Context(), Binaries{Dir: programs}, Options{})
		require.Error(t, err)
		require.Equal(t, again, errors.Is(err, errTransient), "%s: %s", script, err)
	}
}

// A busy backend does not notice that its parent was killed, and holds the shared memory.
func TestStart_BusyBackendOutlivesKill(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	first := started(t, dir)
	conn, err := pgx.Connect(t.Context(), first.URL())
	require.NoError(t, err)
	busy := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.WithoutCancel(t.Context()),
			`DO $$ BEGIN WHILE clock_timestamp() < now() + interval '10 minutes' LOOP END LOOP; END $$`)
		busy <- err
	}()
	require.Eventually(t, func() bool {
		return ask(t, first.URL(),
			`SELECT count(*)::text FROM pg_stat_activity WHERE query LIKE 'DO %' AND state = 'active'`) == "1"
	}, testTimeout, 10*time.Millisecond)
	require.NoError(t, syscall.Kill(first.running.pid, syscall.SIGKILL))
	waitFor(t, first.Done())
	go func() {
		for text := ""; !strings.Contains(text, "pre-existing shared memory block"); time.Sleep(10 * time.Millisecond) {
			read, _ := os.ReadFile(first.home.logFile())
			text = string(read)
		}
		_ = syscall.Kill(int(conn.PgConn().PID()), syscall.SIGKILL)
	}()
	require.Equal(t, "1", ask(t, started(t, dir).URL(), `SELECT '1'`))
	<-busy
}

func TestStart_AdoptsRunning(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	first := started(t, dir)
	killed(first)

	second := started(t, dir)
	require.True(t, second.Adopted())
	require.Equal(t, first.URL(), second.URL())
	require.Equal(t, "1", ask(t, second.URL(), `SELECT '1'`))
	stopped(t, second)
	waitFor(t, first.Done())
}

func TestStop_ByLastUser(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	first, second := started(t, dir), started(t, dir)
	require.True(t, second.Adopted())
	stopped(t, first)
	require.Equal(t, "1", ask(t, second.URL(), `SELECT '1'`))
	stopped(t, second)
	waitFor(t, first.Done())
	require.Nil(t, second.home.postmaster())
}

func TestStart_Concurrent(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	const starters = 4
	servers, errs := make([]*Server, starters), make([]error, starters)
	var wait sync.WaitGroup
	for i := range starters {
		wait.Go(func() { servers[i], errs[i] = Start(t.Context(), Options{Dir: dir}) })
	}
	wait.Wait()
	adopted := 0
	for i, s := range servers {
		require.NoError(t, errs[i])
		t.Cleanup(func() { stopped(t, s) })
		require.Equal(t, servers[0].running.pid, s.running.pid)
		if s.Adopted() {
			adopted++
		}
	}
	require.Equal(t, starters-1, adopted)
}

// At the next start, postmaster.pid may have the pid of another program, after a reboot, or of a zombie, in a container
// without a process that reaps it.
func TestStart_StalePidFile(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]func(*testing.T, account) int{
		"this process": func(*testing.T, account) int { return os.Getpid() },
		"another program of PostgreSQL's own user": sleeper,
		"a zombie of PostgreSQL's own user":        zombie,
		"no process":                               func(*testing.T, account) int { return 1<<22 - 1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := newDir(t)
			first := started(t, dir)
			pidFile, err := os.ReadFile(first.home.pidFile())
			require.NoError(t, err)
			socket := filepath.Join(first.running.socketDir, ".s.PGSQL."+strconv.Itoa(first.running.port)+".lock")
			stopped(t, first)

			_, rest, _ := strings.Cut(string(pidFile), "\n")
			pid := strconv.Itoa(other(t, first.home.account))
			require.NoError(t, first.home.account.mkdir(filepath.Dir(socket)))
			for _, path := range []string{first.home.pidFile(), socket} {
				require.NoError(t, os.WriteFile(path, []byte(pid+"\n"+rest), 0o600))
				require.NoError(t, os.Chown(path, int(first.home.account.uid), int(first.home.account.gid)))
			}
			second := started(t, dir)
			require.False(t, second.Adopted())
			require.Equal(t, "1", ask(t, second.URL(), `SELECT '1'`))
		})
	}
}

func sleeper(t *testing.T, a account) int {
	t.Helper()
	cmd := a.command(t.Context(), "sleep", "600")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd.Process.Pid
}

func zombie(t *testing.T, a account) int {
	t.Helper()
	cmd := a.command(t.Context(), "true")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Wait() })
	require.Eventually(t, func() bool {
		state, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(cmd.Process.Pid)).Output()
		return err == nil && strings.HasPrefix(string(state), "Z")
	}, testTimeout, 10*time.Millisecond)
	return cmd.Process.Pid
}
