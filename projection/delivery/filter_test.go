package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/delivery"
	"github.com/leadlog/leadlog/projection/delivery/deliverytest"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/projection/schema"
)

// filtering registers an endpoint with a filter.
func filtering(t *testing.T, w *projectiontest.World, filter string) (id string) {
	t.Helper()
	id = w.NewID()
	w.Append(t, "acme", event.WebhookStream(id), event.WebhookRegistered{
		WebhookSettings: event.WebhookSettings{URL: "https://example.com", Events: []string{"*"}, Filter: filter},
		Slot:            1,
	})
	return id
}

// filterCounts returns how many events an endpoint's filter has excluded, and failed on.
func filterCounts(t *testing.T, w *projectiontest.World, id string) (filtered, failed int) {
	t.Helper()
	require.NoError(t, w.Pool.QueryRow(t.Context(), `
		SELECT coalesce(sum(filtered), 0), coalesce(sum(failed), 0) FROM delivery.filter_count
		WHERE webhook_id = $1`, id).Scan(&filtered, &failed))
	return filtered, failed
}

func TestFilter_DecidesAtFanOut(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	lead, token := event.LeadStream(w.NewID()), event.TokenStream(w.NewID())
	all := filtering(t, w, "")
	won := filtering(t, w, `changes.exists(c, c.field == 'status' && c.new == 'won')`)
	fails := filtering(t, w, `touch.utmSource == 'google'`)
	tokens := filtering(t, w, `type.startsWith('token.')`)
	change := func(status string) event.LeadUpdated {
		return event.LeadUpdated{
			LeadFields: event.LeadFields{Name: "Ann", Email: "a@example.com", Status: status, Temperature: "warm"},
		}
	}
	w.Append(t, "acme", lead, deliverytest.NewLead("Ann"), change("won"), change("lost"))
	w.Append(t, "acme", token, event.TokenCreated{Name: "shop"})
	deliverytest.CatchUp(t, w)
	require.Len(t, deliverytest.Queued(t, w, all), 4)
	require.Equal(t, []string{"lead.updated " + lead + " 1"}, deliverytest.Queued(t, w, won))
	require.Empty(t, deliverytest.Queued(t, w, fails))
	require.Equal(t, []string{"token.created " + token + " 0"}, deliverytest.Queued(t, w, tokens))
	for id, want := range map[string][2]int{all: {0, 0}, won: {3, 0}, fails: {1, 3}, tokens: {3, 0}} {
		filtered, failed := filterCounts(t, w, id)
		require.Equal(t, want, [2]int{filtered, failed}, id)
	}

	// A replay decides like the first delivery, by the filter as of its request, and counts again.
	w.Append(t, "acme", event.WebhookStream(won), event.WebhookReplayed{
		Since: projectiontest.Start, Until: projectiontest.Start.AddDate(1, 0, 0), Generation: 1,
	})
	deliverytest.CatchUp(t, w)
	_, err := w.Pool.Exec(t.Context(), `DELETE FROM delivery.queue`)
	require.NoError(t, err)
	for moved := true; moved; {
		moved, err = replayer(t, w).RunOnce(t.Context())
		require.NoError(t, err)
	}
	require.Equal(t, []string{"lead.updated " + lead + " 1"}, deliverytest.Queued(t, w, won))
	filtered, _ := filterCounts(t, w, won)
	require.Equal(t, 6, filtered)

	// The counts of a changed filter start at zero.
	w.Append(t, "acme", event.WebhookStream(won), event.WebhookUpdated{
		WebhookSettings: event.WebhookSettings{
			URL: "https://example.com", Events: []string{"*"}, Filter: `data.status == 'won'`,
		}, Changed: []string{"filter"},
	})
	gone := event.LeadStream(w.NewID())
	w.Append(t, "acme", gone, deliverytest.NewLead("Bea"), event.LeadErased{})
	deliverytest.CatchUp(t, w)
	filtered, failed := filterCounts(t, w, won)
	require.Equal(t, [2]int{1, 1}, [2]int{filtered, failed}, "lead.erased has no status")
	require.NotContains(t, deliverytest.Queued(t, w, won), "lead.created "+gone+" 0")
}

// costly is a filter that fails because it costs too much, for leads with as much metadata as a capture may have.
const costly = `data.metadata.m.all(k, k != "x")`

func costlyLead(t *testing.T) event.LeadCreated {
	t.Helper()
	members := map[string]int{}
	for i := range 2900 {
		members[fmt.Sprintf("k%04d", i)] = i
	}
	raw, err := json.Marshal(members)
	require.NoError(t, err)
	lead := deliverytest.NewLead("Ann")
	lead.Metadata = map[string]jsontext.Value{"m": raw}
	return lead
}

// endpointOf registers an endpoint of an account.
func endpointOf(t *testing.T, w *projectiontest.World, account string, settings event.WebhookSettings) (id string) {
	t.Helper()
	id, settings.URL, settings.Events = w.NewID(), "https://example.com", []string{"*"}
	w.Append(t, account, event.WebhookStream(id), event.WebhookRegistered{WebhookSettings: settings, Slot: 1})
	return id
}

func filterWorker(t *testing.T, w *projectiontest.World) delivery.FilterWorker {
	t.Helper()
	leases := schema.NewLeases(w.Pool.Config().ConnConfig)
	t.Cleanup(leases.Close)
	return delivery.FilterWorker{
		Pool: w.Pool, Leases: leases, Filters: delivery.NewFilters(w.Store, nil), Log: slog.New(slog.DiscardHandler),
	}
}

// The fan-out applied all filters in its transaction: one account with 50 costly ones delayed the deliveries and
// erasures of all.
func TestFilter_CostlyAccountFallsBehindAlone(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	for range 50 {
		endpointOf(t, w, "acme", event.WebhookSettings{Filter: costly})
	}
	for range 15 {
		endpointOf(t, w, "hooli", event.WebhookSettings{Filter: costly})
	}
	plain, inLanes := endpointOf(t, w, "acme", event.WebhookSettings{}),
		endpointOf(t, w, "acme", event.WebhookSettings{Ordering: "endpoint"})
	cheap := endpointOf(t, w, "globex", event.WebhookSettings{Filter: `data.status == "new"`})
	const events = 3
	var streams []string
	for range events {
		for _, account := range []string{"acme", "hooli", "globex"} {
			stream := event.LeadStream(w.NewID())
			w.Append(t, account, stream, costlyLead(t))
			if account == "acme" {
				streams = append(streams, "lead.created "+stream+" 0")
			}
		}
	}
	deliverytest.CatchUp(t, w)
	require.Len(t, deliverytest.Queued(t, w, cheap), events)
	require.Equal(t, streams, deliverytest.Queued(t, w, plain))
	deferred := func() []string {
		return pgtest.Rows[string](t, w.Pool,
			`SELECT concat(account, ' ', count(*)) FROM delivery.deferred GROUP BY account ORDER BY 1`)
	}
	require.Equal(t, []string{"acme 3", "hooli 3"}, deferred())
	failures := func(account string) int {
		return pgtest.Value[int](t, w.Pool,
			`SELECT coalesce(sum(failed), 0) FROM delivery.filter_count JOIN delivery.endpoint USING (webhook_id)
				WHERE account = $1`, account)
	}
	// accountSteps allow five in a turn, and fewer on a machine so busy that they take longer than they cost.
	between := func(least, most int, account string) int {
		n := failures(account)
		require.LessOrEqual(t, least, n, account)
		require.LessOrEqual(t, n, most, account)
		return n
	}
	const inTurn = 5
	acme, hooli := between(1, inTurn, "acme"), between(1, inTurn, "hooli")

	worker := filterWorker(t, w)
	worked, err := worker.RunOnce(t.Context())
	require.NoError(t, err)
	require.True(t, worked)
	between(acme+1, acme+inTurn, "acme") // each has a turn
	between(hooli+1, hooli+inTurn, "hooli")
	w.Append(t, "acme", event.LeadStream(w.NewID()), deliverytest.NewLead("Bea")) // cheap, but behind the others
	deliverytest.CatchUp(t, w)
	require.Equal(t, []string{"acme 4", "hooli 3"}, deferred())
	for worked {
		worked, err = worker.RunOnce(t.Context())
		require.NoError(t, err)
	}
	require.Empty(t, deferred())
	require.Equal(t, []int{50 * (events + 1), 15 * events}, []int{failures("acme"), failures("hooli")},
		"each filter once for each event")
	require.Len(t, deliverytest.Queued(t, w, cheap), events)
	lane := pgtest.Rows[string](t, w.Pool,
		`SELECT concat(type, ' ', stream, ' ', revision) FROM delivery.queue WHERE webhook_id = $1 ORDER BY ordinal`,
		inLanes)
	require.Equal(t, streams, lane[:events], "in the order of the log")
	require.Len(t, lane, events+1)
	require.Equal(t, 1,
		pgtest.Value[int](t, w.Pool,
			`SELECT count(*) FROM delivery.queue WHERE webhook_id = $1 AND due_at < 'infinity'`, inLanes))

	w.Append(t, "acme", event.LeadStream(w.NewID()), deliverytest.NewLead("Cleo"))
	deliverytest.CatchUp(t, w)
	require.Empty(t, deferred(), "it has caught up")
}

// Deferred events are decided by the endpoints as they are then.
func TestFilter_DeferredChanges(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	var ids []string
	for range 12 {
		ids = append(ids, endpointOf(t, w, "acme", event.WebhookSettings{Filter: costly}))
	}
	mended, disabled, deleted, replayed := ids[11], ids[10], ids[9], ids[8]
	first, forgotten := event.LeadStream(w.NewID()), event.LeadStream(w.NewID())
	w.Append(t, "acme", first, costlyLead(t))
	w.Append(t, "acme", forgotten, costlyLead(t))
	deliverytest.CatchUp(t, w)
	w.Append(t, "acme", event.WebhookStream(mended), event.WebhookUpdated{
		WebhookSettings: event.WebhookSettings{
			URL: "https://example.com", Events: []string{"lead.created"}, Filter: "true",
		}, Changed: []string{"filter"},
	})
	w.Append(t, "acme", event.WebhookStream(disabled), event.WebhookDisabled{Reason: "owner"})
	w.Append(t, "acme", event.WebhookStream(deleted), event.WebhookDeleted{})
	w.Append(t, "acme", event.WebhookStream(replayed), event.WebhookUpdated{
		WebhookSettings: event.WebhookSettings{URL: "https://example.com", Events: []string{"*"}, Filter: ""},
		Changed:         []string{"filter"},
	}, replayAll())
	w.Append(t, "acme", forgotten, event.LeadErased{})
	deliverytest.CatchUp(t, w)
	replay(t, w)
	require.Equal(t, map[int]int{0: 1}, generations(t, w, replayed),
		"lead.erased is queued already, and the others are deferred")
	pgtest.Exec(t, w.Pool, `UPDATE delivery.checkpoint SET epoch = 'another' WHERE projector = 'fanout'`)
	worker := filterWorker(t, w)
	worked, err := worker.RunOnce(t.Context())
	require.NoError(t, err)
	require.False(t, worked, "the endpoints are not known")
	pgtest.Exec(t, w.Pool,
		`UPDATE delivery.checkpoint SET epoch = (SELECT epoch FROM delivery.origin) WHERE projector = 'fanout'`)
	for worked = true; worked; {
		worked, err = worker.RunOnce(t.Context())
		require.NoError(t, err)
	}
	require.Equal(t, []string{"lead.created " + first + " 0"}, deliverytest.Queued(t, w, mended),
		"the other lead is erased")
	require.Equal(t, []string{"lead.created " + first + " 0", "lead.created " + forgotten + " 0"},
		deliverytest.Queued(t, w, disabled), "they are cancelled when they are due")
	require.Empty(t, deliverytest.Queued(t, w, deleted))
	require.Equal(t, map[int]int{0: 3}, generations(t, w, replayed))
	require.Zero(t, pgtest.Value[int](t, w.Pool, `SELECT count(*) FROM delivery.deferred`))
}

// Mappings wait for at most one event of a preview.
func TestPreview_TakesTurns(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	lead := event.LeadStream(w.NewID())
	w.Append(t, "acme", lead, deliverytest.NewLead("Ann"), event.LeadUpdated{
		LeadFields: event.LeadFields{Name: "Bea", Email: "a@example.com", Status: "won"},
	})
	sources := []delivery.Source{{Stream: lead, Revision: 0, Position: 1}, {Stream: lead, Revision: 1, Position: 2}}
	all := []string{"*"}
	var turns, open int
	turn := func(context.Context) (func(), error) {
		turns, open = turns+1, open+1
		require.Equal(t, 1, open)
		return func() { open-- }, nil
	}
	preview, err := delivery.NewFilters(w.Store, nil).Preview(t.Context(), sources, all, `data.name == "Bea"`, turn)
	require.NoError(t, err)
	require.Equal(t, []int{2, 1, 0, 2, 0}, []int{preview.Events, preview.Matched, preview.Failed, turns, open})
	full := errors.New("no turn")
	_, err = delivery.NewFilters(w.Store, nil).Preview(t.Context(), sources, all, `true`,
		func(context.Context) (func(), error) { return nil, full })
	require.ErrorIs(t, err, full)
}
