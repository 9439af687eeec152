package query_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/query"
)

func TestTheReportIsTheSameWhileTheProgramOfBeforeKeepsTheLeads(t *testing.T) {
	t.Parallel()
	w, _, reader := told(t, 12, 400)
	filters := map[string]query.ReportFilter{
		"by day": {Interval: query.Day}, "by month": {Interval: query.Month}, "one source": {Interval: query.Week, Source: "api"},
	}
	reports := map[string]string{}
	for name, filter := range filters {
		list, err := reader.SourceReport(t.Context(), "acme", filter, whole)
		require.NoError(t, err)
		require.NotZero(t, list.Items[0].Won, name)
		require.NotEqual(t, "0", string(list.Items[0].Value), name)
		reports[name] = text(t, list.Items)
	}
	_, err := w.Pool.Exec(t.Context(), `UPDATE views.checkpoint SET version = 2 WHERE projector = 'lead'; DELETE FROM views.won_day`)
	require.NoError(t, err)
	for name, filter := range filters {
		list, err := reader.SourceReport(t.Context(), "acme", filter, whole)
		require.NoError(t, err)
		require.Equal(t, reports[name], text(t, list.Items), name)
	}
}
