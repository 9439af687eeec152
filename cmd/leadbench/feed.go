package main

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/query"
)

// feedBenchmark measures how fast an account's events are read from a log, and exported with other lists in every
// format.
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
	env := append(
		[]string{"PATH=" + os.Getenv("PATH"), "LEADLOG_DATABASE_URL=" + l.address, "LEADLOG_SEAL_KEY=" + l.sealKey},
		r.setting...,
	)
	if _, _, err := r.leadlog(ctx, env, "account", "set", account); err != nil {
		return err
	}
	if _, _, err := r.leadlog(ctx, env, "replay", "all"); err != nil {
		return err
	}
	debug.SetGCPercent(400) // as leadlog serve sets it
	reader := query.New(l.pool, l.opened)
	types, _ := query.FeedTypes(event.FeedKinds(), nil)
	feed, toCSV := []float64{}, map[string][]float64{} // a round each: events a second; Parquet to CSV by list
	t := newTable("what", "rows", "a second", "processor time of one: program, PostgreSQL", "to CSV")
	// measure adds a row, and returns how long the call took. The call returns the rows and, of a program that it ran,
	// the processor time.
	measure := func(
		what string, csv float64, call func() (rows float64, used time.Duration, err error),
	) (took float64, err error) {
		self, before, err := b.processors(r)
		if err != nil {
			return 0, err
		}
		began := time.Now()
		rows, used, err := call()
		took = time.Since(began).Seconds()
		if err != nil {
			return 0, err
		}
		program, database, err := b.processors(r)
		if used == 0 {
			used = program - self
		}
		each := func(d time.Duration) string { return fmt.Sprintf("%.1f µs", d.Seconds()*1e6/rows) }
		share := ""
		if csv > 0 {
			share = times(csv / took)
		}
		t.row(what, count(rows), count(rows/took), each(used)+", "+each(database-before), share)
		return took, err
	}
	for round := range b.Rounds {
		progress("round %d of %d", round+1, b.Rounds)
		if _, err := measure("feed, read", 0, func() (n float64, _ time.Duration, err error) {
			for _, err := range reader.FeedAll(ctx, account, types, 0) {
				if err != nil {
					return 0, 0, err
				}
				n++
			}
			return n, 0, nil
		}); err != nil {
			return err
		}
		var events float64
		took, err := measure("feed, pages of 1,000", 0, func() (n float64, _ time.Duration, err error) {
			for page := (query.FeedPage{More: true}); page.More; n += float64(len(page.Events)) {
				if page, err = reader.Feed(ctx, account, types, page.End, 1000); err != nil {
					return 0, 0, err
				}
			}
			events = n
			return n, 0, nil
		})
		if err != nil {
			return err
		}
		feed = append(feed, events/took)
		for _, what := range []string{"leads", "sources", "events"} {
			var csv float64
			for _, format := range []string{"csv", "ndjson", "parquet"} {
				took, err := measure(fmt.Sprintf("export %s, %s", what, format),
					csv, func() (float64, time.Duration, error) {
						_, used, err := r.leadlog(ctx, env, "export", what, "--account", account, "--format", format)
						if err != nil {
							return 0, 0, err
						}
						rows, err := b.rows(ctx, l.pool, what)
						return rows, used, err
					})
				if err != nil {
					return err
				}
				switch format {
				case "csv":
					csv = took
				case "parquet":
					toCSV[what] = append(toCSV[what], csv/took)
				}
			}
		}
	}
	t.print()
	t = newSummary()
	t.row("events of the change feed, in pages of 1,000", perSecond(median(feed)), perSecond(100_000))
	t.row("exports of leads, sources, events: Parquet to CSV", times(median(toCSV["leads"]))+", "+
		times(median(toCSV["sources"]))+", "+times(median(toCSV["events"])), "1")
	t.print()
	return nil
}

// processors returns the processor time of the benchmark and of PostgreSQL so far.
func (b *feedBenchmark) processors(r *rig) (self, database time.Duration, err error) {
	if _, self, _, err = stat(os.Getpid()); err != nil {
		return 0, 0, err
	}
	database, err = r.processor()
	return self, database, err
}

func (b *feedBenchmark) rows(ctx context.Context, pool *pgxpool.Pool, what string) (n float64, err error) {
	of := map[string]string{
		"leads": `views.lead`, "sources": `views.touch WHERE first`, "events": `log.event WHERE type LIKE 'lead.%'`,
	}[what]
	err = pool.QueryRow(ctx, `SELECT count(*)::float8 FROM `+of).Scan(&n)
	return n, err
}
