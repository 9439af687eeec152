package query

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/projection/projectiontest"
)

// The query once searched all touches for the lead of a visit, so a page of a lead with visits took minutes.
func TestTouches_VisitsUseIndex(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	pgtest.Exec(t, w.Pool, `
		INSERT INTO views.touch (position, touch_id, account, lead_id, at, kind, source, first, utm_source, utm_medium,
		  utm_campaign, utm_id,
		       credential, intake_id, visitor, erased, stage, value)
		SELECT n, n, 'acme', n, now(), 'created', 'api', true, '', '', '', '', '', '', '', false, '', ''
		FROM generate_series(1, 6000) AS n;
		ANALYZE views.touch`)
	plan := strings.Join(
		pgtest.Rows[string](t, w.Pool, `EXPLAIN WITH page AS MATERIALIZED (SELECT * FROM views.touch) `+touchList,
			pgx.QueryExecModeCacheDescribe, int64(1<<40), true), "\n",
	)
	require.Contains(t, plan, "Index Scan using touch_visitor on touch a")
	require.NotContains(t, plan, "Index Scan using touch_position on touch a")
}
