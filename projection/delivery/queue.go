package delivery

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/schema"
)

// Channel is notified when rows are queued.
const Channel = "leadlog_delivery"

// notifyCouriers notifies, unless PostgreSQL's notification queue is half full. Any role can fill it, by listening
// without reading, and then the transaction of a notification fails. Couriers also poll.
const notifyCouriers = `SELECT pg_notify('` + Channel + `', '') WHERE pg_notification_queue_usage() < 0.5`

// Couriers returns how many couriers have a session in this database.
func Couriers(ctx context.Context, tx pgx.Tx) (n int, err error) {
	// the transaction may have a snapshot of the sessions
	if _, err = tx.Exec(ctx, `SELECT pg_stat_clear_snapshot()`); err != nil {
		return 0, err
	}
	err = tx.QueryRow(ctx, `SELECT count(*) FROM lease.held WHERE name LIKE $1`, schema.CourierLeases).Scan(&n)
	return n, err
}

// awaitDisk makes the commit wait for the disk. Without it, a delivery could be sent before its row is durable, and be
// sent again after a crash. A batch that queues nothing does not need it.
const awaitDisk = `SET LOCAL synchronous_commit = on`

// queue holds the rows that a batch adds, by column.
type queue struct {
	deliveries, webhooks, events, types, streams []string
	revisions, positions                         []int64
	parts                                        []int32
	reached                                      []progress // progress of a replay after each row
	generations                                  []int32
	days                                         map[time.Time]struct{} // of the rows' ids
}

// add adds a row for a message of an event. It is in the partition of its trigger's day: the event itself, or the
// request to replay it.
func (q *queue) add(trigger ulid.ULID, webhookID string, m webhook.Message, generation int, e projection.Event) {
	if q.days == nil {
		q.days = map[time.Time]struct{}{}
	}
	q.days[trigger.Timestamp().UTC().Truncate(24*time.Hour)] = struct{}{}
	q.deliveries = append(q.deliveries, webhook.DeliveryID(trigger, e.ID, m.Part, webhookID, generation))
	q.webhooks, q.events = append(q.webhooks, webhookID), append(q.events, e.ID.String())
	q.types, q.streams = append(q.types, m.Type), append(q.streams, e.Stream)
	q.parts = append(q.parts, int32(m.Part))
	q.generations = append(q.generations, int32(generation))
	q.revisions, q.positions = append(q.revisions, int64(e.Revision)), append(q.positions, int64(e.Position))
}

// filter removes the rows for which want returns false.
func (q *queue) filter(want func(i int) bool) {
	n := 0
	for i := range q.deliveries {
		if !want(i) {
			continue
		}
		for _, column := range []*[]string{&q.deliveries, &q.webhooks, &q.events, &q.types, &q.streams} {
			(*column)[n] = (*column)[i]
		}
		q.revisions[n], q.positions[n], q.generations[n], q.reached[n] = q.revisions[i], q.positions[i],
			q.generations[i], q.reached[i]
		q.parts[n] = q.parts[i]
		n++
	}
	for _, column := range []*[]string{&q.deliveries, &q.webhooks, &q.events, &q.types, &q.streams} {
		*column = (*column)[:n]
	}
	q.revisions, q.positions, q.generations, q.reached = q.revisions[:n], q.positions[:n],
		q.generations[:n], q.reached[:n]
	q.parts = q.parts[:n]
}

func (q *queue) save(ctx context.Context, tx pgx.Tx) error {
	if len(q.deliveries) == 0 {
		return nil
	}
	batch := &pgx.Batch{}
	batch.Queue(awaitDisk)
	LockLanes(batch, q.webhooks)
	days := slices.Collect(maps.Keys(q.days))
	batch.Queue(`SELECT open_day(day) FROM unnest($1::date[]) AS days (day)`, days)
	batch.Queue(`
		WITH made AS (
		    INSERT INTO delivery (delivery_id, webhook_id, event_id, generation, type, stream, revision, position,
		      part, renderer)
		    SELECT d, w, e, g, t, s, r, p, part, $9
		      FROM unnest($1::text[], $2::text[], $3::text[], $4::integer[], $5::text[], $6::text[], $7::bigint[],
		        $8::bigint[], $11::integer[])
		           AS u (d, w, e, g, t, s, r, p, part)
		        ON CONFLICT (delivery_id) DO NOTHING
		    RETURNING *
		), days AS MATERIALIZED (
		    SELECT day, first_id(day) AS first, first_id(day + 1) AS next FROM unnest($10::date[]) AS u (day)
		), counted AS (
		    INSERT INTO account_day AS old (account, day, queued)
		    SELECT account, day, count(*)
		      FROM made JOIN endpoint USING (webhook_id) JOIN days ON delivery_id >= first AND delivery_id < next
		     GROUP BY account, day ORDER BY account, day
		        ON CONFLICT (account, day) DO UPDATE SET queued = old.queued + excluded.queued
		)
		INSERT INTO queue (delivery_id, webhook_id, event_id, type, stream, revision, position, part, renderer,
		  generation, lane, ordinal, due_at)
		SELECT delivery_id, webhook_id, event_id, type, stream, revision, position, part, renderer, generation, lane,
		       CASE WHEN lane IS NOT NULL THEN nextval('ordinal') END, CASE WHEN lane IS NULL THEN now()
		       ELSE 'infinity' END
		  FROM (SELECT made.*, `+laneOf+` AS lane FROM made JOIN endpoint e USING (webhook_id)
		  	ORDER BY position, part) AS made`,
		q.deliveries, q.webhooks, q.events, q.generations, q.types, q.streams, q.revisions,
		q.positions, rendererVersion, days, q.parts)
	batch.Queue(`
		SELECT advance(array_agg(webhook_id), array_agg(lane))
		  FROM (SELECT e.webhook_id, `+laneOf+` AS lane
		          FROM unnest($1::text[], $2::text[], $3::text[]) AS made (webhook_id, stream, type) JOIN endpoint e
		          USING (webhook_id)
		         WHERE e.ordering <> '') AS lanes`, q.webhooks, q.streams, q.types)
	batch.Queue(notifyCouriers)
	return tx.SendBatch(ctx, batch).Close()
}

// laneOf is the lane of a delivery to an endpoint e. A test delivery has none.
const laneOf = `CASE WHEN made.type = '` + testType + `' THEN NULL WHEN e.ordering = '` + webhook.ByLead +
	`' THEN made.stream
                WHEN e.ordering = '` + webhook.ByEndpoint + `' THEN '' END`

// LockLanes locks the rows of endpoints with an ordering, so that no process adds to their lanes while another takes
// from them.
func LockLanes(batch *pgx.Batch, webhookIDs []string) {
	ids := slices.Compact(slices.Sorted(slices.Values(webhookIDs)))
	batch.Queue(
		`SELECT FROM delivery.endpoint WHERE webhook_id = ANY ($1) AND ordering <> '' ORDER BY webhook_id FOR UPDATE`,
		ids,
	)
}

// arrangeLanes assigns the queued deliveries of endpoints to the lanes of their current ordering, in log order. A
// delivery in flight stays the first of its lane, so that the others wait for it when the endpoint was disabled and
// enabled meanwhile; it has none if the ordering is another than when it was claimed. While an endpoint is disabled or
// deleted, all are due, to be cancelled. The endpoints must be saved before the call, which locks them.
func arrangeLanes(ctx context.Context, tx pgx.Tx, webhookIDs []string) error {
	if len(webhookIDs) == 0 {
		return nil
	}
	batch := &pgx.Batch{}
	batch.Queue(`
		UPDATE queue q SET lane = made.lane, ordinal = made.ordinal,
		       due_at = CASE WHEN made.behind THEN 'infinity' WHEN q.due_at = 'infinity' THEN now() ELSE q.due_at END
		  FROM (SELECT delivery_id, lane, CASE WHEN lane IS NOT NULL THEN nextval('ordinal') END AS ordinal,
		               active AND lane IS NOT NULL
		               AND row_number() OVER (PARTITION BY webhook_id, lane ORDER BY waiting, position, part) > 1 AS behind
		          FROM (SELECT made.delivery_id, webhook_id, position, part, NOT e.deleted
		            AND NOT e.disabled AS active, made.lease IS NULL AS waiting,
		                       CASE WHEN made.lease IS NULL OR made.lane = `+laneOf+` THEN `+laneOf+` END AS lane
		                  FROM queue made JOIN endpoint e USING (webhook_id)
		                 WHERE webhook_id = ANY ($1) ORDER BY waiting, position, part) AS made) AS made
		 WHERE q.delivery_id = made.delivery_id`, webhookIDs)
	batch.Queue(notifyCouriers)
	return tx.SendBatch(ctx, batch).Close()
}
