package delivery_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/delivery"
	"github.com/leadlog/leadlog/projection/projectiontest"
)

// filtering registers an endpoint with a filter.
func filtering(t *testing.T, w *projectiontest.World, filter string) (id string) {
	t.Helper()
	id = w.NewID()
	w.Append(t, "acme", event.WebhookStream(id), event.WebhookRegistered{
		WebhookSettings: event.WebhookSettings{URL: "https://example.com", Events: []string{"*"}, Filter: filter}, Slot: 1,
	})
	return id
}

// filterCounts returns how many events an endpoint's filter has excluded, and failed on.
func filterCounts(t *testing.T, w *projectiontest.World, id string) (filtered, failed int) {
	t.Helper()
	require.NoError(t, w.Pool.QueryRow(t.Context(), `
		SELECT coalesce(sum(filtered), 0), coalesce(sum(failed), 0) FROM delivery.filter_count WHERE webhook_id = $1`, id).Scan(&filtered, &failed))
	return filtered, failed
}

func TestFilter_DecidesAtFanOut(t *testing.T) {
	t.Parallel()
	w := begun(t)
	lead, token := event.LeadStream(w.NewID()), event.TokenStream(w.NewID())
	all := filtering(t, w, "")
	won := filtering(t, w, `changes.exists(c, c.field == 'status' && c.new == 'won')`)
	fails := filtering(t, w, `touch.utmSource == 'google'`)
	tokens := filtering(t, w, `type.startsWith('token.')`)
	change := func(status string) event.LeadUpdated {
		return event.LeadUpdated{LeadFields: event.LeadFields{Name: "Ann", Email: "a@example.com", Status: status, Temperature: "warm"}}
	}
	w.Append(t, "acme", lead, newLead("Ann"), change("won"), change("lost"))
	w.Append(t, "acme", token, event.TokenCreated{Name: "shop"})
	spread(t, w)
	require.Len(t, queued(t, w, all), 4)
	require.Equal(t, []string{"lead.updated " + lead + " 1"}, queued(t, w, won))
	require.Empty(t, queued(t, w, fails))
	require.Equal(t, []string{"token.created " + token + " 0"}, queued(t, w, tokens))
	for id, want := range map[string][2]int{all: {0, 0}, won: {3, 0}, fails: {1, 3}, tokens: {3, 0}} {
		filtered, failed := filterCounts(t, w, id)
		require.Equal(t, want, [2]int{filtered, failed}, id)
	}

	// A replay decides like the first delivery, by the filter as of its request, and counts again.
	w.Append(t, "acme", event.WebhookStream(won), event.WebhookReplayed{Since: projectiontest.Start, Until: projectiontest.Start.AddDate(1, 0, 0), Generation: 1})
	spread(t, w)
	_, err := w.Pool.Exec(t.Context(), `DELETE FROM delivery.queue`)
	require.NoError(t, err)
	for moved := true; moved; {
		moved, err = replayer(w).Turn(t.Context())
		require.NoError(t, err)
	}
	require.Equal(t, []string{"lead.updated " + lead + " 1"}, queued(t, w, won))
	filtered, _ := filterCounts(t, w, won)
	require.Equal(t, 6, filtered)

	// The counts of a changed filter start at zero.
	w.Append(t, "acme", event.WebhookStream(won), event.WebhookUpdated{
		WebhookSettings: event.WebhookSettings{URL: "https://example.com", Events: []string{"*"}, Filter: `data.status == 'won'`}, Changed: []string{"filter"},
	})
	gone := event.LeadStream(w.NewID())
	w.Append(t, "acme", gone, newLead("Bea"), event.LeadErased{})
	spread(t, w)
	filtered, failed := filterCounts(t, w, won)
	require.Equal(t, [2]int{1, 1}, [2]int{filtered, failed}, "lead.erased has no status")
	require.NotContains(t, queued(t, w, won), "lead.created "+gone+" 0")
}

// Mappings wait for at most one event of a preview.
func TestPreview_TakesTurns(t *testing.T) {
	t.Parallel()
	w := begun(t)
	lead := event.LeadStream(w.NewID())
	w.Append(t, "acme", lead, newLead("Ann"), event.LeadUpdated{LeadFields: event.LeadFields{Name: "Bea", Email: "a@example.com", Status: "won"}})
	places := []delivery.Place{{Stream: lead, Revision: 0, Position: 1, Type: "lead.created"}, {Stream: lead, Revision: 1, Position: 2, Type: "lead.updated"}}
	var turns, open int
	turn := func(context.Context) (func(), error) {
		turns, open = turns+1, open+1
		require.Equal(t, 1, open)
		return func() { open-- }, nil
	}
	preview, err := delivery.NewFilters(w.Store, nil).Preview(t.Context(), places, `data.name == "Bea"`, turn)
	require.NoError(t, err)
	require.Equal(t, []int{2, 1, 0, 2, 0}, []int{preview.Events, preview.Matched, preview.Failed, turns, open})
	full := errors.New("no turn")
	_, err = delivery.NewFilters(w.Store, nil).Preview(t.Context(), places, `true`, func(context.Context) (func(), error) { return nil, full })
	require.ErrorIs(t, err, full)
}
