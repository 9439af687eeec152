package delivery

import (
	"context"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
)

// Endpoints builds the table of endpoints as FanOut does, and queues nothing. It serves to compare that table with the log: a wrong
// row would send events to the wrong place, or to nobody.
type Endpoints struct{ FanOut }

func (Endpoints) Filter() eventstore.Filter {
	return eventstore.Filter{StreamPrefixes: []string{event.WebhookPrefix}}
}

func (Endpoints) Apply(ctx context.Context, tx pgx.Tx, batch []projection.Event) error {
	questions := &pgx.Batch{}
	endpoints := askEndpoints(questions, batch)
	if err := tx.SendBatch(ctx, questions).Close(); err != nil {
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

// endpoint is one as of an event.
type endpoint struct {
	account, url string
	events       []string
	deleted      bool
	disabled     bool
}

func (e endpoint) wants(account, name string) bool {
	return !e.deleted && !e.disabled && e.account == account && wanted(e.events, name)
}

// wanted reports whether a type is among those asked for.
func wanted(events []string, name string) bool {
	return slices.Contains(events, "*") || slices.Contains(events, name)
}

// evolve folds an event of the endpoint's stream. Not ok: it changes nothing about who gets what.
func (e endpoint) evolve(recorded projection.Event) (_ endpoint, ok bool) {
	switch data := recorded.Data.(type) {
	case event.WebhookRegistered:
		return endpoint{account: recorded.Metadata.Account, url: data.URL, events: data.Events}, true
	case event.WebhookUpdated:
		e.url, e.events = data.URL, data.Events
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

// askEndpoints asks for those of all accounts that a batch is about.
func askEndpoints(questions *pgx.Batch, batch []projection.Event) (found map[string]endpoint) {
	accounts := map[string]struct{}{}
	for i := range batch {
		accounts[batch[i].Metadata.Account] = struct{}{}
	}
	found = map[string]endpoint{}
	questions.Queue(`SELECT webhook_id, account, url, events, disabled FROM endpoint WHERE account = ANY ($1) AND NOT deleted`,
		slices.Sorted(maps.Keys(accounts))).Query(func(rows pgx.Rows) error {
		var id string
		var e endpoint
		_, err := pgx.ForEachRow(rows, []any{&id, &e.account, &e.url, &e.events, &e.disabled}, func() error {
			found[id] = e
			e.events = nil
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
			INSERT INTO endpoint (webhook_id, account, url, events, deleted, disabled) VALUES ($1, $2, $3, $4, $5, $6)
			    ON CONFLICT (webhook_id) DO UPDATE
			   SET url = excluded.url, events = excluded.events, deleted = excluded.deleted, disabled = excluded.disabled`,
			id, e.account, e.url, append([]string{}, e.events...), e.deleted, e.disabled)
	}
	if batch.Len() == 0 {
		return nil
	}
	return tx.SendBatch(ctx, batch).Close()
}
