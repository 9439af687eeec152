package pgdev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// poll is the interval between looks at a server that starts or ends.
const poll = 20 * time.Millisecond

// postmaster is PostgreSQL's main process, from postmaster.pid. During its start, port and socketDir may be missing.
type postmaster struct {
	pid, port int
	socketDir string
}

func (h home) pidFile() string { return filepath.Join(h.cluster(), "postmaster.pid") }

// postmaster returns the running server of the cluster, or nil. postmaster.pid may be stale.
func (h home) postmaster() *postmaster {
	text, err := os.ReadFile(h.pidFile())
	if err != nil {
		return nil
	}
	p := parsePostmaster(string(text))
	if p.pid <= 1 || !p.alive(h.cluster()) {
		return nil
	}
	return &p
}

// parsePostmaster reads pid, data directory, start time, port and socket directory, one a line.
func parsePostmaster(text string) postmaster {
	lines := strings.Split(text, "\n")
	var p postmaster
	p.pid, _ = strconv.Atoi(strings.TrimSpace(lines[0]))
	if len(lines) > 5 { // the fifth line is whole only when a newline ends it
		p.port, _ = strconv.Atoi(strings.TrimSpace(lines[3]))
		p.socketDir = strings.TrimSpace(lines[4])
	}
	return p
}

// alive reports whether the process is the cluster's PostgreSQL, not a zombie or another program.
func (p postmaster) alive(cluster string) bool { return isPostgres(p.pid, cluster) }

// accepts reports whether the server accepts sessions.
func (p postmaster) accepts(ctx context.Context) bool {
	if p.port == 0 || p.socketDir == "" || !exists(filepath.Join(p.socketDir, fmt.Sprintf(".s.PGSQL.%d", p.port))) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	s := Server{running: p}
	conn, err := pgx.Connect(ctx, s.socketURL(superuser, "postgres"))
	if err != nil {
		// 53300, too many connections: it accepts sessions.
		var refused *pgconn.PgError
		return errors.As(err, &refused) && refused.Code == "53300"
	}
	_ = conn.Close(ctx)
	return true
}

// stop requests a fast shutdown, with a checkpoint, then an immediate one, from which the next start recovers. A
// throwaway cluster needs no checkpoint.
func (p postmaster) stop(ctx context.Context, cluster string, throwaway bool) error {
	signals := []os.Signal{syscall.SIGINT, syscall.SIGQUIT}
	if throwaway {
		signals = []os.Signal{syscall.SIGQUIT, syscall.SIGKILL}
	}
	process, err := os.FindProcess(p.pid)
	if err != nil {
		return err
	}
	for i, signal := range signals {
		timeout := 30 * time.Second
		if i > 0 {
			timeout = 10 * time.Second
		}
		if err := process.Signal(signal); errors.Is(err, os.ErrProcessDone) {
			return nil
		} else if err != nil {
			return fmt.Errorf("stopping PostgreSQL (pid %d): %w", p.pid, err)
		}
		if p.ends(ctx, cluster, timeout) {
			return nil
		}
	}
	return fmt.Errorf("PostgreSQL (pid %d) does not end", p.pid)
}

// ends waits for the process's end. It may outlast ctx by a second: the second signal must follow, so that no server is
// left.
func (p postmaster) ends(ctx context.Context, cluster string, timeout time.Duration) bool {
	limit := time.NewTimer(timeout)
	defer limit.Stop()
	cancelled := ctx.Done()
	for p.alive(cluster) {
		select {
		case <-cancelled:
			cancelled = nil
			limit.Reset(time.Second)
		case <-limit.C:
			return !p.alive(cluster)
		case <-time.After(poll):
		}
	}
	return true
}

// adopt returns the running server of the cluster once it accepts connections, or nil if none is running.
func (h home) adopt(ctx context.Context) (*postmaster, error) {
	for {
		running := h.postmaster()
		if running == nil {
			return nil, h.clearStalePidFile()
		}
		if running.accepts(ctx) {
			return running, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for the running PostgreSQL (pid %d): %w", running.pid, context.Cause(ctx))
		case <-time.After(poll):
		}
	}
}

// clearStalePidFile removes postmaster.pid if its pid is a zombie or another program; PostgreSQL itself handles a pid
// that does not exist. This is safe: the shared memory's key, from the data directory's inode, still prevents a second
// server.
func (h home) clearStalePidFile() error {
	text, err := os.ReadFile(h.pidFile())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if p := parsePostmaster(string(text)); p.pid > 1 && errors.Is(syscall.Kill(p.pid, 0), syscall.ESRCH) {
		return nil
	}
	return os.Remove(h.pidFile())
}
