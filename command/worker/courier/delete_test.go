package courier_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/command/worker/courier"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/delivery/deliverytest"
	"github.com/leadlog/leadlog/projection/projectiontest"
)

// owners registers endpoints by command, in accounts of a few each, because each registration reads all slots of the
// account.
func owners(
	t *testing.T, w *projectiontest.World, url string, accounts, each int,
) (handlers *command.Handlers, endpoints map[string]command.Caller) {
	t.Helper()
	directory := command.NewDirectory(w.Store, time.Now)
	handlers = command.NewHandlers(command.Options{
		Store: w.Store, Claims: claim.NewNames(key(2)), Directory: directory, Secrets: secrets(t, w.Pool, key(1)),
		Log: slog.New(slog.DiscardHandler), AllowPrivateTargets: true,
	})
	ids := make([][]string, accounts)
	callers := make([]command.Caller, accounts)
	var group errgroup.Group
	group.SetLimit(8)
	for n := range accounts {
		callers[n] = command.Caller{
			Account: fmt.Sprintf("account-%d", n), Actor: "user:ada", Credential: "jwt:ada", ReadsLeads: true,
		}
		group.Go(func() error {
			for range each {
				made, err := handlers.RegisterWebhookEndpoint(t.Context(), command.RegisterWebhookEndpoint{
					Caller: callers[n], Registration: webhook.Registration{URL: url},
				})
				if err != nil {
					return err
				}
				ids[n] = append(ids[n], made.ID)
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	endpoints = map[string]command.Caller{}
	for n, of := range ids {
		for _, id := range of {
			endpoints[id] = callers[n]
		}
	}
	return handlers, endpoints
}

// TestCourier_DeletedEndpoint races a hundred deletions with deliveries to receivers that
// always fail, so that without the deletion each would be retried.
func TestCourier_DeletedEndpoint(t *testing.T) {
	t.Parallel()
	const accounts, each, leads = 20, 5, 2
	const timeout = 15 * time.Second
	w := deliverytest.New(t)
	failing := receive(t, func(_ int, w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) })
	handlers, endpoints := owners(t, w, failing.URL, accounts, each)
	// The retry delay exceeds maxClaimAge, as on any real schedule.
	spreading := send(t, w, func(o *courier.Options) {
		o.Timeout, o.Schedule = timeout, []time.Duration{time.Second, time.Second, time.Second, time.Second}
	})

	type deletion struct {
		id string
		at time.Time // when it was responded to
	}
	deletions := make(chan deletion, len(endpoints))
	var group errgroup.Group
	group.SetLimit(16)
	group.Go(func() error {
		for range leads {
			for n := range accounts {
				w.Append(t, fmt.Sprintf("account-%d", n), event.LeadStream(w.NewID()), deliverytest.NewLead("Ann"))
			}
		}
		return nil
	})
	for id, owner := range endpoints { // in random order
		group.Go(func() error {
			// The race: before, between and after the first attempts. Every endpoint causes more attempts than are
			// awaited.
			for awaited := rand.N(leads * 3); len(failing.got()) < awaited; {
				if sleep := eventstore.Sleep(t.Context(), 5*time.Millisecond); sleep != nil {
					return sleep
				}
			}
			time.Sleep(rand.N(500 * time.Millisecond))
			_, err := handlers.DeleteWebhookEndpoint(context.WithoutCancel(t.Context()), command.DeleteWebhookEndpoint{
				Caller: owner, WebhookID: id,
			})
			deletions <- deletion{id, time.Now()}
			return err
		})
	}
	require.NoError(t, group.Wait())
	close(deletions)
	projectiontest.Await(t, spreading)
	var queued int
	require.Eventually(t, func() bool {
		err := w.Pool.QueryRow(t.Context(), `SELECT count(*) FROM delivery.queue`).Scan(&queued)
		return err == nil && queued == 0
	}, 4*projectiontest.Soon, 10*time.Millisecond, "everything ends, most of it cancelled")

	deleted := map[string]time.Time{}
	for d := range deletions {
		deleted[d.id] = d.at
	}
	require.Len(t, deleted, accounts*each)
	rows, err := w.Pool.Query(t.Context(),
		`SELECT webhook_id, delivery_id, at FROM delivery.attempt JOIN delivery.delivery USING (delivery_id)`)
	require.NoError(t, err)
	after := map[string]int{}
	all := 0
	var webhookID, deliveryID string
	var at time.Time
	_, err = pgx.ForEachRow(rows, []any{&webhookID, &deliveryID, &at}, func() error {
		all++
		if at.After(deleted[webhookID]) {
			after[deliveryID]++
			require.False(t, at.After(deleted[webhookID].Add(timeout+time.Second)), "an attempt that late")
		}
		return nil
	})
	require.NoError(t, err)
	require.NotZero(t, all, "deliveries were raced at all")
	for id, n := range after {
		require.Equal(t, 1, n, "attempts of delivery %s after its endpoint's deletion was answered", id)
	}
}
