package pgdev

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// StandbyName is the name of a standby in the primary's synchronous_standby_names.
const StandbyName = "standby"

// basebackup makes the cluster a standby of a running server.
func (h home) basebackup(ctx context.Context, binaries Binaries, primary *Server) error {
	if err := h.account.mkdir(h.cluster()); err != nil {
		return err
	}
	out, err := h.account.command(ctx, filepath.Join(binaries.Dir, "pg_basebackup"), "--pgdata="+h.cluster(), "--checkpoint=fast",
		"--no-sync", "--write-recovery-conf", "--dbname=application_name="+StandbyName+" user="+superuser,
		"--host="+primary.running.socketDir, "--port="+strconv.Itoa(primary.running.port)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("pg_basebackup: %w: %s", errors.Join(err, context.Cause(ctx)), strings.TrimSpace(string(out)))
	}
	return nil
}

// AdminURL is the database's address for the superuser, over the unix socket.
func (s *Server) AdminURL() string { return s.socketURL(superuser, DatabaseName) }

// Crash ends the server without a shutdown: the next Restart recovers from its write-ahead log.
func (s *Server) Crash(ctx context.Context) error {
	if err := s.running.stop(ctx, s.home.cluster(), true); err != nil {
		return fmt.Errorf("pgdev: %w", err)
	}
	return nil
}

// Restart starts a throwaway server again, at the same address, after it was shut down or has crashed.
func (s *Server) Restart(ctx context.Context, settings map[string]string) error {
	if err := s.running.stop(ctx, s.home.cluster(), false); err != nil {
		return fmt.Errorf("pgdev: %w", err)
	}
	if err := s.launch(ctx, Options{Throwaway: s.throwaway, Settings: settings}); err != nil {
		return fmt.Errorf("pgdev: %w", err)
	}
	return nil
}

// Promote makes a standby the primary, and returns when it is.
func (s *Server) Promote(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.AdminURL())
	if err != nil {
		return fmt.Errorf("pgdev: promotion: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var done bool
	err = conn.QueryRow(ctx, `SELECT pg_promote(true, 110)`).Scan(&done)
	if err == nil && !done {
		err = errors.New("not finished in time")
	}
	if err != nil {
		return fmt.Errorf("pgdev: promotion: %w", err)
	}
	return nil
}
