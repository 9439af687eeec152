// Package delivery sends events to webhook endpoints. It owns the queue and the records of deliveries.
//
// [FanOut] reads the log and writes a row for each event and subscribed endpoint, in the transaction that moves its
// checkpoint. A [FilterWorker] does this for events whose filters cost too much for that transaction. The couriers of
// command/worker/courier send the rows. A [Replayer] queues past events again at the request of owners, and [Days]
// drops old partitions of the records.
package delivery

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/schema"
)

// Begin records, once for each log, the position after which events are delivered. It must be called before the first
// event that should be delivered is appended.
func Begin(ctx context.Context, pool *pgxpool.Pool, store eventstore.Store) error {
	epoch, err := store.Epoch(ctx)
	if err != nil {
		return fmt.Errorf("begin deliveries: %w", err)
	}
	head, err := store.Head(ctx)
	if err != nil {
		return fmt.Errorf("begin deliveries: %w", err)
	}
	_, err = pool.Exec(ctx, `INSERT INTO delivery.origin (epoch, position) VALUES ($1, $2) ON CONFLICT DO NOTHING`,
		epoch, int64(head))
	if err != nil {
		return fmt.Errorf("begin deliveries: %w", schema.Unavailable(err))
	}
	return nil
}

// FanOut is the projector that queues deliveries: it decides which endpoints receive an event. It folds the endpoints
// itself, so that it knows the exact endpoints as of each event. It runs in the schema schema.Deliveries.
//
// It is not in view.All, so that a replay of the views sends nothing.
type FanOut struct {
	Epoch   string
	Bodies  *Bodies  // shared with the courier in this process; nil: none
	Filters *Filters // required if an endpoint has a filter
}

func (FanOut) Name() string { return schema.FanOut }
func (FanOut) Version() int { return 1 }

// Tables leaves out the tables of deliveries, which are kept when the projector is reset.
func (FanOut) Tables() []string { return []string{"endpoint"} }

func (FanOut) Filter() eventstore.Filter {
	return eventstore.Filter{
		StreamPrefixes: []string{
			event.LeadPrefix, event.TokenPrefix, event.IntakePrefix, event.ArrivalPrefix, event.WebhookPrefix,
		},
	}
}

// Choose skips events of accounts that never had an endpoint, which are most accounts.
func (FanOut) Choose(ctx context.Context, db projection.Rows) (func(projection.Event) bool, error) {
	// accounts that have or had an endpoint: an erasure also affects deliveries to a deleted endpoint
	known := map[string]bool{}
	var account string
	rows, err := db.Query(ctx, `SELECT DISTINCT account FROM endpoint`)
	if err != nil {
		return nil, err
	}
	if _, err := pgx.ForEachRow(rows, []any{&account}, func() error { known[account] = true; return nil }); err != nil {
		return nil, err
	}
	return func(e projection.Event) bool {
		if strings.HasPrefix(e.Stream, event.WebhookPrefix) {
			known[e.Metadata.Account] = true
			return true
		}
		return known[e.Metadata.Account] && len(webhook.Messages(e.Data)) > 0
	}, nil
}

func (f FanOut) Apply(ctx context.Context, tx pgx.Tx, batch []projection.Event) error {
	o, err := f.known(ctx, tx, batch)
	if err != nil {
		return err
	}
	for _, e := range batch {
		if id, ok := strings.CutPrefix(e.Stream, event.WebhookPrefix); ok {
			o.evolve(id, e)
		} else if err := o.queue(ctx, e); err != nil {
			return err
		}
	}
	if err := saveEndpoints(ctx, tx, o.changed); err != nil {
		return err
	}
	if err := o.rows.save(ctx, tx); err != nil {
		return err
	}
	if err := saveDeferred(ctx, tx, o.deferred); err != nil {
		return err
	}
	if err := arrangeLanes(ctx, tx, o.ordered); err != nil {
		return err
	}
	if err := o.counts.save(ctx, tx, o.refiltered); err != nil {
		return err
	}
	if err := o.requests.save(ctx, tx); err != nil {
		return err
	}
	return eraseDeliveries(ctx, tx, o.forgotten, o.forgottenBefore)
}

// changes collects the changes of a batch.
type changes struct {
	FanOut
	origin             eventstore.Position // position after which events are delivered
	endpoints, changed map[string]endpoint
	ids                []string // of endpoints, in order; nil: not sorted yet
	rows               queue
	requests           requests
	ordered            []string // endpoints whose lanes have changed
	refiltered         []string // endpoints whose filter has changed
	counts             filterCounts
	behind             map[string]bool   // accounts whose events are deferred
	spent              map[string]uint64 // steps of filters in this batch, by account
	spentByAll         uint64
	deferred           []deferredEvent
	forgotten          []string         // streams of leads
	forgottenBefore    map[string]int64 // of streams of leads that are not erased: up to which revision
}

// evolve applies an event of an endpoint.
func (o *changes) evolve(id string, e projection.Event) {
	before := o.endpoints[id]
	if now, ok := before.evolve(e); ok {
		o.endpoints[id], o.changed[id], o.ids = now, now, nil
		if now.Ordering != before.Ordering || now.Ordering != "" && now.active() != before.active() {
			o.ordered = append(o.ordered, id)
		}
		if now.Filter != before.Filter {
			o.refiltered = append(o.refiltered, id)
			delete(o.counts, id)
		}
	}
	if e.Position > o.origin {
		o.requests.add(id, o.endpoints[id], e, &o.rows)
	} else {
		o.requests.addEarlier(id, o.endpoints[id], e)
	}
}

// queue adds the rows of an event.
func (o *changes) queue(ctx context.Context, e projection.Event) error {
	if erased, ok := e.Data.(event.LeadErased); ok {
		whole := o.forgetBodies(e.Stream, erased)
		o.forgotten = append(o.forgotten, whole...)
		for _, stream := range whole {
			delete(o.forgottenBefore, stream)
		}
		for _, origin := range erased.Origins {
			stream := event.LeadStream(origin.LeadID)
			o.Bodies.forget(stream)
			if slices.Contains(o.forgotten, stream) && o.forgottenBefore[stream] == 0 {
				continue // all of it
			}
			o.forgotten = append(o.forgotten, stream)
			o.forgottenBefore[stream] = max(o.forgottenBefore[stream], origin.Before)
		}
	}
	if e.Erased || e.Position <= o.origin {
		return nil
	}
	for _, m := range webhook.Messages(e.Data) {
		if err := o.queueMessage(ctx, e, m); err != nil {
			return err
		}
	}
	return nil
}

// queueMessage adds a row for each endpoint that is subscribed to a message of an event.
func (o *changes) queueMessage(ctx context.Context, e projection.Event, m webhook.Message) error {
	c := o.Filters.candidate(e, m)
	wanted := len(o.rows.deliveries)
	var deferred []string
	if o.ids == nil {
		o.ids = slices.AppendSeq(make([]string, 0, len(o.endpoints)), maps.Keys(o.endpoints))
		slices.Sort(o.ids)
	}
	account := e.Metadata.Account
	for _, id := range o.ids {
		to := o.endpoints[id]
		if !to.wants(account, m.Type) {
			continue
		}
		if o.defers(account, to) {
			deferred = append(deferred, id)
			continue
		}
		before := c.steps
		decided, err := c.decide(ctx, to.Filter)
		if err != nil {
			return err
		}
		o.spend(account, c.steps-before)
		if o.counts.add(id, decided); decided == matching {
			o.rows.add(e.ID, id, m, 0, e)
		}
	}
	if deferred != nil {
		o.deferred = append(o.deferred, deferredEvent{account, e, m, deferred})
	}
	if len(o.rows.deliveries) > wanted && !c.rendered {
		o.Bodies.add(m, e)
	}
	return nil
}

// forgetBodies removes the cached bodies of erased leads, and returns the streams whose deliveries must be erased.
func (f FanOut) forgetBodies(stream string, erased event.LeadErased) []string {
	streams := []string{stream}
	for _, id := range erased.Leads {
		streams = append(streams, event.LeadStream(id))
	}
	for _, s := range streams {
		f.Bodies.forget(s)
	}
	return streams
}

// known reads the position after which events are delivered, and the endpoints of all accounts of a batch.
func (f FanOut) known(ctx context.Context, tx pgx.Tx, batch []projection.Event) (changes, error) {
	o := changes{FanOut: f, changed: map[string]endpoint{}, counts: filterCounts{}, behind: map[string]bool{},
		spent:           map[string]uint64{},
		forgottenBefore: map[string]int64{},
	}
	var origin *int64
	accounts := accountsOf(batch)
	queries := &pgx.Batch{}
	queries.Queue(`SELECT max(position) FROM origin WHERE epoch = $1`, f.Epoch).QueryRow(func(row pgx.Row) error {
		return row.Scan(&origin)
	})
	queueBehind(queries, accounts, o.behind)
	o.endpoints = queueEndpoints(queries, accounts)
	if err := tx.SendBatch(ctx, queries).Close(); err != nil {
		return o, err
	}
	if origin == nil {
		return o, errors.New("delivery.origin has no row for this log")
	}
	o.origin = eventstore.Position(*origin)
	return o, nil
}

// accountsOf returns the accounts of a batch.
func accountsOf(batch []projection.Event) []string {
	accounts := map[string]struct{}{}
	for i := range batch {
		accounts[batch[i].Metadata.Account] = struct{}{}
	}
	return slices.Sorted(maps.Keys(accounts))
}
