package query_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/query"
)

// manyLeads returns a World with leads of two accounts, all in the trigram index. Many leads have the same time.
func manyLeads(t *testing.T) *projectiontest.World {
	t.Helper()
	w := projectiontest.New(t)
	// Groups of 1, 7, 70 and 150 leads have the same minute.
	for n := range 640 {
		minute := n
		switch {
		case n >= 630:
			minute = 110
		case n >= 600:
			minute = 100
		case n >= 450:
			minute = 80
		case n >= 50:
			minute = 60 + n/70
		case n >= 10:
			minute = 10 + n/7
		}
		for _, account := range []string{"acme", "other"} {
			name := fmt.Sprint([]string{"Asha Rao", "Ravi Iyer", "Asha Iyer"}[n%3], " ", n)
			if account == "acme" && n%160 == 100 {
				name = fmt.Sprint("Zubin ", n)
			}
			e := w.NewEvent()
			e.At, e.Metadata.Account = projectiontest.Start.Add(time.Duration(minute)*time.Minute), account
			var err error
			e.Type, e.Data, err = event.Encode(event.LeadCreated{
				LeadFields: event.LeadFields{Name: name, Temperature: "hot", Status: []string{"New", "won"}[n%2]},
				Source:     []string{"api", "website", "api"}[n/2%3],
			})
			require.NoError(t, err)
			_, err = w.Store.Append(t.Context(), eventstore.Write{
				Stream: event.LeadStream(e.ID.String()), Expect: eventstore.NoStream, Events: []eventstore.Event{e},
			})
			require.NoError(t, err)
		}
	}
	stop := projectiontest.Run(t, w.Runner(t))
	require.Eventually(t, func() bool {
		return pgtest.Value[int](t, w.Pool, `SELECT count(*) FROM views.lead_search`) == 1280
	}, projectiontest.Soon, 2*time.Millisecond)
	stop()
	return w
}

// allPages returns all leads of a list. A page that is not full has a Reach: all newer leads were compared.
func allPages(t require.TestingT, reader *query.Reader, filter query.LeadFilter, limit int) (leads []query.Lead) {
	var reach time.Time
	for p := (query.Page{Limit: limit}); ; {
		page, err := reader.Leads(context.Background(), "acme", filter, p)
		require.NoError(t, err)
		leads = append(leads, page.Items...)
		if p.Cursor = page.NextCursor; p.Cursor == "" {
			require.Zero(t, page.Reach)
			return leads
		}
		if end := time.Time(page.Reach); end.IsZero() {
			require.Len(t, page.Items, limit)
		} else {
			require.True(t, reach.IsZero() || end.Before(reach), "each page reaches further back")
			reach = end
		}
		require.LessOrEqual(t, len(leads), 640)
	}
}

// A search selects times first and then leads, and a page may end between leads of one time. The index may lack leads.
func TestSearch_EqualsFilteredList(t *testing.T) {
	t.Parallel()
	w := manyLeads(t)
	reader := query.New(w.Pool, w.Store)
	list := func(filter query.LeadFilter, limit int) (names []string) {
		for _, l := range allPages(t, reader, filter, limit) {
			names = append(names, l.Name)
		}
		return names
	}
	since, until := projectiontest.Start.Add(5*time.Minute), projectiontest.Start.Add(80*time.Minute)
	for _, indexed := range []int{1280, 700, 0} {
		pgtest.Exec(t, w.Pool,
			`DELETE FROM views.lead_search WHERE lead_id NOT IN (SELECT lead_id FROM views.lead_search ORDER BY lead_id
				LIMIT $1)`, indexed)
		reader.ScanLeads(map[int]int{1280: 1, 700: 100, 0: 100}[indexed])
		for _, bounds := range []query.LeadFilter{{}, {CreatedSince: since, CreatedUntil: until}} {
			all := list(bounds, 200)
			require.NotEmpty(t, all)
			for _, q := range []string{"ASHA", "asha iyer", "ravi", "zubin", "Z", "zu", " 11", "missing", "q"} {
				var want []string
				for _, name := range all {
					if strings.Contains(strings.ToLower(name), strings.ToLower(q)) {
						want = append(want, name)
					}
				}
				bounds.Q = q
				for _, limit := range []int{3, 200} {
					if limit > 3 || len(want) < 30 {
						require.Equal(t, want, list(bounds, limit), "%q in pages of %d", q, limit)
					}
				}
			}
		}
	}
}

// For any state of the index, the pages of a search have each matching lead once and in order. A page may end after a
// number of leads.
func TestSearch_PagesTogether(t *testing.T) {
	t.Parallel()
	w := manyLeads(t)
	reader := query.New(w.Pool, w.Store)
	all := allPages(t, reader, query.LeadFilter{}, 200)
	require.Len(t, all, 640)
	since, until := projectiontest.Start.Add(5*time.Minute), projectiontest.Start.Add(80*time.Minute)
	var bounded [4][]query.Lead
	bounds := [4]query.LeadFilter{{}, {CreatedSince: since}, {CreatedUntil: until}, {
		CreatedSince: since, CreatedUntil: until,
	}}
	for i, filter := range bounds {
		bounded[i] = allPages(t, reader, filter, 200)
	}
	shortQueries := 0
	rapid.Check(t, func(t *rapid.T) {
		reader.ScanLeads(rapid.SampledFrom([]int{2, 10, 40, 100, 250, 1000}).Draw(t, "scan"))
		name := strings.ToLower(all[rapid.IntRange(0, 639).Draw(t, "lead")].Name)
		from := rapid.IntRange(0, len(name)-4).Draw(t, "from")
		q := strings.TrimSpace(name[from : from+rapid.IntRange(0, 4).Draw(t, "length")])
		if rapid.IntRange(0, 4).Draw(t, "other") == 0 {
			q += "z"
		}
		whole := rapid.Bool().Draw(t, "whole")
		if whole && rapid.Bool().Draw(t, "complete") {
			q = name
		}
		filter := query.LeadFilter{
			Q: q, Whole: whole, Source: rapid.SampledFrom([]string{"", "api", "website"}).Draw(t, "source"),
			Status:          rapid.SampledFrom([]string{"", "new", "won", "lost"}).Draw(t, "status"),
			LeadTemperature: rapid.SampledFrom([]string{"", "hot", "cold"}).Draw(t, "temperature"),
		}
		i := rapid.IntRange(0, 3).Draw(t, "bounds")
		filter.CreatedSince, filter.CreatedUntil = bounds[i].CreatedSince, bounds[i].CreatedUntil
		var want []query.Lead
		for _, l := range bounded[i] {
			found := strings.Contains(strings.ToLower(l.Name), q)
			if whole {
				found = strings.ToLower(l.Name) == q || q == "" // no phone or email
			}
			if found && (filter.Status == "" || strings.EqualFold(filter.Status, l.Status)) &&
				(filter.Source == "" || filter.Source == l.Source) &&
				(filter.LeadTemperature == "" || filter.LeadTemperature == l.LeadTemperature) {
				want = append(want, l)
			}
		}
		require.Equal(t, want, allPages(t, reader, filter, rapid.SampledFrom([]int{10, 50, 200}).Draw(t, "limit")),
			"%+v", filter)
		if len(q) < 3 {
			shortQueries++
		}
	})
	require.NotZero(t, shortQueries)
}

// Composed and decomposed accents are equal, in a name and in a search.
func TestSearch_NormalizesAccents(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	for _, name := range []string{"Jos\u00c9 Garc\u00eda", "JOSE\u0301 Garci\u0301a"} {
		w.Append(t, "acme", event.LeadStream(w.NewID()), event.LeadCreated{
			LeadFields: event.LeadFields{Name: name, Status: "new"}, Source: "api",
		})
	}
	w.Project(t)
	reader := query.New(w.Pool, w.Store)
	for _, scan := range []int{1000, 1} {
		reader.ScanLeads(scan)
		for _, q := range []string{"jos\u00e9 g", "Jose\u0301 G", "\u00ed", "i\u0301a", "s\u00e9 "} {
			require.Len(t, allPages(t, reader, query.LeadFilter{Q: q}, 10), 2, q)
		}
	}
}

// Beyond the newest leads, a search reads only the leads that the index returns.
func TestSearch_UsesIndexBeyondScan(t *testing.T) {
	t.Parallel()
	w := manyLeads(t)
	reader := query.New(w.Pool, w.Store)
	found := func(q string) int { return len(allPages(t, reader, query.LeadFilter{Q: q}, 50)) }
	pgtest.Exec(t, w.Pool, `UPDATE views.lead_search SET search = 'missing' WHERE search LIKE '%zubin%'`)
	require.Equal(t, 4, found("zubin"))
	reader.ScanLeads(10)
	require.Zero(t, found("zubin"))
	require.Equal(t, 4, found("zu"), "two characters have no trigram")
}
