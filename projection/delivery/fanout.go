// Package delivery sends events to webhook endpoints. It owns the queue and the records of deliveries.
//
// [FanOut] reads the log and writes a row for each event and subscribed endpoint, in the transaction that moves its checkpoint. A [FilterWorker]
// does this for events whose filters cost too much for that transaction. The couriers of command/worker/courier send the rows. A [Replayer] queues past events again at the request of owners, and
// [Days] drops old partitions of the records.
package delivery

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/schema"
)

// Channel is notified when rows are queued.
const Channel = "leadlog_delivery"

// notifyCouriers notifies, unless PostgreSQL's notification queue is half full. Any role can fill it, by listening without reading, and
// then the transaction of a notification fails. Couriers also poll.
const notifyCouriers = `SELECT pg_notify('` + Channel + `', '') WHERE pg_notification_queue_usage() < 0.5`

// Begin records, once for each log, the position after which events are delivered. It must be called before the first event that should be
// delivered is appended.
func Begin(ctx context.Context, pool *pgxpool.Pool, store eventstore.Store) error {
	epoch, err := store.Epoch(ctx)
	if err != nil {
		return fmt.Errorf("begin deliveries: %w", err)
	}
	head, err := store.Head(ctx)
	if err != nil {
		return fmt.Errorf("begin deliveries: %w", err)
	}
	_, err = pool.Exec(ctx, `INSERT INTO delivery.origin (epoch, position) VALUES ($1, $2) ON CONFLICT DO NOTHING`, epoch, int64(head))
	if err != nil {
		return fmt.Errorf("begin deliveries: %w", schema.Unavailable(err))
	}
	return nil
}

// EndpointsKnown is true once the fan-out has reached the position where deliveries begin. While it reads the log again, for example after
// a restore, endpoints are in an earlier state: with earlier URLs, or not yet disabled.
const EndpointsKnown = `EXISTS (SELECT FROM delivery.checkpoint c JOIN delivery.origin o USING (epoch)
                        WHERE c.projector = '` + schema.FanOut + `' AND c.position >= o.position)`

// Couriers returns how many couriers have a session in this database.
func Couriers(ctx context.Context, tx pgx.Tx) (n int, err error) {
	if _, err = tx.Exec(ctx, `SELECT pg_stat_clear_snapshot()`); err != nil { // the transaction may have a snapshot of the sessions
		return 0, err
	}
	err = tx.QueryRow(ctx, `SELECT count(*) FROM lease.held WHERE name LIKE $1`, schema.CourierLeases).Scan(&n)
	return n, err
}

// FanOut is the projector that queues deliveries: it decides which endpoints receive an event. It folds the endpoints itself, so that it
// knows the exact endpoints as of each event. It runs in the schema schema.Deliveries.
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
	return eventstore.Filter{StreamPrefixes: []string{event.LeadPrefix, event.TokenPrefix, event.IntakePrefix, event.WebhookPrefix}}
}

// Choose skips events of accounts that never had an endpoint, which are most accounts.
func (FanOut) Choose(ctx context.Context, db projection.Rows) (func(projection.Event) bool, error) {
	known := map[string]bool{} // accounts that have or had an endpoint: an erasure also affects deliveries to a deleted endpoint
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
		_, sent := webhook.SentAs(e.Data)
		return sent && known[e.Metadata.Account]
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
	return eraseDeliveries(ctx, tx, o.forgotten)
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
	forgotten          []string // streams of leads
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

// queue adds a row for each endpoint that is subscribed to an event.
func (o *changes) queue(ctx context.Context, e projection.Event) error {
	if erased, ok := e.Data.(event.LeadErased); ok {
		o.forgotten = append(o.forgotten, o.forgetBodies(e.Stream, erased)...)
	}
	name, sent := webhook.SentAs(e.Data)
	if !sent || e.Erased || e.Position <= o.origin {
		return nil
	}
	c := o.Filters.candidate(e, name)
	wanted := len(o.rows.deliveries)
	var deferred []string
	if o.ids == nil {
		o.ids = slices.AppendSeq(make([]string, 0, len(o.endpoints)), maps.Keys(o.endpoints))
		slices.Sort(o.ids)
	}
	account := e.Metadata.Account
	for _, id := range o.ids {
		to := o.endpoints[id]
		if !to.wants(account, name) {
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
			o.rows.add(e.ID, id, name, 0, e)
		}
	}
	if deferred != nil {
		o.deferred = append(o.deferred, deferredEvent{account, e, name, deferred})
	}
	if len(o.rows.deliveries) > wanted && !c.rendered {
		o.Bodies.add(name, e)
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
	o := changes{FanOut: f, changed: map[string]endpoint{}, counts: filterCounts{}, behind: map[string]bool{}, spent: map[string]uint64{}}
	var origin *int64
	accounts := accountsOf(batch)
	queries := &pgx.Batch{}
	queries.Queue(`SELECT max(position) FROM origin WHERE epoch = $1`, f.Epoch).QueryRow(func(row pgx.Row) error { return row.Scan(&origin) })
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

// awaitDisk makes the commit wait for the disk. Without it, a delivery could be sent before its row is durable, and be sent again after a
// crash. A batch that queues nothing does not need it.
const awaitDisk = `SET LOCAL synchronous_commit = on`

// queue holds the rows that a batch adds, by column.
type queue struct {
	deliveries, webhooks, events, types, streams []string
	revisions, positions                         []int64
	reached                                      []progress // progress of a replay after each row
	generations                                  []int32
	days                                         map[time.Time]struct{} // of the rows' ids
}

// add adds a row for an event. It is in the partition of its trigger's day: the event itself, or the request to replay it.
func (q *queue) add(trigger ulid.ULID, webhookID, name string, generation int, e projection.Event) {
	if q.days == nil {
		q.days = map[time.Time]struct{}{}
	}
	q.days[trigger.Timestamp().UTC().Truncate(24*time.Hour)] = struct{}{}
	q.deliveries = append(q.deliveries, webhook.DeliveryID(trigger, e.ID, webhookID, generation))
	q.webhooks, q.events = append(q.webhooks, webhookID), append(q.events, e.ID.String())
	q.types, q.streams = append(q.types, name), append(q.streams, e.Stream)
	q.generations = append(q.generations, int32(generation))
	q.revisions, q.positions = append(q.revisions, int64(e.Revision)), append(q.positions, int64(e.Position))
}

// keep removes the rows for which want returns false.
func (q *queue) keep(want func(i int) bool) {
	n := 0
	for i := range q.deliveries {
		if !want(i) {
			continue
		}
		for _, column := range []*[]string{&q.deliveries, &q.webhooks, &q.events, &q.types, &q.streams} {
			(*column)[n] = (*column)[i]
		}
		q.revisions[n], q.positions[n], q.generations[n], q.reached[n] = q.revisions[i], q.positions[i], q.generations[i], q.reached[i]
		n++
	}
	for _, column := range []*[]string{&q.deliveries, &q.webhooks, &q.events, &q.types, &q.streams} {
		*column = (*column)[:n]
	}
	q.revisions, q.positions, q.generations, q.reached = q.revisions[:n], q.positions[:n], q.generations[:n], q.reached[:n]
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
		    INSERT INTO delivery (delivery_id, webhook_id, event_id, generation, type, stream, revision, position, renderer)
		    SELECT d, w, e, g, t, s, r, p, $9
		      FROM unnest($1::text[], $2::text[], $3::text[], $4::integer[], $5::text[], $6::text[], $7::bigint[], $8::bigint[])
		           AS u (d, w, e, g, t, s, r, p)
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
		INSERT INTO queue (delivery_id, webhook_id, event_id, type, stream, revision, position, renderer, generation, lane, place, due_at)
		SELECT delivery_id, webhook_id, event_id, type, stream, revision, position, renderer, generation, lane,
		       CASE WHEN lane IS NOT NULL THEN nextval('place') END, CASE WHEN lane IS NULL THEN now() ELSE 'infinity' END
		  FROM (SELECT made.*, `+laneOf+` AS lane FROM made JOIN endpoint e USING (webhook_id) ORDER BY position) AS made`,
		q.deliveries, q.webhooks, q.events, q.generations, q.types, q.streams, q.revisions, q.positions, rendererVersion, days)
	batch.Queue(`
		SELECT advance(array_agg(webhook_id), array_agg(lane))
		  FROM (SELECT e.webhook_id, `+laneOf+` AS lane
		          FROM unnest($1::text[], $2::text[], $3::text[]) AS made (webhook_id, stream, type) JOIN endpoint e USING (webhook_id)
		         WHERE e.ordering <> '') AS lanes`, q.webhooks, q.streams, q.types)
	batch.Queue(notifyCouriers)
	return tx.SendBatch(ctx, batch).Close()
}

// laneOf is the lane of a delivery to an endpoint e. A test delivery has none.
const laneOf = `CASE WHEN made.type = '` + testType + `' THEN NULL WHEN e.ordering = '` + webhook.ByLead + `' THEN made.stream
                WHEN e.ordering = '` + webhook.ByEndpoint + `' THEN '' END`

// LockLanes locks the rows of endpoints with an ordering, so that no process adds to their lanes while another takes from them.
func LockLanes(batch *pgx.Batch, webhookIDs []string) {
	ids := slices.Compact(slices.Sorted(slices.Values(webhookIDs)))
	batch.Queue(`SELECT FROM delivery.endpoint WHERE webhook_id = ANY ($1) AND ordering <> '' ORDER BY webhook_id FOR UPDATE`, ids)
}

// arrangeLanes assigns the queued deliveries of endpoints to the lanes of their current ordering, in log order. A delivery in flight stays the
// first of its lane, so that the others wait for it when the endpoint was disabled and enabled meanwhile; it has none if the ordering is
// another than when it was claimed. While an endpoint is disabled or deleted, all are due, to be cancelled. The endpoints must be saved
// before the call, which locks them.
func arrangeLanes(ctx context.Context, tx pgx.Tx, webhookIDs []string) error {
	if len(webhookIDs) == 0 {
		return nil
	}
	batch := &pgx.Batch{}
	batch.Queue(`
		UPDATE queue q SET lane = made.lane, place = made.place,
		       due_at = CASE WHEN made.behind THEN 'infinity' WHEN q.due_at = 'infinity' THEN now() ELSE q.due_at END
		  FROM (SELECT delivery_id, lane, CASE WHEN lane IS NOT NULL THEN nextval('place') END AS place,
		               active AND lane IS NOT NULL AND row_number() OVER (PARTITION BY webhook_id, lane ORDER BY waiting, position) > 1 AS behind
		          FROM (SELECT made.delivery_id, webhook_id, position, NOT e.deleted AND NOT e.disabled AS active, made.lease IS NULL AS waiting,
		                       CASE WHEN made.lease IS NULL OR made.lane = `+laneOf+` THEN `+laneOf+` END AS lane
		                  FROM queue made JOIN endpoint e USING (webhook_id)
		                 WHERE webhook_id = ANY ($1) ORDER BY waiting, position) AS made) AS made
		 WHERE q.delivery_id = made.delivery_id`, webhookIDs)
	batch.Queue(notifyCouriers)
	return tx.SendBatch(ctx, batch).Close()
}

// testType is the type of a test delivery. It is sent only to the tested endpoint, whatever its types are.
const testType = "webhook.test"

// requests holds the tests, retries and replays of a batch, requested by owners of endpoints.
type requests struct {
	retries []retry
	replays []replay
	healthy []string      // endpoints whose earlier failures no longer count
	endings []ending      // all replays of an endpoint end
	ended   []EndedReplay // according to their events on the log
}

type retry struct {
	webhookID   string
	deliveryIDs []string
	position    eventstore.Position
}

// ending is the end of an endpoint's replays, because it was disabled or deleted.
type ending struct {
	webhookID, reason string
	position          eventstore.Position
}

// replay is a request to send the events of a time range again.
type replay struct {
	webhookID  string
	generation int
	requestID  ulid.ULID
	account    string
	events     []string // types that the endpoint was subscribed to at the request
	filter     string   // of the endpoint at the request
	since      time.Time
	until      *time.Time // nil: up to the request
	requested  eventstore.Position
	reached    *eventstore.Position // nil: not started
	disabled   bool                 // the endpoint was disabled at reached, since a time in the range
	failure    string               // why it fails; empty: it does not
}

// add adds the request in an event of an endpoint's stream. A test adds a row to the queue.
func (r *requests) add(webhookID string, now endpoint, e projection.Event, rows *queue) {
	switch data := e.Data.(type) {
	case event.WebhookEnabled:
		r.healthy = append(r.healthy, webhookID)
	case event.WebhookUpdated:
		if slices.Contains(data.Changed, "url") {
			r.healthy = append(r.healthy, webhookID)
		}
	case event.WebhookDisabled:
		r.endings = append(r.endings, ending{webhookID, "the endpoint was disabled", e.Position})
	case event.WebhookDeleted:
		r.endings = append(r.endings, ending{webhookID, "the endpoint was deleted", e.Position})
	case event.WebhookTested:
		rows.add(e.ID, webhookID, testType, 0, e)
	case event.WebhookRetried:
		ids := data.DeliveryIDs
		if data.DeliveryID != "" {
			ids = []string{data.DeliveryID}
		}
		r.retries = append(r.retries, retry{webhookID, ids, e.Position})
	case event.WebhookReplayed:
		r.replays = append(r.replays, newReplay(webhookID, now, e, data))
	case event.WebhookReplayEnded:
		r.ended = append(r.ended, EndedReplay{webhookID, data.Generation, data.Error})
	}
}

// addEarlier adds a request from before deliveries began. A replay that was running then has ended.
func (r *requests) addEarlier(webhookID string, now endpoint, e projection.Event) {
	switch data := e.Data.(type) {
	case event.WebhookReplayed:
		p := newReplay(webhookID, now, e, data)
		p.reached, p.failure = &p.requested, "deliveries began after it was asked for"
		r.replays = append(r.replays, p)
	case event.WebhookReplayEnded:
		r.ended = append(r.ended, EndedReplay{webhookID, data.Generation, data.Error})
	}
}

func newReplay(webhookID string, now endpoint, e projection.Event, data event.WebhookReplayed) replay {
	p := replay{
		webhookID: webhookID, generation: data.Generation, requestID: e.ID, account: now.account, events: now.Events, filter: now.Filter,
		since: data.Since, requested: e.Position,
	}
	if data.Until.Before(e.At) {
		p.until = &data.Until
	}
	return p
}

// save executes the requests, each once even if the log is read again. The rows of the batch must be saved first.
func (r *requests) save(ctx context.Context, tx pgx.Tx) error {
	batch := &pgx.Batch{}
	for _, retry := range r.retries {
		retry.save(batch)
	}
	for _, p := range r.replays {
		batch.Queue(`
			INSERT INTO replay (webhook_id, generation, request_id, account, events, filter, since, until, requested, reached, error)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, nullif($11, '')) ON CONFLICT DO NOTHING`,
			p.webhookID, p.generation, p.requestID.String(), p.account, p.events, p.filter, p.since, p.until, int64(p.requested), p.reached, p.failure)
	}
	for _, e := range r.ended {
		batch.Queue(`
			UPDATE replay SET finished_at = coalesce(finished_at, now()), error = nullif($3, '') WHERE webhook_id = $1 AND generation = $2`,
			e.WebhookID, e.Generation, e.Failure)
	}
	for _, e := range r.endings {
		batch.Queue(`UPDATE replay SET finished_at = now(), error = $2 WHERE webhook_id = $1 AND finished_at IS NULL AND requested < $3`,
			e.webhookID, e.reason, int64(e.position))
	}
	if len(r.healthy) > 0 {
		batch.Queue(`UPDATE health SET failing_since = NULL WHERE webhook_id = ANY ($1)`, r.healthy)
	}
	if batch.Len() == 0 {
		return nil
	}
	batch.Queue(awaitDisk)
	batch.Queue(notifyCouriers)
	return tx.SendBatch(ctx, batch).Close()
}

// save queues finished deliveries again, at the start of the schedule and outside of their lane, and makes waiting ones due. A delivery in
// flight becomes due when its attempt fails. A delivery behind others in its lane is not changed.
func (r retry) save(batch *pgx.Batch) {
	// Locks are taken in the same order as when a delivery is finished.
	batch.Queue(`SELECT FROM queue WHERE delivery_id = ANY ($1) ORDER BY delivery_id FOR UPDATE`, r.deliveryIDs)
	batch.Queue(`
		WITH again AS (
		    UPDATE delivery SET state = 'queued', finished_at = NULL, retried = $3
		     WHERE delivery_id = ANY ($1) AND webhook_id = $2 AND retried < $3
		    RETURNING delivery_id, webhook_id, event_id, type, stream, revision, position, renderer, retried
		)
		INSERT INTO queue AS q (delivery_id, webhook_id, event_id, type, stream, revision, position, renderer, retried)
		SELECT * FROM again
		    ON CONFLICT (delivery_id) DO UPDATE
		   SET retried = excluded.retried, due_at = CASE WHEN q.lease IS NULL AND q.due_at < 'infinity' THEN now() ELSE q.due_at END`,
		r.deliveryIDs, r.webhookID, int64(r.position))
}

// Endpoints builds the table of endpoints like FanOut, and queues nothing. Verifications compare the table with it: a wrong row would send
// events to the wrong URL, or to none.
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
		_, err := pgx.ForEachRow(rows, []any{&id, &e.account, &e.URL, &e.Events, &e.Filter, &e.Ordering, &e.RateLimit, &e.HeaderNames, &e.disabled}, func() error {
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
			INSERT INTO endpoint (webhook_id, account, url, events, filter, ordering, rate_limit, header_names, deleted, disabled)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
			    ON CONFLICT (webhook_id) DO UPDATE
			   SET url = excluded.url, events = excluded.events, filter = excluded.filter, ordering = excluded.ordering,
			       rate_limit = excluded.rate_limit, header_names = excluded.header_names, deleted = excluded.deleted, disabled = excluded.disabled`,
			id, e.account, e.URL, append([]string{}, e.Events...), e.Filter, e.Ordering, e.RateLimit, append([]string{}, e.HeaderNames...),
			e.deleted, e.disabled)
	}
	if batch.Len() == 0 {
		return nil
	}
	return tx.SendBatch(ctx, batch).Close()
}
