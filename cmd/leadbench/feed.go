package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/sealbox"
	"github.com/leadlog/leadlog/eventstore/sealed"
	"github.com/leadlog/leadlog/projection/schema"
	"github.com/leadlog/leadlog/query"
)

// feedBenchmark measures how fast an account's events are read from a log, and exported with other lists in every format.
type feedBenchmark struct {
	settings `embed:""`
	Events   int `default:"1000000" help:"Events on the log."`
}

// Run is leadbench feed.
func (b *feedBenchmark) Run(ctx context.Context) error {
	r, err := newRig(ctx, b.settings)
	if err != nil {
		return err
	}
	defer r.close()
	address, err := r.database(ctx, "log")
	if err != nil {
		return err
	}
	if err := schema.Migrate(ctx, address); err != nil {
		return err
	}
	store, err := openLog(ctx, address)
	if err != nil {
		return err
	}
	defer store.Close()
	pool, err := pgxpool.New(ctx, address)
	if err != nil {
		return err
	}
	defer pool.Close()
	sealKey := key()
	raw, err := base64.StdEncoding.DecodeString(sealKey)
	if err != nil {
		return err
	}
	box, err := sealbox.New(raw)
	if err != nil {
		return err
	}
	opened := sealed.Wrap(store, sealed.NewVault(pool, box), true, slog.New(slog.DiscardHandler))
	progress("writing a log of %d events", b.Events)
	if _, err := newHistory().write(ctx, opened, b.Events); err != nil {
		return err
	}
	env := append([]string{"PATH=" + os.Getenv("PATH"), "LEADLOG_DATABASE_URL=" + address, "LEADLOG_SEAL_KEY=" + sealKey}, r.setting...)
	if _, _, err := r.leadlog(ctx, env, "account", "set", account); err != nil {
		return err
	}
	if _, _, err := r.leadlog(ctx, env, "replay", "all"); err != nil {
		return err
	}
	reader := query.New(pool, opened)
	types, _ := query.FeedTypes(event.FeedKinds(), nil)
	t := newTable("what", "rows", "a second", "to CSV")
	for round := range b.Rounds {
		progress("round %d of %d", round+1, b.Rounds)
		began, n := time.Now(), 0
		for _, err := range reader.FeedAll(ctx, account, types, 0) {
			if err != nil {
				return err
			}
			n++
		}
		t.row("feed, read", count(float64(n)), count(float64(n)/time.Since(began).Seconds()), "")
		began, n = time.Now(), 0
		for page := (query.FeedPage{More: true}); page.More; n += len(page.Events) {
			if page, err = reader.Feed(ctx, account, types, page.End, 1000); err != nil {
				return err
			}
		}
		t.row("feed, pages of 1,000", count(float64(n)), count(float64(n)/time.Since(began).Seconds()), "")
		for _, what := range []string{"leads", "sources", "events"} {
			var csv float64
			for _, format := range []string{"csv", "ndjson", "parquet"} {
				began := time.Now()
				if _, _, err := r.leadlog(ctx, env, "export", what, "--account", account, "--format", format); err != nil {
					return err
				}
				took := time.Since(began).Seconds()
				if format == "csv" {
					csv = took
				}
				rows, err := b.rows(ctx, pool, what)
				if err != nil {
					return err
				}
				t.row(fmt.Sprintf("export %s, %s", what, format), count(rows), count(rows/took), times(csv/took))
			}
		}
	}
	t.print()
	return nil
}

func (b *feedBenchmark) rows(ctx context.Context, pool *pgxpool.Pool, what string) (n float64, err error) {
	of := map[string]string{
		"leads": `views.lead`, "sources": `views.source_history`, "events": `log.event WHERE type LIKE 'lead.%'`,
	}[what]
	err = pool.QueryRow(ctx, `SELECT count(*)::float8 FROM `+of).Scan(&n)
	return n, err
}
