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
	"github.com/leadlog/leadlog/query"
)

// A search finds moments first and then leads. Many leads may be of one moment, and a part of the list may end within it.
func TestASearchInPartsHasAllThatTheWholeListHasOfIt(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	// In moments of 1, 7 and 70 leads.
	for n := range 120 {
		moment := n
		if n >= 50 {
			moment = 60 + n/70
		} else if n >= 10 {
			moment = 10 + n/7
		}
		for _, account := range []string{"acme", "other"} {
			e := w.NewEvent()
			e.At, e.Metadata.Account = projectiontest.Start.Add(time.Duration(moment)*time.Minute), account
			var err error
			e.Type, e.Data, err = event.Encode(event.LeadCreated{
				Name: fmt.Sprint([]string{"Asha Rao", "Ravi Iyer", "Asha Iyer"}[n%3], " ", n), Status: "new", Temperature: "hot", Source: "api",
			})
			require.NoError(t, err)
			_, err = w.Store.Append(t.Context(), eventstore.Write{
				Stream: event.LeadStream(e.ID.String()), Expect: eventstore.NoStream, Events: []eventstore.Event{e},
			})
			require.NoError(t, err)
		}
	}
	w.Project(t)
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
			require.LessOrEqual(t, len(names), 120)
		}
	}
	since, until := projectiontest.Start.Add(5*time.Minute), projectiontest.Start.Add(61*time.Minute)
	for _, bounds := range []query.LeadFilter{{}, {CreatedSince: since}, {CreatedUntil: until}, {CreatedSince: since, CreatedUntil: until}} {
		all := list(bounds, 200)
		require.NotEmpty(t, all)
		for _, q := range []string{"ASHA", "iyer", "ravi", "asha iyer", " 11", "nobody"} {
			var want []string
			for _, name := range all {
				if strings.Contains(strings.ToLower(name), strings.ToLower(q)) {
					want = append(want, name)
				}
			}
			bounds.Q = q
			for _, limit := range []int{1, 2, 3, 25, 200} {
				require.Equal(t, want, list(bounds, limit), "%q in parts of %d", q, limit)
			}
			bounds.LeadTemperature = "hot" // beside which a search goes another way
			require.Equal(t, want, list(bounds, 25), q)
			bounds.LeadTemperature = ""
		}
	}
}
