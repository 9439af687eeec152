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

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/schema"
)

// Replayer queues again, from the log, the events that owners of endpoints asked to replay. How far a replay has come is stored in
// the transaction that queues, so that it continues where a killed process left it. Any number of them may work on one database, of
// which one at a time is active.
type Replayer struct {
	Pool  *pgxpool.Pool
	Store eventstore.Store
	Log   *slog.Logger
}

// replayLease is the lease of the Replayer that is active. It only saves work: each step moves the replay from where it was read.
const replayLease = "delivery replays"

const (
	replayPoll   = 250 * time.Millisecond
	replayAgain  = 5 * time.Second // after a failure
	replayRows   = 8000            // of a transaction, and the rest of the page that they came with
	replaySpan   = 50_000          // positions that a transaction moves at most, where nothing matches
	mostReplayed = 150_000
	// clockSkew is how far the clocks of processes that append may be apart for a replay to miss nothing.
	clockSkew = time.Hour
)

// Run works until the context ends.
func (r Replayer) Run(ctx context.Context) {
	for ctx.Err() == nil {
		worked, err := r.Turn(ctx)
		if err != nil && ctx.Err() == nil {
			r.Log.Warn("replay interrupted", slog.Any("error", err))
		}
		switch {
		case err != nil && !worked:
			_ = eventstore.Sleep(ctx, replayAgain)
		case err != nil || !worked:
			_ = eventstore.Sleep(ctx, replayPoll)
		}
	}
}

// Turn brings every open replay one step forward, so that none waits for a long one or for one that fails. It reports whether there
// was any.
func (r Replayer) Turn(ctx context.Context) (worked bool, err error) {
	conn, err := r.Pool.Acquire(ctx)
	if err != nil {
		return false, schema.Unavailable(err)
	}
	defer conn.Release()
	open, err := openReplays(ctx, conn.Conn())
	if err != nil || len(open) == 0 {
		return false, schema.Unavailable(err)
	}
	mine, err := schema.TakeLease(ctx, conn, replayLease)
	if err != nil || !mine {
		return false, schema.Unavailable(err)
	}
	defer func() {
		releasing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if err := schema.ReleaseLease(releasing, conn, replayLease); err != nil {
			_ = conn.Conn().Close(releasing) // the lease ends with the session
		}
	}()
	if open, err = openReplays(ctx, conn.Conn()); err != nil { // another may have moved them before the lease was taken
		return false, schema.Unavailable(err)
	}
	var failed error
	for _, p := range open {
		if err := r.step(ctx, conn.Conn(), p); err != nil {
			failed = errors.Join(failed, fmt.Errorf("replay %d of webhook %s: %w", p.generation, p.webhookID, schema.Unavailable(err)))
			continue
		}
		worked = true
	}
	return worked, failed
}

// openReplays lists those whose endpoints can be sent to and have room in the queue. Those of endpoints that are gone or
// disabled end here.
func openReplays(ctx context.Context, conn *pgx.Conn) ([]replay, error) {
	_, err := conn.Exec(ctx, `
		UPDATE delivery.replay p SET finished_at = now() FROM delivery.endpoint e
		 WHERE p.finished_at IS NULL AND e.webhook_id = p.webhook_id AND (e.deleted OR e.disabled)`)
	if err != nil {
		return nil, err
	}
	rows, err := conn.Query(ctx, `
		SELECT webhook_id, generation, request_id, account, p.events, since, until, requested, reached
		  FROM delivery.replay p JOIN delivery.endpoint e USING (webhook_id, account)
		 WHERE finished_at IS NULL AND NOT EXISTS (
		       SELECT FROM delivery.queue q WHERE q.webhook_id = p.webhook_id OFFSET $1)
		 ORDER BY requested`, mostReplayed)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (p replay, err error) {
		var id string
		if err = row.Scan(&p.webhookID, &p.generation, &id, &p.account, &p.events, &p.since, &p.until, &p.requested, &p.reached); err == nil {
			p.requestID, err = ulid.ParseStrict(id)
		}
		return p, err
	})
}

// errOvertaken says that a replay is not where it was left, from which the lease should have kept others.
var errOvertaken = errors.New("somebody else moved it")

// step queues what the next part of the log has for a replay.
func (r Replayer) step(ctx context.Context, conn *pgx.Conn, p replay) error {
	after, err := r.begin(ctx, p)
	if err != nil {
		return err
	}
	rows, reached, err := r.read(ctx, p, after)
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL search_path = `+schema.Deliveries); err != nil {
			return err
		}
		moved, err := tx.Exec(ctx, `
			UPDATE replay SET reached = $3, queued = queued + $4, finished_at = CASE WHEN $3 >= requested THEN now() END
			 WHERE webhook_id = $1 AND generation = $2 AND finished_at IS NULL AND reached IS NOT DISTINCT FROM $5`,
			p.webhookID, p.generation, int64(reached), len(rows.deliveries), p.reached)
		if err == nil && moved.RowsAffected() == 0 {
			err = errOvertaken
		}
		if err != nil {
			return err
		}
		return rows.save(ctx, tx)
	})
}

// read takes what matches from the log, up to a progress mark behind enough of it.
func (r Replayer) read(ctx context.Context, p replay, after eventstore.Position) (rows queue, reached eventstore.Position, err error) {
	for item, err := range r.Store.Subscribe(ctx, after, FanOut{}.Filter()) {
		if err != nil {
			return rows, after, err
		}
		reached = item.Position
		if reached >= p.requested {
			return rows, p.requested, nil
		}
		if item.Event != nil {
			if err := p.match(*item.Event, &rows); err != nil {
				return rows, after, err
			}
		}
		enough := len(rows.deliveries) >= replayRows || reached-after >= replaySpan
		if enough && (item.Event == nil || len(rows.deliveries) >= 4*replayRows) {
			break
		}
	}
	return rows, reached, ctx.Err()
}

// match adds the row of an event that the replay is about.
func (p replay) match(recorded eventstore.Recorded, rows *queue) error {
	if recorded.Metadata.Account != p.account || recorded.At.Before(p.since) || !recorded.At.Before(p.until) {
		return nil
	}
	data, err := event.Decode(recorded.Type, recorded.Data)
	if err != nil {
		return fmt.Errorf("event at position %d of stream %s: %w", recorded.Position, recorded.Stream, err)
	}
	if name, sent := public(data); sent && !recorded.Erased && wanted(p.events, name) {
		rows.add(p.requestID, p.webhookID, name, p.generation, projection.Event{Recorded: &recorded, Data: data})
	}
	return nil
}

// begin is the position behind which a replay goes on. A replay that has not begun skips the part of the log that is
// too old. Where that ends is found by bisection, since times grow with positions, except for how far clocks differ.
func (r Replayer) begin(ctx context.Context, p replay) (eventstore.Position, error) {
	if p.reached != nil {
		return *p.reached, nil
	}
	const near = 5000 // positions: reading them is not worth another look
	low, high := eventstore.Position(0), p.requested
	for high-low > near {
		middle := low + (high-low)/2
		position, at, err := r.next(ctx, middle)
		if err != nil {
			return 0, err
		}
		if at.Before(p.since.Add(-clockSkew)) && position < high {
			low = position
		} else {
			high = middle
		}
	}
	return low, nil
}

// next is where and when the first event behind a position happened.
func (r Replayer) next(ctx context.Context, after eventstore.Position) (eventstore.Position, time.Time, error) {
	for item, err := range r.Store.Subscribe(ctx, after, eventstore.Filter{}) {
		if err != nil {
			return 0, time.Time{}, err
		}
		if item.Event != nil {
			return item.Position, item.Event.At, nil
		}
	}
	return 0, time.Time{}, ctx.Err()
}
