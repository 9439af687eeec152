package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leadlog/leadlog/deploy/pgdev"
)

// crudTables are what a service without a log would keep: leads, unique by phone and by email, and where they came
// from. There is no foreign key, to their advantage.
const crudTables = `
CREATE TABLE lead (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	account text NOT NULL, name text NOT NULL, phone text NOT NULL, email text NOT NULL,
	status text NOT NULL, temperature text NOT NULL, source text NOT NULL,
	metadata jsonb NOT NULL, custom_fields jsonb NOT NULL, created_at timestamptz NOT NULL DEFAULT now(),
	UNIQUE (account, phone), UNIQUE (account, email)
);
CREATE TABLE source_history (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	lead_id bigint NOT NULL, source text NOT NULL, metadata jsonb NOT NULL, at timestamptz NOT NULL DEFAULT now()
);`

const (
	crudLead = `INSERT INTO lead (account, name, phone, email, status, temperature, source, metadata, custom_fields)
VALUES ($1, $2, $3, $4, 'new', 'warm', $5, $6, $7) RETURNING id`
	crudHistory = `INSERT INTO source_history (lead_id, source, metadata) VALUES ($1, $2, $3)`
)

// The same for pgbench, on one line each, as it wants them.
const (
	pgbenchLead = `INSERT INTO lead (account, name, phone, email, status, temperature, source, metadata, custom_fields) ` +
		`VALUES ('bench', 'Asha Rao', '+91' || :n, 'a' || :n || '@example.com', 'new', 'warm', 'website', ` +
		`'{"source":"website","utm_campaign":"diwali"}', '{"city":"Pune"}') RETURNING id`
	pgbenchMetadata = `'{"source":"website","utm_campaign":"diwali"}'`

	plainCrud = `\set n random(1, 9000000000000000000)
BEGIN;
` + pgbenchLead + ` \gset
INSERT INTO source_history (lead_id, source, metadata) VALUES (:id, 'website', ` + pgbenchMetadata + `);
COMMIT;
`
	oneStatementCrud = `\set n random(1, 9000000000000000000)
WITH l AS (` + pgbenchLead + `) INSERT INTO source_history (lead_id, source, metadata) SELECT id, 'website', ` + pgbenchMetadata + ` FROM l;
`
)

// crud makes a database with those tables.
func (r *rig) crud(ctx context.Context, name string) (string, error) {
	address, err := r.database(ctx, name)
	if err != nil {
		return "", err
	}
	return address, execute(ctx, address, crudTables)
}

// pgbench runs a script with prepared statements and returns transactions a second.
func (r *rig) pgbench(ctx context.Context, address, script string, clients int, duration time.Duration) (float64, error) {
	said, err := r.runPgbench(ctx, address, script, clients, duration)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(said) {
		if value, ok := strings.CutPrefix(line, "tps = "); ok {
			number, _, _ := strings.Cut(value, " ")
			return strconv.ParseFloat(number, 64)
		}
	}
	return 0, fmt.Errorf("pgbench does not tell its rate: %s", said)
}

// pgbenchAt runs a script so many times a second and returns how long the transactions took, each from when it was due.
func (r *rig) pgbenchAt(ctx context.Context, rate float64, address, script string, clients int, duration time.Duration) (l load, err error) {
	prefix := filepath.Join(r.scratch, "transactions")
	_, err = r.runPgbench(ctx, address, script, clients, duration,
		"--rate="+strconv.FormatFloat(rate, 'f', 0, 64), "--log", "--log-prefix="+prefix)
	if err != nil {
		return l, err
	}
	files, err := filepath.Glob(prefix + ".*")
	if err != nil {
		return l, err
	}
	for _, file := range files { // one a thread
		said, err := os.ReadFile(file)
		if err != nil {
			return l, err
		}
		for line := range strings.Lines(string(said)) {
			var client, number, microseconds int64
			if _, err := fmt.Sscan(line, &client, &number, &microseconds); err != nil {
				return l, fmt.Errorf("a line of pgbench's log: %q: %w", line, err)
			}
			l.latencies = append(l.latencies, time.Duration(microseconds)*time.Microsecond)
		}
		if err := os.Remove(file); err != nil {
			return l, err
		}
	}
	slices.Sort(l.latencies)
	return l, nil
}

func (r *rig) runPgbench(ctx context.Context, address, script string, clients int, duration time.Duration, more ...string) (string, error) {
	binaries, err := pgdev.FindBinaries()
	if err != nil {
		return "", err
	}
	file := filepath.Join(r.scratch, "script.sql")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		return "", err
	}
	arguments := append([]string{"--no-vacuum", "--protocol=prepared",
		"--client=" + strconv.Itoa(clients), "--jobs=" + strconv.Itoa(min(2, clients)),
		"--time=" + strconv.Itoa(max(1, int(duration.Seconds()))), "--file=" + file}, more...)
	said, err := exec.CommandContext(ctx, filepath.Join(binaries.Dir, "pgbench"), append(arguments, address)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("pgbench: %w: %s", err, said)
	}
	return string(said), nil
}

// crudServer is the least that a handler can do to take a lead in: no credentials, no rules, no duplicates merged.
type crudServer struct {
	Addr     string `required:""`
	Database string `required:""`
	Pool     int32  `default:"16" help:"Connections; 16 served it best on 2 cores."`
}

type crudBody struct {
	Name         string         `json:"name"`
	Phone        string         `json:"phone"`
	Email        string         `json:"email"`
	Metadata     map[string]any `json:"metadata"`
	CustomFields map[string]any `json:"customFields"`
}

// Run serves until it is killed.
func (s *crudServer) Run(ctx context.Context) error {
	config, err := pgxpool.ParseConfig(s.Database)
	if err != nil {
		return err
	}
	config.MaxConns = s.Pool
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	router := chi.NewRouter()
	router.Get("/readyz", func(http.ResponseWriter, *http.Request) {})
	router.Post("/leads", func(w http.ResponseWriter, r *http.Request) {
		var body crudBody
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		id, err := insert(r.Context(), pool, body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		answer, _ := json.Marshal(map[string]any{"success": true, "id": id, "name": body.Name, "phone": body.Phone, "email": body.Email})
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(answer)
	})
	server := &http.Server{Addr: s.Addr, Handler: router}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.ListenAndServe(); ctx.Err() == nil {
		return err
	}
	return nil
}

// beginner is a connection or a pool of them.
type beginner interface {
	Begin(context.Context) (pgx.Tx, error)
}

func insert(ctx context.Context, db beginner, body crudBody) (id int64, err error) {
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, crudLead, account, body.Name, body.Phone, body.Email, "website", body.Metadata, body.CustomFields).Scan(&id)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, crudHistory, id, "website", body.Metadata)
		return err
	})
	return id, err
}

// serveCrud runs the minimal handler as a process of its own.
func (r *rig) serveCrud(ctx context.Context, database string) (_ *process, base string, err error) {
	address, err := freeAddress()
	if err != nil {
		return nil, "", err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	p, err := launch(self, os.Environ(), "crud", "--addr", address, "--database", database)
	if err != nil {
		return nil, "", err
	}
	base = "http://" + address
	if err := p.ready(ctx, base+"/readyz"); err != nil {
		p.stop()
		return nil, "", err
	}
	return p, base, nil
}
