package query_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/query"
)

// appendActivity appends an activity with a title that identifies it.
func appendActivity(t testing.TB, w *projectiontest.World, account, visitor, title string, at int) {
	w.Append(t, account, event.VisitorStream(account, fmt.Sprintf("%x", visitor)), event.VisitorActed{
		VisitorID: visitor, Kind: "page_view", Title: title,
		At: projectiontest.Start.Add(time.Duration(at) * time.Millisecond),
	})
}

func titles(list query.List[query.Activity]) []string {
	return ids(list.Items, func(a query.Activity) string { return a.Title })
}

func TestActivity_EqualsRecorded(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	id := w.NewID() // 1 ms after the start
	w.Append(t, "acme", event.LeadStream(id), event.LeadCreated{
		LeadFields: event.LeadFields{Name: "A"}, VisitorID: " v/1",
	})
	click := event.VisitorActed{
		VisitorID: " v/1", Kind: "click", URL: "https://example.com/?a=1", Title: `"<ü>"`,
		Referrer: "https://example.org", At: projectiontest.Start.Add(-time.Hour),
		Properties: map[string]jsontext.Value{"n": jsontext.Value(`1.0`), "t": jsontext.Value(`"\u2028"`)},
	}
	w.Append(t, "acme", event.VisitorStream("acme", "0a1b"), click)
	w.Append(t, "acme", event.VisitorStream("acme", "0a1b"), event.VisitorActed{
		VisitorID: " v/1", Kind: "custom", At: projectiontest.Start,
	})
	w.Project(t)
	list, err := query.New(w.Pool, w.Store).LeadActivity(t.Context(), "acme", id, firstPage)
	require.NoError(t, err)
	require.Len(t, list.Items, 2)
	first := list.Items[0]
	require.Equal(t, text(t, query.NewActivity(first.ActivityID, click, projectiontest.Start.Add(3*time.Millisecond))),
		text(t, first))
	require.Contains(t, text(t, first), `"properties":{"n":1.0,"t":"`+"\u2028"+`"}`)
	require.Contains(t, text(t, list.Items[1]), `"url":"","title":"","referrer":"","at":"2026-03-01T09:00:00.000Z"`)
	require.Contains(t, text(t, list.Items[1]), `"properties":{}`)
}

func TestActivity_LinksLeadsAndVisitors(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	reader := query.New(w.Pool, w.Store)
	appendActivity(t, w, "acme", "v", "before", 1)
	one, two, none, foreign := w.NewID(), w.NewID(), w.NewID(), w.NewID()
	w.Append(t, "acme", event.LeadStream(one), event.LeadCreated{
		LeadFields: event.LeadFields{Name: "1"}, VisitorID: "v",
	})
	w.Append(t, "acme", event.LeadStream(two), event.LeadCreated{LeadFields: event.LeadFields{Name: "2"}},
		event.LeadMerged{Source: "website", VisitorID: "v"})
	w.Append(t, "acme", event.LeadStream(none), event.LeadCreated{LeadFields: event.LeadFields{Name: "3"}})
	w.Append(t, "globex", event.LeadStream(foreign), event.LeadCreated{
		LeadFields: event.LeadFields{Name: "4"}, VisitorID: "v",
	})
	appendActivity(t, w, "acme", "v", "after", 4)
	appendActivity(t, w, "acme", "w", "from a phone", 3)
	appendActivity(t, w, "acme", "V", "another visitor", 3)
	appendActivity(t, w, "globex", "v", "another account's", 2)
	w.Append(t, "acme", event.LeadStream(two), event.LeadMerged{Source: "website", VisitorID: "w"}, event.LeadMerged{
		Source: "api", VisitorID: "v",
	})
	appendActivity(t, w, "acme", "w", "sent late", 2)
	w.Project(t)
	for _, c := range []struct {
		account, lead string
		want          []string
	}{
		{"acme", one, []string{"before", "after"}},
		{"acme", two, []string{"before", "sent late", "from a phone", "after"}},
		{"acme", none, []string{}},
		{"globex", foreign, []string{"another account's"}},
	} {
		list, err := reader.LeadActivity(t.Context(), c.account, c.lead, firstPage)
		require.NoError(t, err)
		require.Equal(t, c.want, titles(list))
	}
	_, err := reader.LeadActivity(t.Context(), "acme", foreign, firstPage)
	require.ErrorIs(t, err, query.ErrNotFound)
	_, err = reader.LeadActivity(t.Context(), "acme", w.NewID(), firstPage)
	require.ErrorIs(t, err, query.ErrNotFound)
}

func TestActivity_PagesWithEqualTimes(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	id := w.NewID()
	w.Append(t, "acme", event.LeadStream(id), event.LeadCreated{
		LeadFields: event.LeadFields{Name: "A"}, VisitorID: "v",
	}, event.LeadMerged{Source: "api", VisitorID: "w"})
	for i, at := range []int{3, 1, 3, 2, 3, 1, 2, 3} { // equal and unordered milliseconds
		appendActivity(t, w, "acme", []string{"v", "w"}[i%2], fmt.Sprintf("%d %d", at, i), at)
	}
	w.Project(t)
	reader := query.New(w.Pool, w.Store)
	requireSameAtAnyPageSize(t, func(a query.Activity) string {
		return a.Title
	}, func(p query.Page) (query.List[query.Activity], error) {
		return reader.LeadActivity(t.Context(), "acme", id, p)
	})
	for _, cursor := range []string{
		"x", query.EncodeOrdinal(query.CursorOf("v1", "acme"), 1), query.EncodeCursor("v1", "0", "1"),
		query.EncodeCursor(query.CursorOf("v1", "globex"), "0", "1"), strings.Repeat("x", 200),
	} {
		_, err := reader.LeadActivity(t.Context(), "acme", id, query.Page{Limit: 1, Cursor: cursor})
		require.ErrorIs(t, err, query.ErrCursor, cursor)
	}
}

// step is an event: an activity of a visitor, or an arrival of a lead with the visitor's id.
type step struct {
	visitor string
	lead    int // number of the lead in its account, from 1; 0 for an activity
}

var steps = rapid.Custom(func(t *rapid.T) []step {
	arrivals := rapid.SliceOfN(rapid.Map(rapid.IntRange(1, 2), func(lead int) step { return step{lead: lead} }),
		1, 4).Draw(t, "arrivals")
	all := rapid.Permutation(append(make([]step, 5), arrivals...)).Draw(t, "order")
	for i := range all {
		all[i].visitor = rapid.SampledFrom([]string{"v", "w", "x"}).Draw(t, "visitor")
	}
	return all
})

// The order of leads and activities on the log does not affect the activities of a lead.
func TestActivity_BeforeOrAfterLead(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	const accounts = 60
	ids, want := [accounts][3]string{}, [accounts][3][]string{} // id and titles of activity of each lead
	for n := range accounts {
		account, all := fmt.Sprintf("account-%d", n), steps.Example(n)
		for i, s := range all {
			if s.lead == 0 {
				appendActivity(t, w, account, s.visitor, fmt.Sprint(i), i)
				continue
			}
			id := &ids[n][s.lead]
			if *id == "" {
				*id = w.NewID()
				w.Append(t, account, event.LeadStream(*id), event.LeadCreated{
					LeadFields: event.LeadFields{Name: "N"}, Source: "api", VisitorID: s.visitor,
				})
			} else {
				w.Append(t, account, event.LeadStream(*id), event.LeadMerged{Source: "website", VisitorID: s.visitor})
			}
		}
		for lead := range ids[n] {
			hasVisitor := func(visitor string) bool { return slices.Contains(all, step{visitor, lead}) }
			for i, s := range all {
				if s.lead == 0 && hasVisitor(s.visitor) {
					want[n][lead] = append(want[n][lead], fmt.Sprint(i))
				}
			}
		}
	}
	w.Project(t)
	reader, found := query.New(w.Pool, w.Store), 0
	for n := range accounts {
		for _, lead := range []int{1, 2} {
			if ids[n][lead] == "" {
				continue
			}
			list, err := reader.LeadActivity(t.Context(), fmt.Sprintf("account-%d", n), ids[n][lead], firstPage)
			require.NoError(t, err)
			require.ElementsMatch(t, want[n][lead], titles(list), "%v", steps.Example(n))
			require.True(t, slices.IsSorted(titles(list)), "each title is the time of its activity, one digit")
			found += len(list.Items)
		}
	}
	require.Greater(t, found, accounts)
}

func TestRefused_Filters(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	one, two := w.NewID(), w.NewID() // 1 and 2 ms after the start
	refuse := func(account string, refused event.LeadRefused) {
		w.Append(t, account, event.RefusedStream(w.NewID()), refused) // each 2 ms later
	}
	refuse("acme", event.LeadRefused{Source: "api", Code: "DUPLICATE_LEAD_SOURCE", LeadID: one})
	refuse("acme", event.LeadRefused{Source: "webhook", Code: "DUPLICATE_LEAD_EMAIL", LeadID: two, Other: one})
	refuse("globex", event.LeadRefused{Source: "api", Code: "DUPLICATE_LEAD_SOURCE", LeadID: w.NewID()})
	w.Project(t)
	reader := query.New(w.Pool, w.Store)
	at := func(n int) time.Time { return projectiontest.Start.Add(time.Duration(n) * time.Millisecond) }
	for name, c := range map[string]struct {
		filter query.RefusedFilter
		want   []string
	}{
		"all, oldest first":  {query.RefusedFilter{}, []string{one, two}},
		"source":             {query.RefusedFilter{Source: "webhook"}, []string{two}},
		"code":               {query.RefusedFilter{Code: "DUPLICATE_LEAD_SOURCE"}, []string{one}},
		"no such code":       {query.RefusedFilter{Code: "\x00"}, []string{}},
		"since is inclusive": {query.RefusedFilter{Since: at(6)}, []string{two}},
		"until is exclusive": {query.RefusedFilter{Until: at(6)}, []string{one}},
	} {
		list, err := reader.Refused(t.Context(), "acme", c.filter, firstPage)
		require.NoError(t, err)
		require.Equal(t, c.want, ids(list.Items, func(a query.RefusedArrival) string { return a.LeadID }), name)
	}
	list, err := reader.Refused(t.Context(), "acme", query.RefusedFilter{}, firstPage)
	require.NoError(t, err)
	require.Equal(t,
		`[{"at":"2026-03-01T09:00:00.004Z","source":"api","code":"DUPLICATE_LEAD_SOURCE","leadId":"`+one+
			`","otherLeadId":null,`+
			`"credential":{"kind":"jwt","id":"urn:ada"},"requestId":"request-4"},`+
			`{"at":"2026-03-01T09:00:00.006Z","source":"webhook","code":"DUPLICATE_LEAD_EMAIL","leadId":"`+two+
			`","otherLeadId":"`+one+`",`+
			`"credential":{"kind":"jwt","id":"urn:ada"},"requestId":"request-6"}]`, text(t, list.Items))
}
