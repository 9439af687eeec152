package delivery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/schema"
)

// The filters of one account must not delay the deliveries and erasures of others, which wait for the fan-out. So a
// batch of the fan-out applies only as many filters as accountSteps and batchSteps allow. It defers the other events of
// the account, whose filters a FilterWorker applies in turns with those of other accounts. While events of an account
// are deferred, its later ones are too, so that each endpoint gets its events in the order of the log. Deliveries to
// endpoints with neither filter nor ordering are never deferred.
const (
	// of an account's filters in a batch of the fan-out or in a turn; a step takes less than a microsecond
	accountSteps = 50_000
	batchSteps   = 150_000 // of all filters in a batch of the fan-out
	deferredRows = 500     // read for an account in a turn
)

// deferredEvent is a message of an event that waits for the filters of some endpoints.
type deferredEvent struct {
	account string
	projection.Event
	message    webhook.Message
	webhookIDs []string
}

// defers reports whether an event for an endpoint has to wait.
func (o *changes) defers(account string, to endpoint) bool {
	if to.Filter != "" && o.spentByAll >= batchSteps {
		o.behind[account] = true
	}
	return o.behind[account] && (to.Filter != "" || to.Ordering != "")
}

func (o *changes) spend(account string, steps uint64) {
	o.spentByAll += steps
	if o.spent[account] += steps; o.spent[account] >= accountSteps {
		o.behind[account] = true
	}
}

// queueBehind adds a query for those accounts that have deferred events.
func queueBehind(queries *pgx.Batch, accounts []string, behind map[string]bool) {
	queries.Queue(`
		SELECT account FROM unnest($1::text[]) AS u (account)
		 WHERE EXISTS (SELECT FROM delivery.deferred d
		   WHERE d.account = u.account)`, accounts).Query(func(rows pgx.Rows) error {
		var account string
		_, err := pgx.ForEachRow(rows, []any{&account}, func() error {
			behind[account] = true
			return nil
		})
		return err
	})
}

// saveDeferred adds events in their order, each once even if the log is read again.
func saveDeferred(ctx context.Context, tx pgx.Tx, events []deferredEvent) error {
	batch := &pgx.Batch{}
	for _, d := range events {
		batch.Queue(`
			INSERT INTO delivery.deferred (event_id, part, account, type, stream, revision, position, webhook_ids)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
			    ON CONFLICT DO NOTHING`,
			d.ID.String(), d.message.Part, d.account, d.message.Type, d.Stream, int64(d.Revision),
			int64(d.Position), d.webhookIDs)
	}
	if batch.Len() == 0 {
		return nil
	}
	return tx.SendBatch(ctx, batch).Close()
}

// FilterWorker queues the deliveries of deferred events. It applies the current filters of their endpoints. Any number
// of workers may run on one database; one at a time is active.
type FilterWorker struct {
	Pool    *pgxpool.Pool
	Leases  *schema.Leases
	Filters *Filters
	Log     *slog.Logger
}

// filterLease is the lease of the active FilterWorker. It only avoids duplicate work: each step checks that no other
// process made it.
const filterLease = "delivery filters"

const (
	filterPoll  = 100 * time.Millisecond
	filterRetry = 5 * time.Second
)

// Run applies filters until the context is done.
func (w FilterWorker) Run(ctx context.Context) {
	work := eventstore.Background{
		Work: "apply filters of webhook endpoints", Interval: filterPoll, Retry: filterRetry, Log: w.Log,
	}
	work.Run(ctx, w.RunOnce)
}

// RunOnce applies as many filters of each account as it may in a turn, and then waits as long as that took, so that
// costly filters take at most half a processor. It reports whether any event was decided.
func (w FilterWorker) RunOnce(ctx context.Context) (worked bool, err error) {
	accounts, err := w.waiting(ctx)
	if err != nil || len(accounts) == 0 {
		return false, schema.Unavailable(err)
	}
	lease, err := w.Leases.Acquire(ctx, filterLease)
	if err != nil || lease == nil {
		return false, schema.Unavailable(err)
	}
	defer lease.Release()
	ctx = lease.Context
	var failed error
	var busy time.Duration
	for _, account := range accounts {
		began := time.Now()
		moved, steps, err := w.advance(ctx, account)
		if steps >= accountSteps {
			busy += time.Since(began)
		}
		if worked = worked || moved; err != nil {
			failed = errors.Join(failed, fmt.Errorf("filters of account %s: %w", account, schema.Unavailable(err)))
		}
	}
	if err := eventstore.Sleep(ctx, busy); err != nil {
		return worked, err
	}
	return worked, failed
}

// waiting returns the accounts with deferred events, by index. There are none while the fan-out reads the log again.
func (w FilterWorker) waiting(ctx context.Context) ([]string, error) {
	rows, err := w.Pool.Query(ctx, `
		WITH RECURSIVE waiting (account) AS (
		    (SELECT account FROM delivery.deferred WHERE `+EndpointsKnown+` ORDER BY account LIMIT 1)
		    UNION ALL
		    SELECT (SELECT d.account FROM delivery.deferred d WHERE d.account > w.account ORDER BY d.account LIMIT 1)
		      FROM waiting w WHERE w.account IS NOT NULL
		)
		SELECT account FROM waiting WHERE account IS NOT NULL`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// filterTurn is what a turn decides on the events of an account.
type filterTurn struct {
	rows   queue
	counts filterCounts
	done   []*deferredEvent // wait for no endpoint
	begun  *deferredEvent
	left   []string // of the endpoints of begun
	steps  uint64
}

// advance decides on the oldest events of an account, without a transaction. After an error it saves what was decided
// before.
func (w FilterWorker) advance(ctx context.Context, account string) (moved bool, steps uint64, err error) {
	events, endpoints, err := w.read(ctx, account)
	if err != nil {
		return false, 0, err
	}
	d := filterTurn{counts: filterCounts{}}
	for i := 0; i < len(events) && err == nil && d.steps < accountSteps; i++ {
		err = d.decide(ctx, w.Filters, &events[i], endpoints)
	}
	if len(d.done) == 0 && d.begun == nil {
		return false, d.steps, err
	}
	return true, d.steps, errors.Join(err, w.save(ctx, d))
}

// read returns the oldest deferred events of an account, and its endpoints.
func (w FilterWorker) read(
	ctx context.Context, account string,
) (events []deferredEvent, endpoints map[string]endpoint, err error) {
	err = inDeliveries(ctx, w.Pool, func(tx pgx.Tx) error {
		queries := &pgx.Batch{}
		endpoints = queueEndpoints(queries, []string{account})
		queries.Queue(`
			SELECT event_id, part, type, stream, revision, position, webhook_ids FROM deferred WHERE account = $1
			ORDER BY ordinal LIMIT $2`,
			account, deferredRows).Query(func(rows pgx.Rows) (err error) {
			events, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (deferredEvent, error) {
				d := deferredEvent{account: account, Event: projection.Event{Recorded: &eventstore.Recorded{}}}
				var id string
				err := row.Scan(&id, &d.message.Part, &d.message.Type, &d.Stream, &d.Revision, &d.Position, &d.webhookIDs)
				if err == nil {
					d.ID, err = ulid.ParseStrict(id)
				}
				return d, err
			})
			return err
		})
		return tx.SendBatch(ctx, queries).Close()
	})
	return events, endpoints, err
}

// decide applies the filters of the endpoints that an event waits for, up to the limit of a turn or an error.
func (d *filterTurn) decide(
	ctx context.Context, filters *Filters, e *deferredEvent, endpoints map[string]endpoint,
) (err error) {
	c := filters.at(Source{Stream: e.Stream, Revision: e.Revision, Position: e.Position, Message: e.message})
	left := e.webhookIDs
	for ; len(left) > 0 && d.steps < accountSteps; left = left[1:] {
		to, known := endpoints[left[0]]
		if !known { // deleted
			continue
		}
		verdict, before := matching, c.steps
		if !to.disabled { // otherwise the courier cancels it, which shows its owner that it was not sent
			if verdict, err = c.decide(ctx, to.Filter); err != nil {
				break
			}
		}
		d.steps += c.steps - before
		if d.counts.add(left[0], verdict); verdict == matching {
			d.rows.add(e.ID, left[0], e.message, 0, e.Event)
		}
	}
	switch len(left) {
	case 0:
		d.done = append(d.done, e)
	case len(e.webhookIDs):
	default:
		d.begun, d.left = e, left
	}
	return err
}

// errDecided means that another process has decided on an event.
var errDecided = errors.New("another process has decided on the event")

func (w FilterWorker) save(ctx context.Context, d filterTurn) error {
	return inDeliveries(ctx, w.Pool, func(tx pgx.Tx) error {
		ids, parts := make([]string, len(d.done)), make([]int, len(d.done))
		for i, e := range d.done {
			ids[i], parts[i] = e.ID.String(), e.message.Part
		}
		gone, err := tx.Exec(ctx, `
			DELETE FROM deferred d USING unnest($1::text[], $2::integer[]) AS u (event_id, part)
			 WHERE d.event_id = u.event_id AND d.part = u.part`, ids, parts)
		if err == nil && gone.RowsAffected() != int64(len(d.done)) {
			err = errDecided
		}
		if err == nil && d.begun != nil {
			gone, err = tx.Exec(ctx, `
				UPDATE deferred SET webhook_ids = $4 WHERE event_id = $1 AND part = $2 AND webhook_ids = $3`,
				d.begun.ID.String(), d.begun.message.Part, d.begun.webhookIDs, d.left)
			if err == nil && gone.RowsAffected() != 1 {
				err = errDecided
			}
		}
		if err == nil {
			err = d.counts.save(ctx, tx, nil)
		}
		if err == nil {
			err = d.rows.save(ctx, tx)
		}
		return err
	})
}

// inDeliveries runs a transaction in the schema of deliveries.
func inDeliveries(ctx context.Context, pool *pgxpool.Pool, do func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL search_path = `+schema.Deliveries); err != nil {
			return err
		}
		return do(tx)
	})
}
