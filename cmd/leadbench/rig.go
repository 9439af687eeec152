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

// rig is what a benchmark stands on: a durable PostgreSQL of its own and the program to measure.
type rig struct {
	server  *pgdev.Server
	program string   // the leadlog binary
	setting []string // of it, NAME=VALUE
	scratch string
}

// newRig starts it. It is to be closed.
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
	if s.Dir != "" { // a directory in it, since what PostgreSQL leaves there is removed
		dir = filepath.Join(s.Dir, filepath.Base(r.scratch))
	}
	cluster := map[string]string{
		"max_connections": "400",
		// Files of the write-ahead log are used again, as on a server that has been running, and not made anew.
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

// makeWALFiles has PostgreSQL make the files of min_wal_size, which takes it some 50 ms each and happens once: a server
// that has been running uses them again and again.
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

// close stops PostgreSQL and removes what it kept.
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

// checkpoint has PostgreSQL write out what it owes, so that one measurement does not pay for the one before.
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

// superuserURL is the address for what the role leadlog may not do. The socket's directory is its guard.
func (r *rig) superuserURL() string {
	address, _ := url.Parse(r.server.URL()) // made by url.URL.String
	address.User = url.User("postgres")
	return address.String()
}

// postmaster is the process id of PostgreSQL's first process.
func (r *rig) postmaster() (int, error) {
	file, err := os.ReadFile(filepath.Join(r.server.Dir(), "postgres", "postmaster.pid"))
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(file), "\n")
	return strconv.Atoi(strings.TrimSpace(first))
}

// spent is the processor time that a service and PostgreSQL use while something is done.
func (r *rig) spent(s *service, do func() error) (service, database time.Duration, err error) {
	used := func(sign time.Duration) error {
		ofService, err := s.processor()
		if err != nil {
			return err
		}
		ofDatabase, err := r.processor()
		service, database = service+sign*ofService, database+sign*ofDatabase
		return err
	}
	if err = used(-1); err == nil {
		if err = do(); err == nil {
			err = used(1)
		}
	}
	return service, database, err
}

// processor is the processor time that PostgreSQL has used since it began, all its processes that live and those
// that have ended.
func (r *rig) processor() (time.Duration, error) {
	postmaster, err := r.postmaster()
	if err != nil {
		return 0, err
	}
	used, err := processorOf(postmaster)
	if err != nil {
		return 0, err
	}
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	for _, stat := range all {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(stat)))
		fields, err := statOf(pid)
		if err != nil || fields[1] != strconv.Itoa(postmaster) { // it has ended while we looked, or is none of PostgreSQL's
			continue
		}
		used += ticks(fields, 11, 12)
	}
	return used, nil
}
