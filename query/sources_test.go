package query_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/projectiontest"
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
	pgtest.Exec(t, w.Pool, `UPDATE views.checkpoint SET version = 2 WHERE projector = 'lead'; DELETE FROM views.won_day`)
	for name, filter := range filters {
		list, err := reader.SourceReport(t.Context(), "acme", filter, whole)
		require.NoError(t, err)
		require.Equal(t, reports[name], text(t, list.Items), name)
	}
}

func TestTheHistoryOfASourceHasAllThatTheWholeHistoryHasOfIt(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	const days = 9
	for n := range 200 {
		id := w.NewID()
		source := []string{"api", "website", "whatsapp"}[n%3]
		if n%40 == 7 {
			source = "landing"
		}
		w.Append(t, "acme", event.LeadStream(id), event.LeadCreated{Name: "N", Status: "new", Source: source})
		w.Append(t, "other", event.LeadStream(w.NewID()), event.LeadCreated{Name: "N", Status: "new", Source: "chatbot"})
	}
	w.Project(t)
	reader := query.New(w.Pool, w.Store)
	// Everything happened within seconds: it is moved to days of its own, in no order of the log.
	pgtest.Exec(t, w.Pool, `
		UPDATE views.source_history SET first_seen_at = first_seen_at - position % $1 * interval '1 day'`, days)
	list := func(filter query.SourceFilter, limit int) (ids []string) {
		for p := (query.Page{Limit: limit}); ; {
			part, err := reader.Sources(t.Context(), "acme", filter, p)
			require.NoError(t, err)
			for _, e := range part.Items {
				if filter.Source == "" || e.Source == filter.Source {
					ids = append(ids, e.LeadID+" "+e.Source)
				}
			}
			if p.Cursor = part.NextCursor; p.Cursor == "" {
				return ids
			}
		}
	}
	for _, source := range []string{"api", "landing", "chatbot", "google_ad", "\x00"} {
		for _, bounds := range []query.SourceFilter{
			{}, {Since: projectiontest.Start.AddDate(0, 0, -5)}, {Until: projectiontest.Start.AddDate(0, 0, -2)},
			{Since: projectiontest.Start.AddDate(0, 0, -6), Until: projectiontest.Start.AddDate(0, 0, -3)},
		} {
			var want []string
			for _, id := range list(bounds, 200) {
				if strings.HasSuffix(id, " "+source) {
					want = append(want, id)
				}
			}
			require.Equal(t, source == "api" || source == "landing", want != nil, source)
			bounds.Source = source
			require.Equal(t, want, list(bounds, 3), source)
			require.Equal(t, want, list(bounds, 200), source)
		}
	}
}
