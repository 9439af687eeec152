package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leadlog/leadlog/command/attribution"
	"github.com/leadlog/leadlog/projection/schema"
	"github.com/leadlog/leadlog/projection/view"
	"github.com/leadlog/leadlog/query"
)

// attributionBenchmark measures reports on conversions, beside a scan of the touches. Its rows are made by SQL: each
// lead is created and arrives once more, over a year, and three of twenty are won ten days after they were created.
type attributionBenchmark struct {
	settings `embed:""`
	Leads    int `default:"1000000" help:"Leads. There are two touches for each."`
}

const attributionRows = `
INSERT INTO views.touch (position, touch_id, account, lead_id, at, kind, source, first, utm_source, utm_medium,
  utm_campaign, utm_id, credential, intake_id, visitor, erased, stage, value)
SELECT 4 * i + 1 + merged, lpad(upper(to_hex(i * 2 + merged)), 26, '0'), 'acme', id.of,
  '2025-01-01'::timestamptz + i * year.each, (ARRAY['created', 'merged'])[1 + merged],
       (ARRAY['website', 'google_ad', 'facebook_ad', 'whatsapp', 'chatbot', 'api', 'referral',
         'webhook'])[1 + (i + merged) % 8], true, (ARRAY['google', 'facebook', 'newsletter'])[1 + i % 3],
       (ARRAY['cpc', 'email', 'organic', 'social'])[1 + i % 4], 'campaign-' || i % 500, '',
       'token:01M7YGZVZWE6S8RYN49QGMF6BH', '', '', false,
       (ARRAY['new', ''])[1 + merged], CASE i % 3 WHEN 0 THEN '1200.5' ELSE '' END
  FROM generate_series(0, $1::bigint - 1) AS i, (VALUES (0), (1)) AS k (merged),
  (SELECT interval '365 days' / $1::float8 AS each) AS year,
       LATERAL (SELECT i - merged * ((hashint8(i)::bigint + 2147483648) % (least(i, 32767) + 1)) AS n) AS lead,
       LATERAL (SELECT '01' || lpad(upper(to_hex(lead.n)), 8, '0') || upper(substr(md5(lead.n::text), 1, 16)) AS of) AS
       id
 ORDER BY 1`

const attributionChanges = `
INSERT INTO views.lead_change (position, account, lead_id, at, stage, value)
SELECT 4 * (i + $1::bigint * 10 / 365) + 3, 'acme',
  '01' || lpad(upper(to_hex(i)), 8, '0') || upper(substr(md5(i::text), 1, 16)),
       '2025-01-11'::timestamptz + i * (interval '365 days' / $1::float8), 'won', ''
  FROM generate_series(0, $1::bigint - 1) AS i WHERE i % 20 < 3 ORDER BY 1`

// Run is leadbench attribution.
func (b *attributionBenchmark) Run(ctx context.Context) error {
	b.Leadlog = "none" // it is not measured
	r, err := newRig(ctx, b.settings)
	if err != nil {
		return err
	}
	defer r.close()
	address, err := r.database(ctx, "attribution")
	if err != nil {
		return err
	}
	if err := schema.Migrate(ctx, address); err != nil {
		return err
	}
	for _, statement := range []string{attributionRows, attributionChanges} {
		if err := execute(ctx, address, statement, b.Leads); err != nil {
			return err
		}
	}
	for _, statement := range []string{
		`INSERT INTO views.time_index (position, at) SELECT min(position), min(at) FROM views.touch
			GROUP BY date_trunc('minute', at)`,
		`VACUUM ANALYZE views.touch`, `VACUUM ANALYZE views.lead_change`,
	} {
		if err := execute(ctx, address, statement); err != nil {
			return err
		}
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
	results := newTable("step", "ms", "of a scan of the touches")
	began := time.Now()
	if err := buildConversions(ctx, address); err != nil {
		return err
	}
	made := time.Since(began)
	if err := execute(ctx, address, `VACUUM ANALYZE views.conversion`); err != nil {
		return err
	}
	var scan time.Duration
	if scan, err = b.measure(func() error {
		var count int
		return pool.QueryRow(ctx, `SELECT count(*) FROM views.touch WHERE at > 'epoch'`).Scan(&count)
	}); err != nil {
		return err
	}
	row := func(name string, took time.Duration) {
		results.row(name, fmt.Sprintf("%.0f", took.Seconds()*1e3), fmt.Sprintf("%.2f", took.Seconds()/scan.Seconds()))
	}
	row("a scan of the touches", scan)
	row("making all conversions", made)
	reader := query.New(pool, store)
	for _, by := range []attribution.Key{attribution.BySource, attribution.ByCampaign} {
		for _, model := range []attribution.Model{attribution.Last, attribution.TimeDecay} {
			for _, asOf := range []string{"9000000000000000", "2025-12-01T00:00:00Z"} {
				name := fmt.Sprintf("a year by %s, %s", by, model)
				if len(asOf) == 20 {
					name += ", as of a day"
				}
				took, err := b.measure(func() error { return ask(ctx, pool, reader, by, model, asOf) })
				if err != nil {
					return err
				}
				row(name, took)
			}
		}
	}
	results.print()
	return nil
}

// ask asks for a year. The log has no events, so its end is not asked for.
func ask(
	ctx context.Context, pool *pgxpool.Pool, reader *query.Reader, by attribution.Key, model attribution.Model,
	asOf string,
) error {
	at, err := query.ParseAsOf(asOf)
	if err != nil {
		return err
	}
	position := at.Position
	if position == 0 {
		if position, err = reader.PositionAsOf(ctx, at); err != nil {
			return err
		}
	}
	report, err := reader.Attribution(ctx, "acme", query.AttributionFilter{
		Rules: attribution.Rules{
			Model: model, Since: time.Date(2025, 1, 11, 0, 0, 0, 0, time.UTC),
			Until: time.Date(2026, 1, 11, 0, 0, 0, 0, time.UTC), Window: attribution.DefaultWindow,
			HalfLife: attribution.DefaultHalfLife,
		},
		By: by, AsOf: position,
	})
	if err == nil && len(report.Rows) < 8 {
		err = fmt.Errorf("the report has only %d rows", len(report.Rows))
	}
	return err
}

// measure returns the median of the rounds. A first one is not counted.
func (b *attributionBenchmark) measure(do func() error) (time.Duration, error) {
	var took []time.Duration
	for range b.Rounds + 1 {
		began := time.Now()
		if err := do(); err != nil {
			return 0, err
		}
		took = append(took, time.Since(began))
	}
	return median(took[1:]), nil
}

// buildConversions builds the conversions, as the view does in the background.
func buildConversions(ctx context.Context, address string) error {
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, `SET search_path TO `+schema.Views); err != nil {
		return err
	}
	for work := (view.Touch{}).Maintenance(); work.Due(); {
		if err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return work.Run(ctx, tx) }); err != nil {
			return err
		}
	}
	return nil
}
