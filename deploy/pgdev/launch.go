package pgdev

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// retryFor is how long a start is retried after a kill -9: busy backends of the old server do not notice their
	// parent's death, and hold its shared memory.
	retryFor = 30 * time.Second
	// largestLog is the size in bytes above which postgres.log is rotated at a start.
	largestLog = 10 << 20
)

// accessRules trust connections over the socket, which its directory's mode protects, and require the password over
// TCP.
const accessRules = `local all,replication all   trust
host  all leadlog 127.0.0.1/32 scram-sha-256
`

// errTransient means that a starting server has ended, and another attempt may succeed.
var errTransient = errors.New("PostgreSQL could not start yet")

// launch starts the server. If there is no cluster, it creates one first.
func (s *Server) launch(ctx context.Context, opts Options) error {
	major, err := s.home.clusterMajor()
	if err != nil {
		return err
	}
	binaries, err := findBinaries(major)
	if err != nil {
		return err
	}
	switch {
	case major == 0 && opts.StandbyOf != nil:
		err = s.home.basebackup(ctx, binaries, opts.StandbyOf)
	case major == 0:
		err = s.home.initdb(ctx, binaries, opts.Throwaway)
	}
	if err != nil {
		return err
	}
	if err := s.home.write(s.home.hbaFile(), accessRules, 0o644); err != nil {
		return err
	}
	for deadline := time.Now().Add(retryFor); ; {
		err := s.launchOnce(ctx, binaries, opts)
		if !errors.Is(err, errTransient) || time.Now().After(deadline) {
			return err
		}
		s.log.InfoContext(ctx, "retrying the start of PostgreSQL", "reason", err)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (s *Server) launchOnce(ctx context.Context, binaries Binaries, opts Options) error {
	port, err := freePort(s.home.lastPort())
	if err != nil {
		return err
	}
	socketDir, err := s.home.prepareSocketDir()
	if err != nil {
		return err
	}
	logFile, err := s.home.openLog()
	if err != nil {
		return err
	}
	defer logFile.Close()
	logged, err := logFile.Seek(0, 2)
	if err != nil {
		return err
	}

	args := []string{"-D", s.home.cluster()}
	for _, setting := range settings(opts, s.home, port, socketDir) {
		args = append(args, "-c", setting)
	}
	// The server outlives ctx: Stop ends it.
	cmd := s.home.account.command(context.WithoutCancel(ctx), filepath.Join(binaries.Dir, "postgres"), args...)
	// A file, not a pipe: PostgreSQL continues to write to it when this process is killed.
	cmd.Stdout, cmd.Stderr = logFile, logFile
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting PostgreSQL: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // the reason is in PostgreSQL's log, unless it was killed
	}()

	s.running = postmaster{pid: cmd.Process.Pid, port: port, socketDir: socketDir}
	for !s.running.accepts(ctx) {
		select {
		case <-ended:
			if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
				return fmt.Errorf("%w: %s", errTransient, cmd.ProcessState)
			}
			return s.home.whyEnded(logged)
		case <-ctx.Done():
			_ = cmd.Process.Signal(syscall.SIGQUIT)
			<-ended
			return fmt.Errorf("starting PostgreSQL: %w", context.Cause(ctx))
		case <-time.After(poll):
		}
	}
	s.done = ended
	return s.home.write(s.home.portFile(), strconv.Itoa(port)+"\n", 0o600)
}

// whyEnded returns an error with PostgreSQL's log since an offset. Its messages are in English, since lc_messages is C.
func (h home) whyEnded(since int64) error {
	text, err := os.ReadFile(h.logFile())
	if err != nil {
		return err
	}
	logged := strings.TrimSpace(string(text[min(since, int64(len(text))):]))
	for _, transient := range []string{
		"pre-existing shared memory block",      // backends of a killed server still hold it
		"could not create any TCP/IP sockets",   // the port was taken after freePort
		"could not bind IPv4 address",           // likewise
		"lock file \"postmaster.pid\" is empty", // a server was killed while it wrote the file
	} {
		if strings.Contains(logged, transient) {
			return fmt.Errorf("%w: %s", errTransient, logged)
		}
	}
	return fmt.Errorf("PostgreSQL ended while starting; its log:\n%s", logged)
}

func (h home) openLog() (*os.File, error) {
	if info, err := os.Lstat(h.logFile()); err == nil && info.Size() > largestLog {
		if err := os.Rename(h.logFile(), h.logFile()+".old"); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(h.logFile(), os.O_WRONLY|os.O_CREATE|os.O_APPEND|syscall.O_NOFOLLOW, 0o600)
}

// clusterMajor is the version that created the cluster; 0 if there is none.
func (h home) clusterMajor() (int, error) {
	text, err := os.ReadFile(filepath.Join(h.cluster(), "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) && !exists(h.cluster()) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("%s/PG_VERSION: %w", h.cluster(), err)
	}
	return major, nil
}

// settings are the server's settings as name=value, sorted.
func settings(opts Options, h home, port int, socketDir string) []string {
	all := map[string]string{
		"port":                       strconv.Itoa(port),
		"listen_addresses":           "127.0.0.1",
		"unix_socket_directories":    socketDir,
		"hba_file":                   h.hbaFile(),
		"timezone":                   "UTC",
		"log_timezone":               "UTC",
		"jit":                        "off",
		"max_connections":            "200",
		"shared_buffers":             "256MB",
		"max_wal_size":               "2GB",
		"fsync":                      "on",
		"full_page_writes":           "on",
		"synchronous_commit":         "on",
		"logging_collector":          "off",
		"log_destination":            "stderr",
		"lc_messages":                "C",
		"password_encryption":        "scram-sha-256",
		"log_statement":              "none",
		"log_error_verbosity":        "terse", // details of an error quote rows, which have personal data
		"log_min_error_statement":    "panic", // statements have personal data too
		"log_min_duration_statement": "-1",
	}
	if opts.Throwaway {
		maps.Copy(all, map[string]string{
			"max_connections": "800", "shared_buffers": "64MB",
			"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off",
			"autovacuum": "off", // it starts a process for each of the many short-lived databases in turn
		})
	}
	maps.Copy(all, opts.Settings)
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		pairs = append(pairs, name+"="+all[name])
	}
	return pairs
}

// freePort returns the wanted loopback port if it is free, and otherwise one that is below the ephemeral range if
// possible, so that no other socket gets the port during a restart.
func freePort(wanted int) (int, error) {
	var ports []int
	if wanted > 0 {
		ports = append(ports, wanted)
	}
	for range 16 {
		ports = append(ports, 16_384+rand.IntN(16_384))
	}
	for _, port := range append(ports, 0) {
		if free, err := listenOn(port); err == nil {
			return free, nil
		}
	}
	return 0, errors.New("no free port on 127.0.0.1")
}

// listenOn returns a port if it is free, or any free one for 0.
func listenOn(port int) (int, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}
