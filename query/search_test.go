package query_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/projection/schema"
	"github.com/leadlog/leadlog/query"
)

// A search looks through blocks of leads, for moments first and then for leads. Many leads may be of one moment, and a part
// of the list may end within it.
func TestASearchInPartsHasAllThatTheWholeListHasOfIt(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	// In moments of 1, 7, 70 and 150 leads.
	for n := range 640 {
		moment := n
		switch {
		case n >= 630:
			moment = 110
		case n >= 600:
			moment = 100
		case n >= 450:
			moment = 80
		case n >= 50:
			moment = 60 + n/70
		case n >= 10:
			moment = 10 + n/7
		}
		for _, account := range []string{"acme", "other"} {
			name := fmt.Sprint([]string{"Asha Rao", "Ravi Iyer", "Asha Iyer"}[n%3], " ", n)
			if account == "acme" && n%160 == 100 {
				name = fmt.Sprint("Zubin ", n)
			}
			e := w.NewEvent()
			e.At, e.Metadata.Account = projectiontest.Start.Add(time.Duration(moment)*time.Minute), account
			var err error
			e.Type, e.Data, err = event.Encode(event.LeadCreated{Name: name, Status: "new", Temperature: "hot", Source: "api"})
			require.NoError(t, err)
			_, err = w.Store.Append(t.Context(), eventstore.Write{
				Stream: event.LeadStream(e.ID.String()), Expect: eventstore.NoStream, Events: []eventstore.Event{e},
			})
			require.NoError(t, err)
		}
	}
	stop := projectiontest.Run(t, w.Runner(t))
	count := func(what string) (n int) {
		require.NoError(t, w.Pool.QueryRow(t.Context(), `SELECT count(*) FROM views.lead_block WHERE `+what).Scan(&n))
		return n
	}
	// The last moments are in none: others might still come before them.
	require.Eventually(t, func() bool { return count(`grams IS NOT NULL`) == 2*4 }, projectiontest.Soon, 2*time.Millisecond)
	stop()

	reader := query.New(w.Pool, w.Store)
	list := func(filter query.LeadFilter, limit int) (names []string) {
		for p := (query.Page{Limit: limit}); ; {
			part, err := reader.Leads(t.Context(), "acme", filter, p)
			require.NoError(t, err)
			for _, l := range part.Items {
				names = append(names, l.Name)
			}
			if p.Cursor = part.NextCursor; p.Cursor == "" {
				return names
			}
			require.Len(t, part.Items, limit)
			require.LessOrEqual(t, len(names), 640)
		}
	}
	since, until := projectiontest.Start.Add(5*time.Minute), projectiontest.Start.Add(80*time.Minute)
	for _, blocks := range []string{`false`, `since > '2026-03-01' AND until < '2026-03-02'`, `true`} {
		_, err := w.Pool.Exec(t.Context(), `UPDATE views.lead_block SET grams = NULL WHERE `+blocks)
		require.NoError(t, err)
		for _, bounds := range []query.LeadFilter{{}, {CreatedSince: since}, {CreatedUntil: until}, {CreatedSince: since, CreatedUntil: until}} {
			all := list(bounds, 200)
			require.NotEmpty(t, all)
			for _, q := range []string{"ASHA", "asha iyer", "ravi", "zubin", "Z", "zu", " 11", "nobody", "q"} {
				var want []string
				for _, name := range all {
					if strings.Contains(strings.ToLower(name), strings.ToLower(q)) {
						want = append(want, name)
					}
				}
				bounds.Q = q
				for _, limit := range []int{3, 25, 200} {
					if limit > 3 || len(want) < 30 {
						require.Equal(t, want, list(bounds, limit), "%q in parts of %d", q, limit)
					}
				}
				for _, beside := range []string{"hot", "cold"} {
					bounds.LeadTemperature = beside
					if beside == "cold" {
						want = nil
					}
					require.Equal(t, want, list(bounds, 25), q)
				}
				bounds.LeadTemperature = ""
			}
		}
	}
	_, err := w.Pool.Exec(t.Context(), `DELETE FROM views.lead_block`)
	require.NoError(t, err)
	require.Len(t, list(query.LeadFilter{Q: "zubin"}, 3), 4)
}

// What a block says keeps a search from looking into it.
func TestASearchDoesNotLookIntoBlocksThatLackAGram(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	id := w.NewID()
	w.Append(t, "acme", event.LeadStream(id), event.LeadCreated{Name: "Asha Rao", Status: "new", Temperature: "hot", Source: "api"})
	w.Project(t)
	var block schema.Grams
	block.AddLead("asha", "warm", "api")
	_, err := w.Pool.Exec(t.Context(), `INSERT INTO views.lead_block (account, since, until, grams) VALUES ('acme', '-infinity', '2030-01-01', $1)`, block[:])
	require.NoError(t, err)
	reader := query.New(w.Pool, w.Store)
	for q, found := range map[string]int{"asha": 1, "sha": 1, "h": 1, "rao": 0, "asha rao": 0, "o": 0} {
		list, err := reader.Leads(t.Context(), "acme", query.LeadFilter{Q: q}, query.Page{Limit: 10})
		require.NoError(t, err)
		require.Len(t, list.Items, found, q)
	}
	list, err := reader.Leads(t.Context(), "acme", query.LeadFilter{LeadTemperature: "hot"}, query.Page{Limit: 10})
	require.NoError(t, err)
	require.Empty(t, list.Items)
}
