package projection_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/projection/view"
)

// PostgreSQL knew nothing of the rows of an import or a replay until the autovacuum came by, and read all of a table
// for a page.
func TestRunner_AnalyzesAfterManyEvents(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	pgtest.Exec(t, w.Pool,
		`ALTER TABLE views.lead SET (autovacuum_enabled = off); ALTER TABLE views.lead_search SET `+
			`(autovacuum_enabled = off)`)
	known := func(table string) int {
		return pgtest.Value[int](t, w.Pool, `SELECT reltuples FROM pg_class WHERE oid = '`+table+`'::regclass`)
	}
	count := func(table string) int { return pgtest.Value[int](t, w.Pool, `SELECT count(*) FROM `+table) }

	w.WriteHistory(t, 31, 200)
	projectiontest.CatchUp(t, w.Runner(t, view.Lead{}))
	require.Equal(t, -1, known("views.lead"), "few events are left to autovacuum")

	w.WriteHistory(t, 32, 200)
	runner := w.Runner(t, view.Lead{}, view.Account{}) // which join each other before that
	runner.AnalyzeAfter(50)
	stop := projectiontest.Run(t, runner)
	require.Eventually(t, func() bool {
		return known("views.lead") == count("views.lead")
	}, projectiontest.Soon, 5*time.Millisecond)
	stop()

	require.NoError(t, w.Replay(view.Lead{}).Run(t.Context()))
	for _, table := range []string{"views.lead", "views.lead_search"} {
		require.Equal(t, count(table), known(table))
	}
}
