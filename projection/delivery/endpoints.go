package delivery

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
)

// Endpoints makes what FanOut knows of endpoints, and queues nothing. A row that is not what the log says would send to the
// wrong place, or to nobody, so that the two are compared.
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
