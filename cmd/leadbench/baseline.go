package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leadlog/leadlog/deploy/pgdev"
)

// plainTables are those of a service without a log: leads, unique by phone and by email, and their sources. There is no
// foreign key, which favours them.
const plainTables = `
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
	insertLead = `INSERT INTO lead (account, name, phone, email, status, temperature, source, metadata,
		custom_fields) `
	insertHistory = `INSERT INTO source_history (lead_id, source, metadata) `

	// A lead's values as expressions of a random number n, which is a variable of pgbench or a column.
	leadValues = `'bench', 'Asha Rao', '+91' || %[1]s, 'a' || %[1]s || '@example.com', 'new', 'warm', ` +
		`'website', ` + leadMetadata + `, '{"city":"Pune"}'`
	leadMetadata  = `'{"source":"website","utm_campaign":"diwali"}'`
	randomNumbers = ` FROM (SELECT hashint8extended(i, 1) AS n FROM generate_series(1, $1::bigint) AS i) AS random`
)

// Scripts for pgbench, which needs a statement on one line.
var (
	pgbenchLead = insertLead + fmt.Sprintf(`VALUES (`+leadValues+`) RETURNING id`, ":n")
	twoInserts  = `\set n random(1, 9000000000000000000)
BEGIN;
` + pgbenchLead + ` \gset
` + insertHistory + `VALUES (:id, 'website', ` + leadMetadata + `);
COMMIT;
`
	oneStatement = `\set n random(1, 9000000000000000000)
WITH l AS (` + pgbenchLead + `) ` + insertHistory + `SELECT id, 'website', ` + leadMetadata + ` FROM l;
`
)

// plainRows makes a database with those tables and leads in it.
func (r *rig) plainRows(ctx context.Context, leads int) (string, error) {
	address, err := r.database(ctx, "plain")
	if err != nil {
		return "", err
	}
	if err := execute(ctx, address, plainTables); err != nil || leads == 0 {
		return address, err
	}
	return address, execute(ctx, address, insertLead+fmt.Sprintf(`SELECT `+leadValues, "n")+randomNumbers, leads)
}

var transactionsPerSecond = regexp.MustCompile(`(?m)^tps = ([0-9.]+)`)

// pgbench runs a script as often as possible and returns transactions a second.
func (r *rig) pgbench(
	ctx context.Context, address, script string, clients int, duration time.Duration,
) (float64, error) {
	output, err := r.runPgbench(ctx, address, script, clients, duration)
	if err != nil {
		return 0, err
	}
	rate := transactionsPerSecond.FindSubmatch(output)
	if rate == nil {
		return 0, fmt.Errorf("no rate in the output of pgbench: %s", output)
	}
	return strconv.ParseFloat(string(rate[1]), 64)
}

// pgbenchLatencies runs a script rate times a second. The latency of a transaction includes the delay of its start.
func (r *rig) pgbenchLatencies(
	ctx context.Context, address, script string, clients int, duration time.Duration, rate float64,
) (l load, err error) {
	logs := filepath.Join(r.scratch, "transactions")
	if _, err := r.runPgbench(ctx, address, script, clients, duration, fmt.Sprintf("--rate=%g", rate), "--log",
		"--log-prefix="+logs); err != nil {
		return l, err
	}
	files, err := filepath.Glob(logs + ".*") // one of each thread
	if err != nil {
		return l, err
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return l, err
		}
		for line := range strings.Lines(string(content)) {
			fields := strings.Fields(line) // client, transaction, microseconds, …
			if len(fields) < 3 {
				return l, fmt.Errorf("the log of pgbench has a line %q", line)
			}
			took, err := strconv.Atoi(fields[2])
			if err != nil {
				return l, fmt.Errorf("the log of pgbench has a line %q", line)
			}
			l.latencies = append(l.latencies, time.Duration(took)*time.Microsecond)
		}
		if err := os.Remove(file); err != nil {
			return l, err
		}
	}
	slices.Sort(l.latencies)
	return l, nil
}

// runPgbench runs a script with prepared statements, after a checkpoint, and returns the output of pgbench.
func (r *rig) runPgbench(
	ctx context.Context, address, script string, clients int, duration time.Duration, options ...string,
) ([]byte, error) {
	if err := r.checkpoint(ctx); err != nil {
		return nil, err
	}
	binaries, err := pgdev.FindBinaries()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(r.scratch, "script.sql")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		return nil, err
	}
	options = append(options, "--no-vacuum", "--protocol=prepared", "--client="+strconv.Itoa(clients),
		"--jobs="+strconv.Itoa(min(2, clients)),
		"--time="+strconv.Itoa(max(1, int(duration.Seconds()))), "--file="+file, address)
	output, err := exec.CommandContext(ctx, filepath.Join(binaries.Dir, "pgbench"), options...).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("pgbench: %w: %s", err, output)
	}
	return output, nil
}

// minimalHandler is the least that a handler can do to store a lead: no credentials, no rules, no deduplication.
type minimalHandler struct {
	Addr     string `required:""`
	Database string `required:""`
	Pool     int32  `default:"16" help:"Connections; 16 were the fastest on 2 cores."`
}

// Run serves until it is killed.
func (s *minimalHandler) Run(ctx context.Context) error {
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
		var body struct {
			Name         string         `json:"name"`
			Phone        string         `json:"phone"`
			Email        string         `json:"email"`
			Metadata     map[string]any `json:"metadata"`
			CustomFields map[string]any `json:"customFields"`
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		var id int64
		err := pgx.BeginFunc(r.Context(), pool, func(tx pgx.Tx) error {
			err := tx.QueryRow(r.Context(),
				insertLead+`VALUES ($1, $2, $3, $4, 'new', 'warm', $5, $6, $7) RETURNING id`,
				account, body.Name, body.Phone, body.Email, "website", body.Metadata, body.CustomFields).Scan(&id)
			if err != nil {
				return err
			}
			_, err = tx.Exec(r.Context(), insertHistory+`VALUES ($1, $2, $3)`, id, "website", body.Metadata)
			return err
		})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		answer, _ := json.Marshal(map[string]any{
			"success": true, "id": id, "name": body.Name, "phone": body.Phone, "email": body.Email,
		})
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

// serveMinimal runs the minimal handler as a separate process.
func (r *rig) serveMinimal(ctx context.Context, database string) (_ *process, base string, err error) {
	address, err := freeAddress()
	if err != nil {
		return nil, "", err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	p, err := launch(self, os.Environ(), "minimal", "--addr", address, "--database", database)
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

// messageDBFiles are message-db's SQL files in the order of its own installer.
var messageDBFiles = []string{
	"schema/*.sql", "extensions/*.sql", "types/*.sql", "tables/*.sql", "functions/*.sql", "indexes/*.sql",
}

// messageDBScript is a script for pgbench that appends a new lead with message-db: three new streams. One statement is
// its fastest form: the lock of a category is held for no round trip, and there is one commit.
func messageDBScript() string {
	var calls []string
	for i, write := range arrival()[len(checked):] {
		fact := write.Events[0]
		category, _, _ := strings.Cut(write.Stream, "-")
		calls = append(calls, fmt.Sprintf(
			`write_message(gen_random_uuid()::text, '%s-%d' || :n, '%s', '%s', '{"account":"%s","actor":"%s",`+
				`"requestId":"%s"}', -1)`,
			category, i, fact.Type, fact.Data, fact.Metadata.Account, fact.Metadata.Actor, fact.Metadata.RequestID))
	}
	return "\\set n random(1, 9000000000000000000)\nSELECT " + strings.Join(calls, ", ") + ";\n"
}

// messageDB makes a database with message-db in it, from the SQL files of a directory.
func (r *rig) messageDB(ctx context.Context, directory string) (string, error) {
	address, err := r.database(ctx, "messagedb")
	if err != nil {
		return "", err
	}
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	// As its own installer does; its functions need this path.
	for _, path := range []string{
		`ALTER DATABASE messagedb SET search_path TO message_store, public`, `SET search_path TO message_store, public`,
	} {
		if _, err := conn.Exec(ctx, path); err != nil {
			return "", err
		}
	}
	for _, pattern := range messageDBFiles {
		files, err := filepath.Glob(filepath.Join(directory, pattern))
		if err != nil || len(files) == 0 {
			return "", fmt.Errorf("no %s of message-db in %s", pattern, directory)
		}
		for _, file := range files {
			statements, err := os.ReadFile(file)
			if err != nil {
				return "", err
			}
			if _, err := conn.PgConn().Exec(ctx, string(statements)).ReadAll(); err != nil {
				return "", fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	return address, nil
}
