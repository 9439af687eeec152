package query_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/query"
)

// walk reads a list page by page.
func walk[T any](t *testing.T, limit int, list func(query.Page) (query.List[T], error)) []T {
	t.Helper()
	var all []T
	p := query.Page{Limit: limit}
	for {
		page, err := list(p)
		require.NoError(t, err)
		require.LessOrEqual(t, len(page.Items), limit)
		all = append(all, page.Items...)
		if p.Cursor = page.NextCursor; p.Cursor == "" {
			return all
		}
		require.Len(t, page.Items, limit, "only the last page is short")
	}
}

// requireSameAtAnyPageSize requires that a list has the same items at any page size, sorted and without duplicates.
// Pages of one item end after every item.
func requireSameAtAnyPageSize[T any](t *testing.T, key func(T) string, list func(query.Page) (query.List[T], error)) {
	t.Helper()
	all := walk(t, 200, list)
	require.Greater(t, len(all), 3)
	keys := ids(all, key)
	require.True(t, slices.IsSorted(keys), "%v", keys)
	require.Len(t, slices.Compact(slices.Clone(keys)), len(keys))
	for _, limit := range []int{1, 2, 3, 7, len(all) - 1, len(all), len(all) + 1} {
		require.Equal(t, keys, ids(walk(t, limit, list), key), "pages of %d", limit)
	}
}

// newest returns keys that sort in descending order.
func newest(at query.Timestamp, id string) string {
	inverted := []byte(id)
	for i := range inverted {
		inverted[i] = ^inverted[i]
	}
	return fmt.Sprintf("%016d %x", 1<<50-time.Time(at).UnixMilli(), inverted)
}

func TestLists_EveryItemOnceInOrder(t *testing.T) {
	t.Parallel()
	w, history, reader := readerOf(t, 7, 300)
	ctx := t.Context()
	for range 4 {
		w.Append(t, "acme", event.WebhookStream(w.NewID()), event.WebhookRegistered{
			WebhookSettings: event.WebhookSettings{URL: "https://example.com", Events: []string{"*"}},
		})
	}
	for i := range 5 {
		w.Append(t, "acme", event.RefusedStream(w.NewID()), event.LeadRefused{
			Source: "api", Code: fmt.Sprint("C", i), LeadID: w.NewID(),
		})
	}
	for _, source := range []string{"website", "api", "webhook", "api", "chatbot"} {
		stream := event.LeadStream(history.Leads["acme"][0])
		w.Append(t, "acme", stream, event.LeadMerged{
			Source: source, NewSource: !fold(t, w, stream, lead.Evolve).HasSource(source),
		})
	}
	w.Project(t)
	// Several items have the same millisecond.
	for table, column := range map[string]string{"lead": "lead_id", "token": "token_id", "endpoint": "webhook_id"} {
		_, err := w.Pool.Exec(ctx,
			`UPDATE views.`+table+` SET created_at = date_trunc('second', created_at) WHERE `+column+` < 'Z'`)
		require.NoError(t, err)
	}
	_, err := w.Pool.Exec(ctx, `UPDATE views.touch SET at = date_trunc('minute', at) WHERE lead_id <> $1`,
		history.Leads["acme"][0])
	require.NoError(t, err)

	t.Run("leads", func(t *testing.T) {
		t.Parallel()
		requireSameAtAnyPageSize(t, func(l query.Lead) string {
			return newest(l.CreatedAt, l.LeadID)
		}, func(p query.Page) (query.List[query.Lead], error) {
			return reader.Leads(ctx, "acme", query.LeadFilter{}, p)
		})
	})
	t.Run("sources", func(t *testing.T) {
		t.Parallel()
		positions := map[string]int{}
		var id, source string
		var position int
		rows, err := w.Pool.Query(ctx, `
			SELECT coalesce(o.owner, t.lead_id), source, t.position FROM views.touch t LEFT JOIN views.touch_owner o
			USING (position) WHERE first`)
		require.NoError(t, err)
		_, err = pgx.ForEachRow(rows, []any{&id, &source, &position}, func() error {
			positions[id+source] = position
			return nil
		})
		require.NoError(t, err)
		key := func(s query.SourceEntry) string {
			return fmt.Sprintf("%016d %09d", time.Time(s.FirstSeenAt).UnixMilli(), positions[s.LeadID+s.Source])
		}
		requireSameAtAnyPageSize(t, key, func(p query.Page) (query.List[query.SourceEntry], error) {
			return reader.Sources(ctx, "acme", query.SourceFilter{}, p)
		})
	})
	t.Run("tokens", func(t *testing.T) {
		t.Parallel()
		requireSameAtAnyPageSize(t, func(k query.Token) string {
			return newest(k.CreatedAt, k.TokenID)
		}, func(p query.Page) (query.List[query.Token], error) {
			return reader.Tokens(ctx, "acme", p)
		})
	})
	t.Run("endpoints", func(t *testing.T) {
		t.Parallel()
		requireSameAtAnyPageSize(t, func(e query.Endpoint) string {
			return newest(e.CreatedAt, e.WebhookID)
		}, func(p query.Page) (query.List[query.Endpoint], error) {
			return reader.Endpoints(ctx, "acme", p)
		})
	})
	t.Run("audit", func(t *testing.T) {
		t.Parallel()
		requireSameAtAnyPageSize(t, func(e query.TokenEvent) string {
			return fmt.Sprintf("%09d", e.Position)
		}, func(p query.Page) (query.List[query.TokenEvent], error) {
			return reader.AuditTokens(ctx, "acme", query.AuditFilter{}, p)
		})
	})
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		requireSameAtAnyPageSize(t, func(a query.RefusedArrival) string {
			return fmt.Sprint(time.Time(a.At).UnixMilli())
		}, func(p query.Page) (query.List[query.RefusedArrival], error) {
			return reader.Refused(ctx, "acme", query.RefusedFilter{}, p)
		})
	})
	t.Run("lead", func(t *testing.T) {
		t.Parallel()
		id := history.Leads["acme"][0]
		requireSameAtAnyPageSize(t, func(e query.Event) string {
			return fmt.Sprintf("%09d", e.Revision)
		}, func(p query.Page) (query.List[query.Event], error) {
			return reader.LeadEvents(ctx, "acme", id, p)
		})
		requireSameAtAnyPageSize(t, func(s query.SourceEntry) string {
			return fmt.Sprint(time.Time(s.FirstSeenAt).UnixMilli())
		}, func(p query.Page) (query.List[query.SourceEntry], error) {
			return reader.LeadSources(ctx, "acme", id, p)
		})
	})
}

func TestCursor_OfAnotherList(t *testing.T) {
	t.Parallel()
	_, history, reader := readerOf(t, 8, 300)
	ctx, leadID := t.Context(), history.Leads["acme"][0]
	lists := map[string]func(query.Page) (string, error){
		"leads": func(p query.Page) (string, error) {
			l, err := reader.Leads(ctx, "acme", query.LeadFilter{}, p)
			return l.NextCursor, err
		},
		"tokens": func(p query.Page) (string, error) {
			l, err := reader.Tokens(ctx, "acme", p)
			return l.NextCursor, err
		},
		"endpoints": func(p query.Page) (string, error) {
			l, err := reader.Endpoints(ctx, "acme", p)
			return l.NextCursor, err
		},
		"audit": func(p query.Page) (string, error) {
			l, err := reader.AuditTokens(ctx, "acme", query.AuditFilter{}, p)
			return l.NextCursor, err
		},
		"sources": func(p query.Page) (string, error) {
			l, err := reader.LeadSources(ctx, "acme", leadID, p)
			return query.EncodeOrdinal(query.CursorOf("s1", "acme"), 1), errOf(l, err)
		},
		"activity": func(p query.Page) (string, error) {
			l, err := reader.LeadActivity(ctx, "acme", leadID, p)
			return query.EncodeCursor(query.CursorOf("v1", "acme"), "0", "1"), errOf(l, err)
		},
		"refused": func(p query.Page) (string, error) {
			l, err := reader.Refused(ctx, "acme", query.RefusedFilter{}, p)
			return query.EncodeOrdinal(query.CursorOf("f1", "acme"), 1), errOf(l, err)
		},
		"events": func(p query.Page) (string, error) {
			l, err := reader.LeadEvents(ctx, "acme", leadID, p)
			return query.EncodeOrdinal(query.CursorOf("e1", "acme"), 0), errOf(l, err)
		},
	}
	for from, list := range lists {
		cursor, err := list(query.Page{Limit: 1})
		require.NoError(t, err)
		require.NotEmpty(t, cursor, from)
		for to, other := range lists {
			if _, err := other(query.Page{Limit: 1, Cursor: cursor}); from == to {
				require.NoError(t, err, from)
			} else {
				require.ErrorIs(t, err, query.ErrCursor, "from %s to %s", from, to)
			}
		}
	}
}

func errOf[T any](_ query.List[T], err error) error { return err }

func TestLeads_Filters(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	for _, c := range []event.LeadCreated{
		{
			LeadFields: event.LeadFields{
				Name: "Ärger_100%", Phone: "+919876543210", Email: "anna@example.com", Status: "Neu",
				Temperature: "hot",
			}, Source: "api",
		},
		{
			LeadFields: event.LeadFields{Name: `Back\slash`, Phone: "+4930123456", Status: "new", Temperature: "warm"},
			Source:     "website",
		},
		{
			LeadFields: event.LeadFields{
				Name: "Xrger 1000", Email: "bob@example.com", Status: "won", Temperature: "warm",
			}, Source: "api",
		},
	} {
		w.Append(t, "acme", event.LeadStream(w.NewID()), c)
	}
	w.Project(t)
	reader := query.New(w.Pool, w.Store)
	at := func(n int) time.Time { return projectiontest.Start.Add(time.Duration(n) * time.Millisecond) }

	const a, b, x = "Ärger_100%", `Back\slash`, "Xrger 1000" // created 2, 4 and 6 ms after the start
	for name, c := range map[string]struct {
		filter query.LeadFilter
		want   []string
	}{
		"all, newest first":        {query.LeadFilter{}, []string{x, b, a}},
		"status in another case":   {query.LeadFilter{Status: "nEU"}, []string{a}},
		"no such status":           {query.LeadFilter{Status: "ne"}, nil},
		"source":                   {query.LeadFilter{Source: "api"}, []string{x, a}},
		"temperature":              {query.LeadFilter{LeadTemperature: "WARM"}, []string{x, b}},
		"phone":                    {query.LeadFilter{Phone: "+919876543210"}, []string{a}},
		"email":                    {query.LeadFilter{Email: "bob@example.com"}, []string{x}},
		"part of a name":           {query.LeadFilter{Q: "RGER"}, []string{x, a}},
		"umlauts in another case":  {query.LeadFilter{Q: "äRG"}, []string{a}},
		"part of a phone":          {query.LeadFilter{Q: "0123"}, []string{b}},
		"part of an email":         {query.LeadFilter{Q: "Example"}, []string{x, a}},
		"an underscore is itself":  {query.LeadFilter{Q: "r_1"}, []string{a}},
		"a percent sign is itself": {query.LeadFilter{Q: "100%"}, []string{a}},
		"a backslash is itself":    {query.LeadFilter{Q: `k\s`}, []string{b}},
		"a backslash at the end":   {query.LeadFilter{Q: `e\`}, nil},
		"a line break":             {query.LeadFilter{Q: "\n"}, nil},
		"a name and a phone":       {query.LeadFilter{Q: "100%\n+91"}, nil},
		"quotes":                   {query.LeadFilter{Q: `' OR true --`}, nil},
		"since is inclusive":       {query.LeadFilter{CreatedSince: at(4)}, []string{x, b}},
		"until is exclusive":       {query.LeadFilter{CreatedUntil: at(4)}, []string{a}},
		"both":                     {query.LeadFilter{CreatedSince: at(3), CreatedUntil: at(5)}, []string{b}},
		"all at once": {
			query.LeadFilter{Source: "api", Q: "rger", LeadTemperature: "hot", Status: "neu"}, []string{a},
		},
		"NUL":       {query.LeadFilter{Q: "a\x00"}, nil},
		"not text":  {query.LeadFilter{Email: "\xff"}, nil},
		"very long": {query.LeadFilter{Q: strings.Repeat("ab%", 20_000)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			list, err := reader.Leads(t.Context(), "acme", c.filter, firstPage)
			require.NoError(t, err)
			require.ElementsMatch(t, c.want, ids(list.Items, func(l query.Lead) string { return l.Name }))
			require.True(t, slices.Equal(c.want, ids(list.Items, func(l query.Lead) string { return l.Name })))
		})
	}
}

func TestAuditTokens_Filters(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	// 1 and 2 ms after the start
	one, two := w.NewID(), w.NewID()
	// 3 to 5
	w.Append(t, "acme", event.TokenStream(one), event.TokenCreated{Name: "1"},
		event.TokenRotated{}, event.TokenDeleted{})
	// 6
	w.Append(t, "acme", event.TokenStream(two), event.TokenCreated{Name: "2"})
	w.Project(t)
	reader := query.New(w.Pool, w.Store)
	at := func(n int) time.Time { return projectiontest.Start.Add(time.Duration(n) * time.Millisecond) }
	for name, c := range map[string]struct {
		filter query.AuditFilter
		want   []string
	}{
		"all, oldest first": {
			query.AuditFilter{}, []string{"token.created", "token.rotated", "token.deleted", "token.created"},
		},
		"one token":          {query.AuditFilter{TokenID: two}, []string{"token.created"}},
		"no token":           {query.AuditFilter{TokenID: "\x00"}, []string{}},
		"type":               {query.AuditFilter{Type: "token.rotated"}, []string{"token.rotated"}},
		"since is inclusive": {query.AuditFilter{Since: at(5)}, []string{"token.deleted", "token.created"}},
		"until is exclusive": {query.AuditFilter{Until: at(4)}, []string{"token.created"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			list, err := reader.AuditTokens(t.Context(), "acme", c.filter, firstPage)
			require.NoError(t, err)
			require.Equal(t, c.want, ids(list.Items, func(e query.TokenEvent) string { return e.Type }))
			var exported []string
			for e, err := range reader.AuditTokensAll(t.Context(), "acme", c.filter) {
				require.NoError(t, err)
				exported = append(exported, e.Type)
			}
			require.ElementsMatch(t, c.want, exported)
		})
	}
}

func TestExport_BeyondOnePage(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	facts := []event.Data{event.TokenCreated{Name: "1"}}
	for range 2100 {
		facts = append(facts, event.TokenRotated{})
	}
	w.Append(t, "acme", event.TokenStream(w.NewID()), facts...)
	w.Project(t)
	reader := query.New(w.Pool, w.Store)
	var positions []int
	for e, err := range reader.AuditTokensAll(t.Context(), "acme", query.AuditFilter{}) {
		require.NoError(t, err)
		positions = append(positions, int(e.Position))
	}
	require.Len(t, positions, len(facts))
	require.True(t, slices.IsSorted(positions))
	for range reader.AuditTokensAll(t.Context(), "acme", query.AuditFilter{}) {
		break // a caller may stop early
	}
}
