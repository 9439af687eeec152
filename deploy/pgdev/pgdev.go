// Package pgdev runs a private PostgreSQL for development and for tests: it finds the installed binaries, creates a
// cluster, starts it as an unprivileged user, and stops it with the last process that uses it.
//
// All files of a cluster are in one directory, its home:
//
//	postgres/      the cluster itself, 0700, owned by PostgreSQL's user
//	socket/        the unix socket, 0700, same owner (elsewhere when the path is too long for a socket)
//	start.lock     held while a process starts or stops the cluster
//	users.lock     held shared by every process that uses the cluster
//	password       of the role leadlog over TCP, 0600
//	port           the loopback port used last, so that it stays the same from start to start
//	pg_hba.conf    who may connect
//	postgres.log   PostgreSQL's log
//
// The kernel releases both locks when a process ends, even by a kill. So the last process stops PostgreSQL, and the
// next process adopts a PostgreSQL that a killed process left, and stops it in turn.
package pgdev

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// Role and DatabaseName are created by Start. The role may log in and create databases. As in production, it is no
// superuser.
const (
	Role         = "leadlog"
	DatabaseName = "leadlog"
)

// ErrNone means that a directory has no cluster.
var ErrNone = errors.New("there is no database")

// Options select a cluster and its settings.
type Options struct {
	// Dir is the data directory, created if it is missing. Default ".leadlog". A throwaway cluster ignores it.
	Dir string
	// Existing makes Start return ErrNone instead of creating a cluster.
	Existing bool
	// Throwaway starts a new cluster in a temporary directory, without durability, and removes it at Stop.
	Throwaway bool
	// Log receives the address of the cluster and messages about recovery. Default: none.
	Log *slog.Logger
	// Settings are added to the server's settings, or replace them. An adopted server keeps its own.
	Settings map[string]string
	// StandbyOf makes the new cluster a standby of a running server, with StandbyName as its application_name there.
	StandbyOf *Server
}

// Server is a running PostgreSQL.
type Server struct {
	log       *slog.Logger
	home      home
	throwaway bool
	users     *os.File
	password  string
	running   postmaster
	adopted   bool

	done     chan struct{}
	stopping chan struct{}
	stopOnce sync.Once
	stopErr  error
}

// Start starts the cluster, or adopts the PostgreSQL that already serves it, and returns when it accepts connections.
// Concurrent starts on one directory are safe: the second adopts the server of the first.
func Start(ctx context.Context, opts Options) (*Server, error) {
	log := opts.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	h, err := openHome(opts, log)
	if err != nil {
		return nil, fmt.Errorf("pgdev: %w", err)
	}
	s := &Server{log: log, home: h, throwaway: opts.Throwaway, done: make(chan struct{}), stopping: make(chan struct{})}
	if err := s.start(ctx, opts); err != nil {
		return nil, fmt.Errorf("pgdev: %w", err)
	}
	return s, nil
}

func (s *Server) start(ctx context.Context, opts Options) error {
	starting, err := lockExclusive(ctx, s.home.startLock())
	if err != nil {
		return err
	}
	defer starting.Close()
	if s.users, err = lockShared(s.home.usersLock()); err != nil {
		return err
	}
	if s.throwaway {
		if s.home, err = s.home.named(); err != nil {
			return err
		}
	}
	if err := s.open(ctx, opts); err != nil {
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		if stopErr := s.leave(cleanup); stopErr != nil {
			s.log.WarnContext(cleanup, "could not stop PostgreSQL after a failed start", "error", stopErr)
		}
		return err
	}
	return nil
}

// open starts or adopts a server, and creates the role and the database.
func (s *Server) open(ctx context.Context, opts Options) error {
	running, err := s.home.adopt(ctx)
	if err != nil {
		return err
	}
	if running != nil {
		s.adopted, s.running = true, *running
		s.log.InfoContext(ctx, "adopted the PostgreSQL that was already running", "dir", s.home.dir, "pid", running.pid)
		go s.watchAdopted()
	} else if err := s.launch(ctx, opts); err != nil {
		return err
	}
	if opts.StandbyOf != nil {
		return nil // it replicates the primary's role and database
	}
	if s.password, err = s.home.passwordOf(); err != nil {
		return err
	}
	return s.provision(ctx)
}

// Dir is the directory of the cluster and its files.
func (s *Server) Dir() string { return s.home.dir }

// Adopted reports whether the server was already running at Start.
func (s *Server) Adopted() bool { return s.adopted }

// Done is closed when PostgreSQL has ended, for any reason.
func (s *Server) Done() <-chan struct{} { return s.done }

// URL is the database's address over the unix socket, which only the cluster's owner and root can reach.
func (s *Server) URL() string { return s.socketURL(Role, DatabaseName) }

// TCPURL is the database's address on 127.0.0.1, for programs that cannot use the socket. It contains the password.
func (s *Server) TCPURL() string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(Role, s.password), Path: "/" + DatabaseName,
		Host:     "127.0.0.1:" + strconv.Itoa(s.running.port),
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

func (s *Server) socketURL(role, database string) string {
	query := url.Values{"host": {s.running.socketDir}, "port": {strconv.Itoa(s.running.port)}}
	u := url.URL{Scheme: "postgres", User: url.User(role), Path: "/" + database, RawQuery: query.Encode()}
	return u.String()
}

// Stop ends this process's use of the server. The last user stops PostgreSQL, whether it was started or adopted. A
// throwaway cluster is removed. Further calls return the first result.
func (s *Server) Stop(ctx context.Context) error {
	s.stopOnce.Do(func() {
		starting, err := lockExclusive(ctx, s.home.startLock())
		if err != nil {
			s.stopErr = fmt.Errorf("pgdev: %w", err)
			return
		}
		defer starting.Close()
		if err := s.leave(ctx); err != nil {
			s.stopErr = fmt.Errorf("pgdev: %w", err)
		}
	})
	return s.stopErr
}

// leave requires start.lock, so that no other process begins to use the server before the stop.
func (s *Server) leave(ctx context.Context) error {
	defer s.users.Close()
	defer close(s.stopping)
	last, err := lockAlone(s.users)
	if err != nil {
		return err
	}
	if !last {
		s.log.InfoContext(ctx, "PostgreSQL is not stopped: it is still in use", "dir", s.home.dir)
		return nil
	}
	// Not the postmaster of Start, since another process may have restarted PostgreSQL.
	if running := s.home.postmaster(); running != nil {
		if err := running.stop(ctx, s.home.cluster(), s.throwaway); err != nil {
			return err
		}
	}
	if s.throwaway {
		return os.RemoveAll(s.home.dir)
	}
	s.home.removeSocketDir()
	return nil
}

// AdminURL is the database's address for the superuser, over the unix socket.
func (s *Server) AdminURL() string { return s.socketURL(superuser, DatabaseName) }

// Crash kills the server without a shutdown. The next Restart recovers from its write-ahead log.
func (s *Server) Crash(ctx context.Context) error {
	if err := s.running.stop(ctx, s.home.cluster(), true); err != nil {
		return fmt.Errorf("pgdev: %w", err)
	}
	return nil
}

// Restart starts a throwaway server again, at the same address, after a shutdown or a crash.
func (s *Server) Restart(ctx context.Context, settings map[string]string) error {
	if err := s.running.stop(ctx, s.home.cluster(), false); err != nil {
		return fmt.Errorf("pgdev: %w", err)
	}
	if err := s.launch(ctx, Options{Throwaway: s.throwaway, Settings: settings}); err != nil {
		return fmt.Errorf("pgdev: %w", err)
	}
	return nil
}

// Promote makes a standby the primary, and returns when it is. It polls, because changes that the standby still replays
// can cancel a statement that waits.
func (s *Server) Promote(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.AdminURL())
	if err != nil {
		return fmt.Errorf("pgdev: promotion: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, `SELECT pg_promote(false)`); err != nil {
		return fmt.Errorf("pgdev: promotion: %w", err)
	}
	for standby := true; ; {
		if err = conn.QueryRow(ctx, `SELECT pg_is_in_recovery()`).Scan(&standby); err == nil && !standby {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("pgdev: promotion: %w", errors.Join(ctx.Err(), err))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// watchAdopted closes done when an adopted postmaster, which is no child of this process, has ended.
func (s *Server) watchAdopted() {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	defer close(s.done)
	for s.running.alive(s.home.cluster()) {
		select {
		case <-s.stopping:
			return
		case <-tick.C:
		}
	}
}

// absolute returns a path without symbolic links, so that a cluster has one name.
func absolute(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	resolved, err := filepath.EvalSymlinks(abs)
	if os.IsNotExist(err) {
		return abs, nil
	}
	return resolved, err
}
