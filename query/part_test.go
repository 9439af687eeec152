package query_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/query"
)

// TestAPartOfAListIsOfSomeBytesHoweverManyItemsAreAskedFor lists leads as large as somebody can make them.
func TestAPartOfAListIsOfSomeBytesHoweverManyItemsAreAskedFor(t *testing.T) {
	t.Parallel()
	const leads, large, most = 15, 400 << 10, 1 << 20
	w := projectiontest.New(t)
	w.Append(t, "acme", event.AccountStream("acme"), event.AccountConfigured{Stages: []string{"new"}, Region: "IN"})
	fields := map[string]jsontext.Value{"note": jsontext.Value(`"` + strings.Repeat("x", large) + `"`)}
	var id string
	for n := range leads {
		id = w.NewID()
		w.Append(t, "acme", event.LeadStream(id), event.LeadCreated{
			Name: "Asha", Phone: fmt.Sprintf("+9198765432%02d", n), Status: "new", Source: "api", Temperature: "hot", CustomFields: fields,
		})
	}
	for range leads {
		w.Append(t, "acme", event.LeadStream(id), event.LeadMerged{Source: "website", CustomFields: fields})
	}
	w.Project(t)
	reader := query.New(w.Pool, w.Store)
	walked := func(list func(query.Page) (int, any, string, error)) (all int) {
		for p := (query.Page{Limit: 200}); ; {
			items, shown, next, err := list(p)
			require.NoError(t, err)
			text, err := json.Marshal(shown)
			require.NoError(t, err)
			require.Less(t, len(text), most+2*large)
			all += items
			if p.Cursor = next; next == "" {
				return all
			}
		}
	}
	for _, filter := range []query.LeadFilter{{}, {Q: "asha"}, {LeadTemperature: "hot"}} {
		require.Equal(t, leads, walked(func(p query.Page) (int, any, string, error) {
			part, err := reader.Leads(t.Context(), "acme", filter, p)
			return len(part.Items), part.Items, part.NextCursor, err
		}))
	}
	require.Equal(t, 1+leads, walked(func(p query.Page) (int, any, string, error) {
		part, err := reader.LeadEvents(t.Context(), "acme", id, p)
		return len(part.Items), part.Items, part.NextCursor, err
	}))
}
