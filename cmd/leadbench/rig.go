package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/deploy/pgdev"
)

// rig is a durable PostgreSQL of the benchmark's own, and the program to measure.
type rig struct {
	server  *pgdev.Server
	program string   // the leadlog binary
	setting []string // of it, NAME=VALUE
	scratch string
}

// newRig starts PostgreSQL and builds the program, unless it is given.
func newRig(ctx context.Context, s settings) (_ *rig, err error) {
	r := &rig{program: s.Leadlog, setting: s.Setting}
	if r.scratch, err = os.MkdirTemp("", "leadbench-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	if r.program == "" {
		r.program = filepath.Join(r.scratch, "leadlog")
		build := exec.CommandContext(ctx, "go", "build", "-o", r.program, "github.com/leadlog/leadlog/cmd/leadlog")
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return nil, fmt.Errorf("building leadlog: %w", err)
		}
	}
	dir := filepath.Join(r.scratch, "postgres")
	if s.Dir != "" { // a directory in it, which is removed
		dir = filepath.Join(s.Dir, filepath.Base(r.scratch))
	}
	cluster := map[string]string{
		"max_connections": "400",
		// WAL files are recycled, as on a server that has been running.
		"min_wal_size": "1GB",
	}
	for _, setting := range s.Cluster {
		name, value, is := strings.Cut(setting, "=")
		if !is {
			return nil, fmt.Errorf("--cluster %s: not NAME=VALUE", setting)
		}
		cluster[name] = value
	}
	if r.server, err = pgdev.Start(ctx, pgdev.Options{Dir: dir, Settings: cluster}); err != nil {
		return nil, err
	}
	return r, r.makeWALFiles(ctx)
}

// makeWALFiles has PostgreSQL create the files of min_wal_size, some 50 ms each, which a server that has been running
// recycles.
func (r *rig) makeWALFiles(ctx context.Context) error {
	const make = `
DO $$
BEGIN
    FOR file IN 1 .. (SELECT setting::int / 16 FROM pg_settings WHERE name = 'min_wal_size') LOOP
        PERFORM pg_logical_emit_message(false, '', '');
        PERFORM pg_switch_wal();
    END LOOP;
END $$`
	if err := execute(ctx, r.superuserURL(), make); err != nil {
		return err
	}
	return r.checkpoint(ctx)
}

// close stops PostgreSQL and removes its files.
func (r *rig) close() {
	if r.server != nil {
		stopping, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := r.server.Stop(stopping); err != nil {
			fmt.Fprintln(os.Stderr, "leadbench:", err)
		}
		_ = os.RemoveAll(r.server.Dir())
	}
	_ = os.RemoveAll(r.scratch)
}

// database makes an empty database and returns its address.
func (r *rig) database(ctx context.Context, name string) (string, error) {
	for _, statement := range []string{"DROP DATABASE IF EXISTS " + name + " WITH (FORCE)", "CREATE DATABASE " + name} {
		if err := execute(ctx, r.server.URL(), statement); err != nil {
			return "", err
		}
	}
	address, err := url.Parse(r.server.URL())
	if err != nil {
		return "", err
	}
	address.Path = "/" + name
	return address.String(), nil
}

// checkpoint writes out dirty pages, so that one measurement does not pay for the one before.
func (r *rig) checkpoint(ctx context.Context) error {
	return execute(ctx, r.superuserURL(), "CHECKPOINT")
}

// execute runs a statement on a connection of its own.
func execute(ctx context.Context, address, statement string, arguments ...any) error {
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, statement, arguments...)
	return err
}

// superuserURL is the superuser's address. The permissions of the socket's directory protect it.
func (r *rig) superuserURL() string {
	address, _ := url.Parse(r.server.URL()) // made by url.URL.String
	address.User = url.User("postgres")
	return address.String()
}

// spent is the processor time that a process and PostgreSQL use during a call.
func (r *rig) spent(p *process, call func() error) (program, database time.Duration, err error) {
	_, _, programBefore, err := stat(p.cmd.Process.Pid)
	if err != nil {
		return 0, 0, err
	}
	databaseBefore, err := r.processor()
	if err != nil {
		return 0, 0, err
	}
	if err := call(); err != nil {
		return 0, 0, err
	}
	if _, _, program, err = stat(p.cmd.Process.Pid); err != nil {
		return 0, 0, err
	}
	database, err = r.processor()
	return program - programBefore, database - databaseBefore, err
}

// written is how many transactions PostgreSQL has counted in a database, and the bytes of its write-ahead log. Sessions
// report their transactions within a second.
func (r *rig) written(ctx context.Context, database string) (transactions, wal float64, err error) {
	conn, err := pgx.Connect(ctx, r.superuserURL())
	if err != nil {
		return 0, 0, err
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, `SELECT (xact_commit + xact_rollback)::float8, (pg_current_wal_lsn() - '0/0')::float8
		FROM pg_stat_database WHERE datname = $1`, database).Scan(&transactions, &wal)
	return transactions, wal, err
}

// processor is the processor time of PostgreSQL since its start, of its processes that run and those that have ended.
func (r *rig) processor() (time.Duration, error) {
	file, err := os.ReadFile(filepath.Join(r.server.Dir(), "postgres", "postmaster.pid"))
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(file), "\n")
	postmaster, err := strconv.Atoi(strings.TrimSpace(first))
	if err != nil {
		return 0, err
	}
	_, _, used, err := stat(postmaster)
	if err != nil {
		return 0, err
	}
	processes, err := filepath.Glob("/proc/[0-9]*")
	for _, process := range processes {
		pid, _ := strconv.Atoi(filepath.Base(process))
		if parent, own, _, err := stat(pid); err == nil && parent == postmaster { // others may have ended
			used += own
		}
	}
	return used, err
}
