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
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/schema"
	"github.com/leadlog/leadlog/projection/view"
)

// Replayer queues past events again that owners of endpoints requested to replay. It stores its progress in the
// transaction that queues, so that a replay resumes after a killed process. Any number of replayers may run on one
// database; one at a time is active.
type Replayer struct {
	Pool   *pgxpool.Pool
	Leases *schema.Leases
	Store  eventstore.Store
	Log    *slog.Logger
	// Filters applies the filters of endpoints. Required if an endpoint has a filter.
	Filters *Filters
	// End appends the end of a replay to the log, once. The owner may request the next replay after that.
	End func(context.Context, EndedReplay) error
	// Budget takes up to the wanted number of deliveries from an account's budget, and returns how long to wait for
	// more. Nil: no budget.
	Budget func(ctx context.Context, account string, wanted int) (granted int, again time.Duration, err error)
}

// EndedReplay is a replay that has ended.
type EndedReplay struct {
	WebhookID  string
	Generation int
	Failure    string // why it failed; empty: each queued delivery was attempted once
}

// replayLease is the lease of the active Replayer. It only avoids duplicate work: each step checks that no other
// process moved the replay.
const replayLease = "delivery replays"

const (
	replayPoll   = 250 * time.Millisecond
	replayRetry  = 5 * time.Second
	replayRows   = 8000   // in a transaction, rounded up to a page
	replayEvents = 50_000 // maximum number of events read for a transaction, if few match
	replaySteps  = 4 * accountSteps
	maxQueued    = 150_000
)

// Run advances replays until the context is done.
func (r Replayer) Run(ctx context.Context) {
	work := eventstore.Background{
		Work: "queue deliveries of replays", Interval: replayPoll, Retry: replayRetry, Log: r.Log,
	}
	work.Run(ctx, r.RunOnce)
}

// RunOnce advances every open replay by one step, so that none waits for a long or failing one. It reports whether any
// replay has advanced.
func (r Replayer) RunOnce(ctx context.Context) (worked bool, err error) {
	open, err := r.open(ctx)
	if err != nil || len(open) == 0 {
		return false, schema.Unavailable(err)
	}
	lease, err := r.Leases.Acquire(ctx, replayLease)
	if err != nil || lease == nil {
		return false, schema.Unavailable(err)
	}
	defer lease.Release()
	ctx = lease.Context
	if open, err = r.open(ctx); err != nil { // another process may have moved them before the lease was taken
		return false, schema.Unavailable(err)
	}
	var failed error
	for _, p := range open {
		moved, err := r.advance(ctx, p)
		if err != nil {
			failed = errors.Join(failed,
				fmt.Errorf("replay %d of webhook %s: %w", p.generation, p.webhookID, schema.Unavailable(err)))
			continue
		}
		worked = worked || moved
	}
	return worked, failed
}

// openReplay is a replay that has not ended.
type openReplay struct {
	replay
	due       bool // it may queue now: the endpoint's queue is short enough, and the wait for the budget is over
	attempted bool // no delivery that it queued waits for its first attempt
}

// open lists the open replays of endpoints that the fan-out knows.
func (r Replayer) open(ctx context.Context) ([]openReplay, error) {
	rows, err := r.Pool.Query(ctx, `
		SELECT p.webhook_id, p.generation, request_id, account, p.events, p.filter, since, until, requested, reached,
		  p.disabled, coalesce(error, ''),
		       p.due_at <= now() AND NOT EXISTS (SELECT FROM delivery.queue q
		         WHERE q.webhook_id = p.webhook_id OFFSET $1),
		       NOT EXISTS (SELECT FROM delivery.queue q
		                    WHERE q.webhook_id = p.webhook_id AND q.generation = p.generation AND q.generation > 0
		                    AND q.attempts = 0)
		  FROM delivery.replay p JOIN delivery.endpoint e USING (webhook_id, account)
		 WHERE finished_at IS NULL
		 ORDER BY requested`, maxQueued)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (p openReplay, err error) {
		var id string
		err = row.Scan(&p.webhookID, &p.generation, &id, &p.account, &p.events, &p.filter, &p.since, &p.until,
			&p.requested, &p.reached, &p.disabled, &p.failure,
			&p.due, &p.attempted)
		if err == nil {
			p.requestID, err = ulid.ParseStrict(id)
		}
		return p, err
	})
}

// advance advances a replay by one step. Moved is false if the replay has to wait.
func (r Replayer) advance(ctx context.Context, p openReplay) (moved bool, err error) {
	switch {
	case p.reached != nil && *p.reached >= p.requested:
		if !p.attempted {
			return false, nil
		}
		return true, r.end(ctx, p.replay, p.failure)
	case !p.due:
		return false, nil
	}
	moved, err = r.step(ctx, p.replay)
	if failure, permanent := permanentFailure(err); permanent && ctx.Err() == nil {
		r.Log.Error("replay failed", slog.String("webhookId", p.webhookID), slog.Int("generation", p.generation),
			slog.Any("error", err))
		return true, r.end(ctx, p.replay, failure)
	}
	return moved, err
}

// unreadable is a permanent error of the log: the replay cannot continue.
type unreadable struct{ error }

func (u unreadable) Unwrap() error { return u.error }

// permanentFailure reports whether an error of the log is permanent, with the text for the endpoint's owner.
func permanentFailure(err error) (failure string, permanent bool) {
	var log unreadable
	switch {
	case !errors.As(err, &log), errors.Is(err, eventstore.ErrUnavailable), errors.Is(err, eventstore.ErrDiverged):
		return "", false
	case errors.Is(err, event.ErrUnknownType):
		return "an event cannot be read by this version of the service", true
	}
	return "the log cannot be read from the position that was reached", true
}

// end records that a replay has ended, on the log first, because that step is idempotent.
func (r Replayer) end(ctx context.Context, p replay, failure string) error {
	if r.End != nil {
		if err := r.End(ctx, EndedReplay{p.webhookID, p.generation, failure}); err != nil {
			return err
		}
	}
	_, err := r.Pool.Exec(ctx, `
		UPDATE delivery.replay SET finished_at = now(), error = nullif($3, '') WHERE webhook_id = $1 AND generation = $2
		AND finished_at IS NULL`,
		p.webhookID, p.generation, failure)
	return err
}

// step queues the matching events of the next batch. Moved is false if the account's budget is used up.
func (r Replayer) step(ctx context.Context, p replay) (moved bool, err error) {
	after, err := r.begin(ctx, p)
	if err != nil {
		return false, err
	}
	found, err := r.read(ctx, p, after)
	if err != nil {
		return false, unreadable{err}
	}
	rows, reached := found.rows, found.reached
	if err := rows.dropQueued(ctx, r.Pool, p.webhookID); err != nil {
		return false, err
	}
	if found.steps >= replaySteps { // costly filters take at most half a processor
		if err := eventstore.Sleep(ctx, found.filtering); err != nil {
			return false, err
		}
	}
	wait := time.Duration(0)
	if n := len(rows.deliveries); n > 0 && r.Budget != nil {
		granted, again, err := r.Budget(ctx, p.account, n)
		if err != nil {
			return false, err
		}
		if granted < n {
			reached, wait = progress{after, p.disabled}, again
			for granted > 0 && granted < n && rows.events[granted] == rows.events[granted-1] {
				granted++ // an event is queued whole
			}
			if granted > 0 {
				reached = rows.reached[granted-1]
			}
			rows.filter(func(i int) bool { return i < granted })
		}
	}
	moved = reached.position > after
	err = pgx.BeginFunc(ctx, r.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL search_path = `+schema.Deliveries); err != nil {
			return err
		}
		updated, err := tx.Exec(ctx, `
			UPDATE replay SET reached = $3, disabled = $4, queued = queued + $5,
			  due_at = now() + $6 * interval '1 microsecond'
			 WHERE webhook_id = $1 AND generation = $2 AND finished_at IS NULL AND reached IS NOT DISTINCT FROM $7`,
			p.webhookID, p.generation, int64(reached.position), reached.disabled, len(rows.deliveries),
			wait.Microseconds(), p.reached)
		if err != nil || updated.RowsAffected() == 0 { // it has ended, or another process has moved it
			moved = false
			return err
		}
		counts := filterCounts{}
		for _, d := range found.against {
			if d.position <= reached.position {
				counts.add(p.webhookID, d.verdict)
			}
		}
		if err := counts.save(ctx, tx, nil); err != nil {
			return err
		}
		return rows.save(ctx, tx)
	})
	return moved, err
}

// progress is how far a replay has read.
type progress struct {
	position eventstore.Position
	disabled bool // the endpoint was disabled at position, since a time in the range
}

// decision is an event that a filter did not match.
type decision struct {
	position eventstore.Position
	verdict  verdict
}

// replayed is what a step of a replay reads.
type replayed struct {
	rows      queue // of the matching events
	against   []decision
	reached   progress
	steps     uint64 // of the filter
	filtering time.Duration
}

// read reads up to the end of a page with enough matching events, or until the filter has cost enough.
func (r Replayer) read(ctx context.Context, p replay, after eventstore.Position) (found replayed, err error) {
	found.reached = progress{after, p.disabled}
	events := 0
	for page, err := range eventstore.ReadTo(ctx, r.Store, after, p.requested, FanOut{}.Filter()) {
		if err != nil {
			return found, err
		}
		for _, e := range page.Events {
			if err := found.add(ctx, p, r.Filters, e); err != nil {
				return found, err
			}
			if len(found.rows.deliveries) >= 4*replayRows || found.steps >= replaySteps {
				return found, nil
			}
		}
		found.reached.position = page.Position
		if events += len(page.Events); len(found.rows.deliveries) >= replayRows || events >= replayEvents {
			break
		}
	}
	return found, nil
}

// add adds a row for an event that matches: its time is in the range, or it was appended while the endpoint was
// disabled. The latter is decided by position, because an event may be appended later than its time.
func (f *replayed) add(ctx context.Context, p replay, filters *Filters, recorded eventstore.Recorded) error {
	f.reached.position = recorded.Position // also of the row: a replay whose budget ends there continues after it
	within := !recorded.At.Before(p.since) && (p.until == nil || recorded.At.Before(*p.until))
	if recorded.Stream == event.WebhookStream(p.webhookID) {
		switch recorded.Type {
		case event.WebhookDisabled{}.EventType():
			f.reached.disabled = within
		case event.WebhookEnabled{}.EventType():
			f.reached.disabled = false
		}
	}
	if recorded.Metadata.Account != p.account || !within && !f.reached.disabled {
		return nil
	}
	data, err := event.Decode(recorded.Type, recorded.Data)
	if err != nil {
		return fmt.Errorf("event at position %d of stream %s: %w", recorded.Position, recorded.Stream, err)
	}
	if recorded.Erased {
		return nil
	}
	e := projection.Event{Recorded: &recorded, Data: data}
	for _, m := range webhook.Messages(data) {
		if !webhook.Subscribes(p.events, m.Type) {
			continue
		}
		c, began := filters.candidate(e, m), time.Now()
		decided, err := c.decide(ctx, p.filter)
		f.filtering += time.Since(began)
		f.steps += c.steps
		if err != nil {
			return err
		}
		if decided != matching {
			f.against = append(f.against, decision{recorded.Position, decided})
			continue
		}
		f.rows.add(p.requestID, p.webhookID, m, p.generation, e)
		f.rows.reached = append(f.rows.reached, f.reached)
	}
	return nil
}

// begin returns the position after which a replay continues. A replay that has not started skips the older part of the
// log, as far as the log index covers it.
func (r Replayer) begin(ctx context.Context, p replay) (eventstore.Position, error) {
	if p.reached != nil {
		return *p.reached, nil
	}
	return view.PositionBefore(ctx, r.Pool, r.Store, p.since)
}

// dropQueued removes the events that are already queued for the endpoint, or deferred, and makes the queued deliveries
// due.
func (q *queue) dropQueued(ctx context.Context, pool *pgxpool.Pool, webhookID string) error {
	if len(q.events) == 0 {
		return nil
	}
	rows, err := pool.Query(ctx, `
		SELECT event_id, part FROM delivery.queue WHERE webhook_id = $1 AND event_id = ANY ($2)
		 UNION ALL
		SELECT event_id, part FROM delivery.deferred WHERE event_id = ANY ($2)
		AND $1 = ANY (webhook_ids)`, webhookID, q.events)
	if err != nil {
		return err
	}
	type key struct {
		event string
		part  int32
	}
	waits := map[key]bool{}
	var one key
	_, err = pgx.ForEachRow(rows, []any{&one.event, &one.part}, func() error { waits[one] = true; return nil })
	if err != nil || len(waits) == 0 {
		return err
	}
	waiting := make([]string, 0, len(waits))
	for k := range waits {
		waiting = append(waiting, k.event)
	}
	q.filter(func(i int) bool { return !waits[key{q.events[i], q.parts[i]}] })
	_, err = pool.Exec(ctx, `
		UPDATE delivery.queue SET due_at = now() WHERE webhook_id = $1 AND event_id = ANY ($2) AND lease IS NULL
		AND due_at > now() AND due_at < 'infinity'`, webhookID, waiting)
	return err
}
