package query_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/attribution"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/projection/view"
	"github.com/leadlog/leadlog/query"
)

// manyTouches inserts the touches of leads of acme: each is created and arrives once more, all are put at a stage, and
// one of twenty is won and one sold. It returns the last position.
func manyTouches(t *testing.T, w *projectiontest.World, leads int) (end eventstore.Position) {
	t.Helper()
	pgtest.Exec(t, w.Pool, `
		INSERT INTO views.touch (position, touch_id, account, lead_id, at, kind, source, first, utm_source, utm_medium,
		  utm_campaign, utm_id,
		                         credential, intake_id, visitor, erased, stage, value)
		SELECT 4 * i + 1 + merged, lpad(i::text || merged, 26, '0'), 'acme', 'lead-' || i,
		  '2026-01-01'::timestamptz + i * interval '1 minute',
		       (ARRAY['created', 'merged'])[1 + merged], (ARRAY['website', 'whatsapp', 'api'])[1 + (i + merged) % 3],
		       true, '', '', '', '',
		       'token:a', '', '', false, (ARRAY['new', ''])[1 + merged], ''
		  FROM generate_series(1, $1::bigint) AS i, (VALUES (0), (1)) AS k (merged)`, leads)
	pgtest.Exec(t, w.Pool, `
		INSERT INTO views.lead_change (position, account, lead_id, at, stage, value)
		SELECT 4 * i + 3, 'acme', 'lead-' || i, '2026-01-02'::timestamptz + i * interval '1 minute',
		       CASE i % 20 WHEN 0 THEN 'won' WHEN 1 THEN 'sold' ELSE 'contacted' END, '10'
		       FROM generate_series(1, $1::bigint) AS i`, leads)
	pgtest.Exec(t, w.Pool,
		`INSERT INTO views.source_day (account, day, source, created, merged, refused)
			VALUES ('acme', '2026-01-01', 'api', $1, 0, 0)`, leads)
	return eventstore.Position(4*leads + 3)
}

// wonStages inserts a change of acme's won stages at a position.
func wonStages(t *testing.T, w *projectiontest.World, position eventstore.Position, stages string) {
	t.Helper()
	pgtest.Exec(t, w.Pool,
		`INSERT INTO views.won_stages (position, account, at, stages, first)
			VALUES ($1, 'acme', now(), $2::jsonb, 'new')`,
		int64(position), stages)
}

func inViews(t *testing.T, w *projectiontest.World, do func(context.Context, pgx.Tx) error) {
	t.Helper()
	require.NoError(t, pgx.BeginFunc(t.Context(), w.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `SET LOCAL search_path TO views`); err != nil {
			return err
		}
		return do(t.Context(), tx)
	}))
}

// rowsRead returns how many rows of the views the session has read.
func rowsRead(t *testing.T, tx pgx.Tx) (rows int) {
	t.Helper()
	require.NoError(t, tx.QueryRow(t.Context(), `
		SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) FROM pg_stat_xact_user_tables
		WHERE schemaname = 'views'`).Scan(&rows))
	return rows
}

// Each page of a sweep read all changes of the account, and reports were refused until the sweep was at its end.
func TestAttribution_WhileRebuilt(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	end := manyTouches(t, w, 6000)
	reader := query.New(w.Pool, w.Store)
	reader.LeadsAtOnce(100)
	report := func(asOf eventstore.Position) (query.Attribution, error) {
		return reader.Attribution(t.Context(), "acme", query.AttributionFilter{
			Rules: attribution.Rules{
				Model: attribution.Linear, Window: attribution.DefaultWindow, HalfLife: attribution.Day,
			},
			By: attribution.BySource, AsOf: asOf,
		})
	}
	answers := map[eventstore.Position]query.Attribution{} // by the positions that they are of
	check := func(asOf eventstore.Position) query.Attribution {
		answer, err := report(asOf)
		require.NoError(t, err)
		require.Equal(t, answer.AsOf < asOf, answer.Rebuilding)
		answers[answer.AsOf] = query.Attribution{Rows: answer.Rows, Total: answer.Total, AsOf: answer.AsOf}
		return answer
	}
	var work projection.Maintenance
	build := func(most int) (more bool) {
		inViews(t, w, func(ctx context.Context, tx pgx.Tx) error {
			before := rowsRead(t, tx)
			err := work.Run(ctx, tx)
			require.Less(t, rowsRead(t, tx)-before, most, "rows of all tables that a step reads")
			return err
		})
		return work.Pending()
	}

	progress := func() query.ConversionProgress {
		now, err := reader.ConversionProgress(t.Context())
		require.NoError(t, err)
		return now
	}

	require.Equal(t, query.ConversionProgress{Built: 0, Swept: 1}, progress())
	none, err := report(end)
	require.NoError(t, err)
	require.True(t, none.Rebuilding, "there are none yet")
	require.Zero(t, none.AsOf)
	require.Empty(t, none.Rows)
	built := 0.0
	for work = (view.Touch{}).Maintenance(); build(40_000); built = progress().Built {
		require.Greater(t, check(end).AsOf, eventstore.Position(built*float64(end)))
		require.Greater(t, progress().Built, built)
	}
	require.Positive(t, built)
	require.Equal(t, query.ConversionProgress{Built: 1, Swept: 1}, progress())
	require.Equal(t, "300.000000", check(end).Total.Conversions)

	changed := end + 1
	wonStages(t, w, changed, `["won", "sold"]`)
	require.Equal(t, changed-1, check(changed).AsOf)
	steps, swept := 0, 0.0
	for work = (view.Touch{}).Maintenance(); build(5000) && check(changed).Rebuilding; steps++ {
		require.Equal(t, changed-1, check(changed).AsOf)
		require.False(t, check(1000).Rebuilding, "an earlier position")
		require.Greater(t, progress().Swept, swept)
		swept = progress().Swept
		if steps == 2 { // changes meanwhile do not wait
			pgtest.Exec(t, w.Pool, `
				INSERT INTO views.lead_change SELECT $1, account, lead_id, at, 'lost', '' FROM views.lead_change
				WHERE position = 83`, int64(changed+1))
		}
	}
	require.Greater(t, steps, 5)
	require.Equal(t, "599.000000", check(changed+1).Total.Conversions)

	inViews(t, w, func(ctx context.Context, tx pgx.Tx) error {
		before := rowsRead(t, tx)
		differences, err := view.Touch{}.CompareDerived(ctx, tx, "views", 5)
		require.Empty(t, differences)
		require.Less(t, rowsRead(t, tx)-before, 50_000)
		return err
	})

	pgtest.Exec(t, w.Pool, `DELETE FROM views.conversion; DELETE FROM views.conversion_state`)
	reader.LeadsAtOnce(1_000_000) // so that reports read the histories
	for asOf, answer := range answers {
		want, err := report(asOf)
		require.NoError(t, err)
		require.Equal(t, want, answer)
	}
}
