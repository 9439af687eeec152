package pgdev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// superuser is the cluster's superuser. It has no password and no access over TCP.
const superuser = "postgres"

// initdb creates the cluster in another directory and renames that, so that a cluster that exists is complete.
func (h home) initdb(ctx context.Context, binaries Binaries, throwaway bool) error {
	leftovers, err := filepath.Glob(filepath.Join(h.dir, ".initdb-*"))
	if err != nil {
		return err
	}
	for _, dir := range leftovers {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	// C.UTF-8 supports letters beyond ASCII, but not every system has it.
	var failed error
	for _, locale := range []string{"C.UTF-8", "C"} {
		err := h.initdbWith(ctx, binaries, locale, throwaway)
		if err == nil || ctx.Err() != nil {
			return err
		}
		failed = err
	}
	return failed
}

func (h home) initdbWith(ctx context.Context, binaries Binaries, locale string, throwaway bool) error {
	fresh := filepath.Join(h.dir, fmt.Sprintf(".initdb-%d", time.Now().UnixNano()))
	if err := h.account.mkdir(fresh); err != nil {
		return err
	}
	defer os.RemoveAll(fresh)
	args := []string{"-D", fresh, "--username=" + superuser, "--encoding=UTF8", "--locale=" + locale, "--lc-messages=C",
		"--data-checksums", "--auth-local=trust", "--auth-host=reject"}
	if throwaway {
		args = append(args, "--no-sync")
	}
	out, err := h.account.command(ctx, filepath.Join(binaries.Dir, "initdb"), args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("initdb: %w: %s", errors.Join(err, context.Cause(ctx)), strings.TrimSpace(string(out)))
	}
	if err := os.Rename(fresh, h.cluster()); err != nil {
		return err
	}
	parent, err := os.Open(h.dir)
	if err != nil {
		return err
	}
	defer parent.Close()
	return parent.Sync()
}

// StandbyName is the name of a standby in the primary's synchronous_standby_names.
const StandbyName = "standby"

// basebackup makes the cluster a standby of a running server.
func (h home) basebackup(ctx context.Context, binaries Binaries, primary *Server) error {
	if err := h.account.mkdir(h.cluster()); err != nil {
		return err
	}
	out, err := h.account.command(ctx, filepath.Join(binaries.Dir, "pg_basebackup"), "--pgdata="+h.cluster(),
		"--checkpoint=fast",
		"--no-sync", "--write-recovery-conf", "--dbname=application_name="+StandbyName+" user="+superuser,
		"--host="+primary.running.socketDir, "--port="+strconv.Itoa(primary.running.port)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("pg_basebackup: %w: %s", errors.Join(err, context.Cause(ctx)), strings.TrimSpace(string(out)))
	}
	return nil
}

// provision creates the role and its database if they do not exist. It requires start.lock.
func (s *Server) provision(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.socketURL(superuser, "postgres"))
	if err != nil {
		return fmt.Errorf("connecting to the new server: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var role, database bool
	err = conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1),
		EXISTS (SELECT FROM pg_database WHERE datname = $2)`, Role, DatabaseName).Scan(&role, &database)
	if err != nil {
		return fmt.Errorf("looking for the role and the database: %w", err)
	}
	var statements []string
	if !role {
		statements = append(statements, `CREATE ROLE `+Role+` LOGIN CREATEDB`)
	}
	// Neither name nor password has a character that needs quoting. The password's file is authoritative.
	statements = append(statements, `ALTER ROLE `+Role+` PASSWORD '`+s.password+`'`)
	if !database {
		statements = append(statements, `CREATE DATABASE `+DatabaseName+` OWNER `+Role)
	}
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("creating the role and the database: %w", err)
		}
	}
	return nil
}
