package query_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/query"
)

// TestLists_PageBoundedInBytes lists leads of the largest size.
func TestLists_PageBoundedInBytes(t *testing.T) {
	t.Parallel()
	const leads, large, maxBytes = 15, 400 << 10, 1 << 20
	w := projectiontest.New(t)
	w.Append(t, "acme", event.AccountStream("acme"), event.AccountConfigured{Stages: []string{"new"}, Region: "IN"})
	fields := map[string]jsontext.Value{"note": jsontext.Value(`"` + strings.Repeat("x", large) + `"`)}
	var id string
	for n := range leads {
		id = w.NewID()
		w.Append(t, "acme", event.LeadStream(id), event.LeadCreated{
			LeadFields: event.LeadFields{
				Name: "Asha", Phone: fmt.Sprintf("+9198765432%02d", n), Status: "new", Temperature: "hot",
				CustomFields: fields,
			}, Source: "api",
		})
	}
	for range leads {
		w.Append(t, "acme", event.LeadStream(id), event.LeadMerged{
			Source: "website", LeadFields: event.LeadFields{CustomFields: fields},
		})
	}
	w.Project(t)
	reader := query.New(w.Pool, w.Store)
	walked := func(list func(query.Page) (int, any, string, error)) int {
		return walkBounded(t, maxBytes+2*large, list)
	}
	for _, filter := range []query.LeadFilter{{}, {Q: "asha"}, {LeadTemperature: "hot"}} {
		require.Equal(t, leads, walked(func(p query.Page) (int, any, string, error) {
			page, err := reader.Leads(t.Context(), "acme", filter, p)
			return len(page.Items), page.Items, page.NextCursor, err
		}))
	}
	require.Equal(t, 1+leads, walked(func(p query.Page) (int, any, string, error) {
		page, err := reader.LeadEvents(t.Context(), "acme", id, p)
		return len(page.Items), page.Items, page.NextCursor, err
	}))
}

// TestDeliveries_PageBoundedInBytes lists deliveries with the maximum number of failed attempts. Each response has the
// maximum stored length.
func TestDeliveries_PageBoundedInBytes(t *testing.T) {
	t.Parallel()
	const deliveries, attempts, kept, maxBytes = 160, 10, 1 << 10, 1 << 20
	w := projectiontest.New(t)
	endpoint := w.NewID()
	w.Append(t, "acme", event.WebhookStream(endpoint), event.WebhookRegistered{
		WebhookSettings: event.WebhookSettings{URL: "https://hooks.example", Events: []string{"*"}}, Slot: 1,
	})
	w.Project(t)
	pgtest.Exec(t, w.Pool, `SELECT delivery.open_day($1)`, time.Now().UTC())
	rows := &pgx.Batch{}
	for n := range deliveries {
		id := ulid.Make().String()
		rows.Queue(`INSERT INTO delivery.delivery (delivery_id, webhook_id, event_id, generation, type, stream,
			revision, position, renderer)
			VALUES ($1, $2, $1, 0, 'lead.created', 'lead-1', 0, 1, 1)`, id, endpoint)
		if n%4 == 0 {
			continue // no attempts yet
		}
		rows.Queue(`INSERT INTO delivery.attempt (delivery_id, at, status, duration_ms, response, error)
			SELECT $1, now() + n * interval '1 hour', 500, 1, repeat('x', $3), repeat('x', $3)
			FROM generate_series(1, $2::int) AS n`, id, attempts, kept)
	}
	require.NoError(t, w.Pool.SendBatch(t.Context(), rows).Close())
	reader := query.New(w.Pool, w.Store)
	tried := 0
	require.Equal(t, deliveries, walkBounded(t, maxBytes*5/4, func(p query.Page) (int, any, string, error) {
		page, err := reader.Deliveries(t.Context(), "acme", endpoint, true, query.DeliveryFilter{}, p)
		for _, d := range page.Items {
			tried += len(d.Attempts)
		}
		return len(page.Items), page.Items, page.NextCursor, err
	}))
	require.Equal(t, deliveries*3/4*attempts, tried)
}

// A page with a filter scans a limited number of deliveries. All pages together scan every delivery.
func TestDeliveries_FilteredPages(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	endpoint, other := w.NewID(), w.NewID()
	for slot, id := range []string{endpoint, other} {
		w.Append(t, "acme", event.WebhookStream(id), event.WebhookRegistered{
			WebhookSettings: event.WebhookSettings{URL: "https://hooks.example", Events: []string{"*"}}, Slot: slot + 1,
		})
	}
	w.Project(t)
	pgtest.Exec(t, w.Pool, `SELECT delivery.open_day($1)`, time.Now().UTC())
	first := ulid.Make().String()[:18] // prefix of ids in the order of n
	pgtest.Exec(t, w.Pool, `
		INSERT INTO delivery.delivery (delivery_id, webhook_id, event_id, generation, type, stream, revision, position,
		  renderer, state)
		SELECT $1 || to_char(n, 'FM00000000'), CASE n % 10 WHEN 9 THEN $2 ELSE $3 END, 'e', 0, CASE WHEN n % 1000 = 7
		THEN 'token.created' ELSE 'lead.created' END, 's', 0, 1, 1,
		       CASE WHEN n IN (3, 7, 9, 30000, 30007, 30008) THEN 'failed' ELSE 'delivered' END
		  FROM generate_series(1, 50000) AS n`, first, other, endpoint)
	pgtest.Exec(t, w.Pool, `ANALYZE delivery.delivery`)
	reader := query.New(w.Pool, w.Store)
	walk := func(filter query.DeliveryFilter) (found []string, pages int) {
		for p := (query.Page{Limit: 40}); pages == 0 || p.Cursor != ""; pages++ {
			list, err := reader.Deliveries(t.Context(), "acme", endpoint, true, filter, p)
			require.NoError(t, err)
			for _, d := range list.Items {
				found = append(found, strings.TrimLeft(strings.TrimPrefix(d.DeliveryID, first), "0"))
			}
			p.Cursor = list.NextCursor
		}
		return found, pages
	}
	found, pages := walk(query.DeliveryFilter{State: "failed"})
	require.Equal(t, []string{"30008", "30007", "30000", "7", "3"}, found)
	require.Equal(t, 3, pages, "pages of 45,000 deliveries")
	found, _ = walk(query.DeliveryFilter{State: "failed", Type: "token.created"})
	require.Equal(t, []string{"30007", "7"}, found)
	found, pages = walk(query.DeliveryFilter{Type: "token.created"})
	require.Len(t, found, 50)
	require.Equal(t, "49007", found[0])
	require.Equal(t, 3, pages, "a page ends after the maximum number of scanned rows")
	found, _ = walk(query.DeliveryFilter{State: "cancelled"})
	require.Empty(t, found)
}

// walkBounded reads a list page by page and counts its items. Each page must be less than maxBytes as JSON.
func walkBounded(
	t *testing.T, maxBytes int, list func(query.Page) (items int, shown any, next string, err error),
) (all int) {
	t.Helper()
	for p := (query.Page{Limit: 200}); ; {
		items, shown, next, err := list(p)
		require.NoError(t, err)
		text, err := json.Marshal(shown)
		require.NoError(t, err)
		require.Less(t, len(text), maxBytes)
		all += items
		if p.Cursor = next; next == "" {
			return all
		}
	}
}
