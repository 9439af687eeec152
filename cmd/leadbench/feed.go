package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leadlog/leadlog/eventstore/event"
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
	l, err := r.sealedLog(ctx, b.Events)
	if err != nil {
		return err
	}
	defer l.close()
	env := append([]string{"PATH=" + os.Getenv("PATH"), "LEADLOG_DATABASE_URL=" + l.address, "LEADLOG_SEAL_KEY=" + l.sealKey}, r.setting...)
	if _, _, err := r.leadlog(ctx, env, "account", "set", account); err != nil {
		return err
	}
	if _, _, err := r.leadlog(ctx, env, "replay", "all"); err != nil {
		return err
	}
	reader := query.New(l.pool, l.opened)
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
				rows, err := b.rows(ctx, l.pool, what)
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
		"leads": `views.lead`, "sources": `views.touch WHERE first`, "events": `log.event WHERE type LIKE 'lead.%'`,
	}[what]
	err = pool.QueryRow(ctx, `SELECT count(*)::float8 FROM `+of).Scan(&n)
	return n, err
}
