package query_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/query"
)

func TestSourceReport_SumsDays(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	w.Append(t, "acme", event.AccountStream("acme"), event.AccountConfigured{Stages: []string{"new"}, Region: "IN"})
	w.Project(t) // writes the checkpoints of the views
	first := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for account, factor := range map[string]int{"acme": 1, "globex": 1000} {
		pgtest.Exec(t, w.Pool, `
			WITH counted AS (SELECT $3::date + n AS day, $2 * 2 ^ n AS n FROM generate_series(0, 2) AS n),
			     won AS (INSERT INTO views.won_day (account, day, source, leads, value) SELECT $1, day, 'api', n, n / 2
			       FROM counted),
			     sent AS (INSERT INTO delivery.account_day (account, day, queued) SELECT $1, day, 5 * n FROM counted)
			INSERT INTO views.source_day (account, day, source, created, merged, refused, recorded, lines)
			SELECT $1, day, source, n, 10 * n, 100 * n, 111 * n, n
			FROM counted, unnest(ARRAY['api', 'website']) AS source`, account, factor, first)
	}
	reader := query.New(w.Pool, w.Store)
	report := func(filter query.ReportFilter) string {
		list, err := reader.SourceReport(t.Context(), "acme", filter, firstPage)
		require.NoError(t, err)
		return text(t, list.Items)
	}
	const months = `{"source":"api","from":"2026-03-01T00:00:00.000Z","created":7,"merged":70,"refused":700,"won":7,` +
		`"value":3.5}`
	require.Equal(t, `[`+months+`]`, report(query.ReportFilter{Interval: query.Month, Source: "api"}))
	require.Equal(t,
		`[`+months+`,`+strings.NewReplacer("api", "website", "3.5", "0", `"won":7`, `"won":0`).Replace(months)+`]`,
		report(query.ReportFilter{Interval: query.Month}))
	require.Equal(t,
		`[{"source":"api","from":"2026-03-02T00:00:00.000Z","created":2,"merged":20,"refused":200,"won":2,"value":1}]`,
		report(query.ReportFilter{
			Interval: query.Day, Source: "api", Since: first.AddDate(0, 0, 1), Until: first.AddDate(0, 0, 2),
		}))

	for _, filter := range []query.ReportFilter{{Interval: query.Day}, {Interval: query.Week}, {
		Interval: query.Month, Since: first.AddDate(0, 0, 1),
	}} {
		var walked []query.SourceCount
		for count, err := range query.All(func(p query.Page) (query.List[query.SourceCount], error) {
			p.Limit = 1
			return reader.SourceReport(t.Context(), "acme", filter, p)
		}) {
			require.NoError(t, err)
			walked = append(walked, count)
		}
		require.Equal(t, report(filter), text(t, walked), "the pages have the same items")
	}

	days, err := query.New(w.Pool, w.Store, query.WithClock(func() time.Time {
		return first.AddDate(0, 0, 3).Add(time.Hour)
	})).Usage(t.Context(), "acme")
	require.NoError(t, err)
	require.Len(t, days, query.UsageDays)
	require.Equal(t, `[`+
		`{"day":"2026-03-04T00:00:00.000Z","captures":0,"batchLines":0,"refused":0,"deliveries":0},`+
		`{"day":"2026-03-03T00:00:00.000Z","captures":880,"batchLines":8,"refused":800,"deliveries":20},`+
		`{"day":"2026-03-02T00:00:00.000Z","captures":440,"batchLines":4,"refused":400,"deliveries":10}]`,
		text(t, days[:3]))
}

// Joined leads have one history.
func TestSources_EqualFolds(t *testing.T) {
	t.Parallel()
	w, history, reader := readerOf(t, 12, 600)
	for account, ids := range history.Leads {
		var want, got []string
		joined := 0
		for _, id := range ids {
			state := fold(t, w, event.LeadStream(id), lead.Evolve)
			joined += len(state.Joined)
			for _, s := range state.Sources {
				want = append(want, text(t, query.SourceEntry{
					LeadID: id, Source: s.Source, FirstSeenAt: query.Timestamp(s.FirstSeenAt),
					LastSeenAt: query.Timestamp(s.LastSeenAt), Arrivals: s.Arrivals,
					Credential: query.Credential{Kind: "jwt", ID: "urn:ada"}, Metadata: object(t, s.Metadata),
					IP: s.IP, UserAgent: s.UserAgent, RequestID: s.RequestID, Changed: s.Changed,
				}))
			}
		}
		require.NotZero(t, joined)
		for entry, err := range reader.SourcesAll(t.Context(), account, query.SourceFilter{}) {
			require.NoError(t, err)
			got = append(got, text(t, entry))
		}
		require.ElementsMatch(t, want, got)
	}
}

// Two first arrivals have the same time. The one of the surviving lead is kept, although the other is earlier on the
// log.
func TestSources_JoinAtOneTime(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	into, from := w.NewID(), w.NewID()
	for _, l := range []struct{ id, agent string }{{from, "source"}, {into, "surviving"}} {
		w.Append(t, "acme", event.LeadStream(l.id), event.LeadCreated{
			LeadFields: event.LeadFields{Name: "N", Status: "new"}, Source: "api", UserAgent: l.agent,
			ArrivalRef: event.ArrivalRef{ReceivedAt: projectiontest.Start},
		})
	}
	source, joined, err := fold(t, w, event.LeadStream(into), lead.Evolve).Join("acme",
		fold(t, w, event.LeadStream(from), lead.Evolve))
	require.NoError(t, err)
	w.Append(t, "acme", event.LeadStream(from), source)
	w.Append(t, "acme", event.LeadStream(into), joined)
	w.Project(t)
	list, err := query.New(w.Pool, w.Store).LeadSources(t.Context(), "acme", into, firstPage)
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	require.Equal(t, "surviving", list.Items[0].UserAgent)
	require.Equal(t, 2, list.Items[0].Arrivals)
	require.Equal(t, list.Items[0].UserAgent, fold(t, w, event.LeadStream(into), lead.Evolve).Sources[0].UserAgent)
}

func TestSources_FilterBySource(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	const days = 9
	for n := range 200 {
		id := w.NewID()
		source := []string{"api", "website", "whatsapp"}[n%3]
		if n%40 == 7 {
			source = "landing"
		}
		w.Append(t, "acme", event.LeadStream(id), event.LeadCreated{
			LeadFields: event.LeadFields{Name: "N", Status: "new"}, Source: source,
		})
		w.Append(t, "other", event.LeadStream(w.NewID()), event.LeadCreated{
			LeadFields: event.LeadFields{Name: "N", Status: "new"}, Source: "chatbot",
		})
	}
	w.Project(t)
	reader := query.New(w.Pool, w.Store)
	// All touches have times within seconds. The update moves them to different days, in another order than on the log.
	pgtest.Exec(t, w.Pool, `
		UPDATE views.touch SET at = at - position % $1 * interval '1 day'`, days)
	list := func(filter query.SourceFilter, limit int) (ids []string) {
		for p := (query.Page{Limit: limit}); ; {
			page, err := reader.Sources(t.Context(), "acme", filter, p)
			require.NoError(t, err)
			for _, e := range page.Items {
				if filter.Source == "" || e.Source == filter.Source {
					ids = append(ids, e.LeadID+" "+e.Source)
				}
			}
			if p.Cursor = page.NextCursor; p.Cursor == "" {
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
			require.Equal(t, want, list(bounds, 7), source)
			require.Equal(t, want, list(bounds, 200), source)
		}
	}
}

func TestBetweenTouches_Median(t *testing.T) {
	t.Parallel()
	w, history, reader := readerOf(t, 11, 400)
	later := map[string][]time.Duration{}
	for _, id := range history.Leads["acme"] {
		state := fold(t, w, event.LeadStream(id), lead.Evolve)
		first := state.CreatedAt // or earlier, if an older lead was joined into it
		for _, entry := range state.Sources {
			if entry.FirstSeenAt.Before(first) {
				first = entry.FirstSeenAt
			}
		}
		for _, entry := range state.Sources {
			if after := entry.FirstSeenAt.Sub(first); after > 0 {
				later[entry.Source] = append(later[entry.Source], after)
			}
		}
	}
	require.NotEmpty(t, later)
	since, until := time.Time{}, time.Now().AddDate(100, 0, 0)
	found, err := reader.BetweenTouches(t.Context(), "acme", since, until)
	require.NoError(t, err)
	require.Len(t, found, len(later))
	for _, b := range found {
		all := slices.Sorted(slices.Values(later[b.Source]))
		require.Len(t, all, b.Leads, b.Source)
		require.Equal(t, all[(len(all)-1)/2], b.Median, b.Source)
	}
	none, err := reader.BetweenTouches(t.Context(), "acme", until, until.AddDate(1, 0, 0))
	require.NoError(t, err)
	require.Empty(t, none)
}
