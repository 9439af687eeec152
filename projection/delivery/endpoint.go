package delivery

import (
	"context"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/schema"
)

// EndpointsKnown is true once the fan-out has reached the position where deliveries begin. While it reads the log
// again, for example after a restore, endpoints are in an earlier state: with earlier URLs, or not yet disabled.
const EndpointsKnown = `EXISTS (SELECT FROM delivery.checkpoint c JOIN delivery.origin o USING (epoch)
                        WHERE c.projector = '` + schema.FanOut + `' AND c.position >= o.position)`

// Endpoints builds the table of endpoints like FanOut, and queues nothing. Verifications compare the table with it: a
// wrong row would send events to the wrong URL, or to none.
type Endpoints struct{ FanOut }

func (Endpoints) Filter() eventstore.Filter {
	return eventstore.Filter{StreamPrefixes: []string{event.WebhookPrefix}}
}

func (Endpoints) Apply(ctx context.Context, tx pgx.Tx, batch []projection.Event) error {
	queries := &pgx.Batch{}
	endpoints := queueEndpoints(queries, accountsOf(batch))
	if err := tx.SendBatch(ctx, queries).Close(); err != nil {
		return err
	}
	changed := map[string]endpoint{}
	for _, e := range batch {
		id := event.WebhookID(e.Stream)
		if now, ok := endpoints[id].evolve(e); ok {
			endpoints[id], changed[id] = now, now
		}
	}
	return saveEndpoints(ctx, tx, changed)
}

// endpoint is the state of an endpoint as of an event.
type endpoint struct {
	event.WebhookSettings
	account  string
	deleted  bool
	disabled bool
}

func (e endpoint) active() bool { return !e.deleted && !e.disabled }

func (e endpoint) wants(account, name string) bool {
	return e.active() && e.account == account && webhook.Subscribes(e.Events, name)
}

// evolve folds an event of the endpoint's stream. Ok is false if the event does not change the endpoint.
func (e endpoint) evolve(recorded projection.Event) (_ endpoint, ok bool) {
	switch data := recorded.Data.(type) {
	case event.WebhookRegistered:
		return endpoint{account: recorded.Metadata.Account, WebhookSettings: data.WebhookSettings}, true
	case event.WebhookUpdated:
		e.WebhookSettings = data.WebhookSettings
	case event.WebhookDisabled:
		e.disabled = true
	case event.WebhookEnabled:
		e.disabled = false
	case event.WebhookDeleted:
		e.deleted = true
	default:
		return e, false
	}
	return e, true
}

// queueEndpoints adds a query for the endpoints of accounts. The map is filled when the batch is sent.
func queueEndpoints(queries *pgx.Batch, accounts []string) (found map[string]endpoint) {
	found = map[string]endpoint{}
	queries.Queue(`
		SELECT webhook_id, account, url, events, filter, ordering, rate_limit, header_names, disabled
		  FROM endpoint WHERE account = ANY ($1) AND NOT deleted`, accounts).Query(func(rows pgx.Rows) error {
		var id string
		var e endpoint
		_, err := pgx.ForEachRow(rows,
			[]any{
				&id, &e.account, &e.URL, &e.Events, &e.Filter, &e.Ordering, &e.RateLimit, &e.HeaderNames, &e.disabled,
			}, func() error {
				found[id] = e
				e.Events, e.HeaderNames = nil, nil
				return nil
			})
		return err
	})
	return found
}

func saveEndpoints(ctx context.Context, tx pgx.Tx, changed map[string]endpoint) error {
	batch := &pgx.Batch{}
	for _, id := range slices.Sorted(maps.Keys(changed)) {
		e := changed[id]
		batch.Queue(`
			INSERT INTO endpoint (webhook_id, account, url, events, filter, ordering, rate_limit, header_names, deleted,
			  disabled)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
			    ON CONFLICT (webhook_id) DO UPDATE
			   SET url = excluded.url, events = excluded.events, filter = excluded.filter, ordering = excluded.ordering,
			       rate_limit = excluded.rate_limit, header_names = excluded.header_names, deleted = excluded.deleted,
			       disabled = excluded.disabled`,
			id, e.account, e.URL, append([]string{}, e.Events...), e.Filter, e.Ordering, e.RateLimit,
			append([]string{}, e.HeaderNames...), e.deleted, e.disabled)
	}
	if batch.Len() == 0 {
		return nil
	}
	return tx.SendBatch(ctx, batch).Close()
}
