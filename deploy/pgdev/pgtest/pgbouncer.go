package pgtest

import (
	"bytes"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// Pgbouncer starts the program pgbouncer, which make system installs, before the database of an address until the test
// ends. Mode is its pool_mode, and sessions how many it opens at most. It returns the database's address through it.
func Pgbouncer(t testing.TB, address, mode string, sessions int) string {
	t.Helper()
	server := NewProxy(t, address) // PostgreSQL may have a socket only, in a directory that is closed to pgbouncer
	host, port, err := net.SplitHostPort(server.address)
	must(t, err)
	config := server.config
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		program = "/usr/sbin/pgbouncer" // which is in no user's PATH
	}
	dir, err := os.MkdirTemp("", "pgbouncer") // shorter than that of the test, for the address of a socket
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	file, log := filepath.Join(dir, "pgbouncer.ini"), filepath.Join(dir, "log")
	target := fmt.Sprintf("%s = host=%s port=%s user=%s", config.Database, host, port, config.User)
	if config.Password != "" {
		target += " password=" + config.Password
	}
	must(t, os.WriteFile(file, fmt.Appendf(nil, `[databases]
%s pool_mode=%s pool_size=%d
[pgbouncer]
listen_addr =
listen_port = %d
unix_socket_dir = %s
auth_type = any
max_client_conn = 500
logfile = %s
`, target, mode, sessions, pgbouncerPort, dir, log), 0o600))
	command := exec.Command(program, "-q", file)
	if os.Getuid() == 0 { // as which it does not run
		const nobody = 65534
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		must(t, os.Chown(dir, nobody, nobody))
		must(t, os.Chown(file, nobody, nobody))
	}
	var printed bytes.Buffer
	command.Stderr = &printed
	must(t, command.Start())
	exited := make(chan struct{})
	go func() {
		_ = command.Wait()
		close(exited)
	}()
	t.Cleanup(func() {
		_ = command.Process.Kill()
		<-exited
		if written, _ := os.ReadFile(log); t.Failed() {
			t.Logf("pgbouncer: %s%s", printed.Bytes(), written)
		}
	})
	socket := filepath.Join(dir, fmt.Sprintf(".s.PGSQL.%d", pgbouncerPort))
	for {
		if conn, err := net.Dial("unix", socket); err == nil {
			must(t, conn.Close())
			break
		}
		select {
		case <-exited:
			t.Fatal("pgbouncer ended")
		case <-time.After(20 * time.Millisecond):
		}
	}
	return (&url.URL{
		Scheme: "postgres", User: url.User(config.User), Path: "/" + config.Database,
		RawQuery: url.Values{"host": {dir}, "port": {strconv.Itoa(pgbouncerPort)}}.Encode(),
	}).String()
}

const pgbouncerPort = 6432 // of a socket in its own directory
