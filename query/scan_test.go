package query_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/query"
)

// pagesOf returns all items of a list and its number of pages.
func pagesOf[T any](t *testing.T, list func(query.Page) (query.List[T], error)) (items []T, pages int) {
	t.Helper()
	for p := (query.Page{Limit: 7}); ; {
		page, err := list(p)
		require.NoError(t, err)
		items = append(items, page.Items...)
		if pages++; page.NextCursor == "" {
			return items, pages
		}
		require.NotEqual(t, p.Cursor, page.NextCursor)
		p.Cursor = page.NextCursor
	}
}

// A page for a filter without an index ends after a number of scanned rows. All pages together have every match.
func TestLists_FilteredPagesTogether(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	reader := query.New(w.Pool, w.Store)
	for _, rows := range []string{
		`INSERT INTO views.arrival SELECT 'a' || i, i, 'acme', '', '', $1::timestamptz + i * interval '1 minute', $1, (ARRAY['captured', 'expired', 'captured', 'quarantined'])[1 + i / 20 % 4],
		   CASE i % 9 WHEN 4 THEN '[{"field":"phone","message":"m"}]' ELSE '[]' END::jsonb, '[]', '', '', true FROM generate_series(1, 100) AS i`,
		`INSERT INTO views.trail SELECT i, 'e' || i, 'acme',
			(ARRAY['token.created', 'data.searched', 'data.searched', 'lead.erased'])[1 + i / 20 % 4],
			  $1::timestamptz + i * interval '1 minute',
		   'user:' || i % 9, 'x', '', '', '', '{}' FROM generate_series(1, 100) AS i`,
		`INSERT INTO views.touch SELECT i, 't' || i, 'acme', 'l' || i, $1::timestamptz + i / 3 * interval '1 minute',
			(ARRAY['created', 'visit'])[1 + i % 2], 'api', true, '',
		   (ARRAY['cpc', 'email'])[1 + i / 20 % 2], 'c' || i % 9, '', '', '', '', false, '', ''
		   FROM generate_series(1, 100) AS i`,
	} {
		pgtest.Exec(t, w.Pool, rows, projectiontest.Start)
	}
	pgtest.Exec(t, w.Pool,
		`INSERT INTO views.refused SELECT i, 'acme', $1::timestamptz + i * interval '1 minute',
			(ARRAY['api', 'website'])[1 + i / 20 % 2], 'C' || i % 9,
		'l' || i, '', '', '' FROM generate_series(1, 100) AS i`, projectiontest.Start)
	since, until := projectiontest.Start.Add(10*time.Minute), projectiontest.Start.Add(70*time.Minute)
	arrivals := func(f query.ArrivalFilter) func(query.Page) (query.List[query.Arrival], error) {
		return func(p query.Page) (query.List[query.Arrival], error) {
			return reader.LatestArrivals(t.Context(), "acme", f, p)
		}
	}
	trail := func(f query.TrailFilter) func(query.Page) (query.List[query.TrailRecord], error) {
		return func(p query.Page) (query.List[query.TrailRecord], error) {
			return reader.Trail(t.Context(), "acme", f, p)
		}
	}
	touches := func(f query.TouchFilter) func(query.Page) (query.List[query.Touch], error) {
		f.AsOf = 1000
		return func(p query.Page) (query.List[query.Touch], error) { return reader.Touches(t.Context(), "acme", f, p) }
	}
	lists := map[string]func() (ids []string, pages int){}
	for name, f := range map[string]query.ArrivalFilter{
		"state": {State: "expired"}, "reason": {Reason: "phone"}, "no reason": {Reason: "email"},
		"indexed state and reason": {State: "quarantined", Reason: "phone"},
		"state in a span":          {State: "captured", Since: since, Until: until},
	} {
		lists["arrivals by "+name] = func() (ids []string, pages int) {
			items, pages := pagesOf(t, arrivals(f))
			for _, a := range items {
				ids = append(ids, a.ArrivalID)
			}
			return ids, pages
		}
	}
	for name, f := range map[string]query.TrailFilter{
		"type": {Type: "lead.*"}, "actor": {Actor: "user:4"}, "none": {Actor: "user:none"},
		"both in a span": {Type: "data.*", Actor: "user:4", Since: since, Until: until},
	} {
		lists["records by "+name] = func() (ids []string, pages int) {
			items, pages := pagesOf(t, trail(f))
			for _, record := range items {
				ids = append(ids, record.ID)
			}
			return ids, pages
		}
	}
	for name, f := range map[string]query.TouchFilter{
		"campaign": {Campaign: "c4"}, "campaign with visits": {Campaign: "c4", Visits: true},
		"medium of a source": {Medium: "email", Source: "api"}, "none": {Campaign: "x", Since: since},
	} {
		lists["touches by "+name] = func() (ids []string, pages int) {
			items, pages := pagesOf(t, touches(f))
			for _, touch := range items {
				ids = append(ids, touch.TouchID)
			}
			return ids, pages
		}
	}
	for name, f := range map[string]query.RefusedFilter{
		"source": {Source: "website"}, "code": {Code: "C4"}, "none": {Source: "website", Code: "x"},
		"both in a span": {Source: "website", Code: "C4", Since: since, Until: until},
	} {
		lists["refused by "+name] = func() (ids []string, pages int) {
			items, pages := pagesOf(t, func(p query.Page) (query.List[query.RefusedArrival], error) {
				return reader.Refused(t.Context(), "acme", f, p)
			})
			for _, refused := range items {
				ids = append(ids, refused.LeadID)
			}
			return ids, pages
		}
	}
	found := 0
	for name, list := range lists {
		reader.ScanRows(1000)
		want, fewPages := list()
		reader.ScanRows(4)
		got, manyPages := list()
		require.Equal(t, want, got, name)
		require.Greater(t, manyPages, fewPages, name)
		found += len(got)
	}
	require.Greater(t, found, 100)
}
