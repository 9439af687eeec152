// Package forget erases a person's data where the fact of the erasure on the log does not reach: the keys, copies of views, and the
// activity of visitors. The views that are served follow the log by themselves, but for a visitor who is forgotten in part:
// see Forgetter.Withdraw. It implements command.Forgetting.
package forget

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/schema"
)

// Keys are the keys that persons' events are sealed with.
type Keys interface {
	Destroy(ctx context.Context, streams ...string) error
	// Expel destroys keys to what streams said before they were forgotten, and Returned reports whether there are such keys.
	Expel(ctx context.Context, streams ...string) error
	Returned(ctx context.Context, streams ...string) (bool, error)
	// Held reports whether there is a key of any of the streams.
	Held(ctx context.Context, streams ...string) (bool, error)
}

// Forgetter erases persons in one database of views.
type Forgetter struct {
	Keys
	Pool *pgxpool.Pool
	// Patience is how long to wait for the views to reach a position; 0 means 5 s.
	Patience time.Duration
}

// ErrBehind says that the views have not reached the erasure yet. Asking again does what is left to do.
var ErrBehind = errors.New("the person's key is destroyed, but the views are behind: ask again")

// Await returns when every view of leads or visitors, and the fan-out of webhooks, has reached a position.
func (f Forgetter) Await(ctx context.Context, position eventstore.Position) error {
	patience := f.Patience
	if patience == 0 {
		patience = 5 * time.Second
	}
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		var behind bool
		err := f.Pool.QueryRow(limited, `
			SELECT EXISTS (
			       SELECT FROM unnest($1::text[]) AS v (name) LEFT JOIN views.checkpoint c ON c.projector = v.name
			        WHERE coalesce(c.position, 0) < $3)
			    OR EXISTS (SELECT FROM delivery.checkpoint WHERE projector = $2 AND position < $3)`,
			[]string{schema.Lead, schema.SourceHistory, schema.VisitorActivity}, schema.FanOut, int64(position)).Scan(&behind)
		switch {
		case err == nil && !behind:
			return nil
		case err != nil && limited.Err() == nil:
			return schema.Unavailable(err)
		}
		select {
		case <-limited.Done():
			if ctx.Err() != nil {
				return schema.Unavailable(ctx.Err())
			}
			return fmt.Errorf("%w: %w", eventstore.ErrUnavailable, ErrBehind)
		case <-time.After(pause):
		}
	}
}

// Visited returns, by stream, those of the visitors whose activity from before an erasure is still shown: a visitor who comes again
// later is not the person who was forgotten. The value says whether a live lead is linked with the visitor. It reads the account's
// leads once for all visitors, because an index would cost time at every capture and only serve erasures.
func (f Forgetter) Visited(ctx context.Context, account string, streams []string, erased eventstore.Position) (map[string]bool, error) {
	linked := map[string]bool{}
	if len(streams) == 0 {
		return linked, nil
	}
	rows, err := f.Pool.Query(ctx, `
		WITH ids AS MATERIALIZED (
		     SELECT DISTINCT stream, visitor_id FROM views.visitor_activity WHERE stream = ANY ($2) AND account = $1 AND position < $3
		), taken AS MATERIALIZED (
		     SELECT DISTINCT v.id FROM views.lead l CROSS JOIN LATERAL json_array_elements_text(l.state -> 'VisitorIDs') AS v (id)
		      WHERE l.account = $1 AND json_typeof(l.state -> 'VisitorIDs') = 'array' AND v.id IN (SELECT visitor_id FROM ids)
		        AND EXISTS (SELECT FROM ids)
		)
		SELECT i.stream, bool_or(t.id IS NOT NULL) FROM ids i LEFT JOIN taken t ON t.id = i.visitor_id GROUP BY i.stream`,
		account, streams, int64(erased))
	if err != nil {
		return nil, schema.Unavailable(err)
	}
	var stream string
	var is bool
	_, err = pgx.ForEachRow(rows, []any{&stream, &is}, func() error {
		linked[stream] = is
		return nil
	})
	return linked, schema.Unavailable(err)
}

// Sweep removes leads, and the activity of visitors before a position, from copies of the views as of a day and from those that a
// replay left unfinished.
func (f Forgetter) Sweep(ctx context.Context, leads []string, visitors map[string]eventstore.Position) error {
	return schema.Unavailable(pgx.BeginFunc(ctx, f.Pool, func(tx pgx.Tx) error {
		return projection.ForgetInCopies(ctx, tx, projection.Forgotten{Leads: leads, Visitors: visitors})
	}))
}

// Withdraw removes activities of a visitor, by their positions, from the view and from all copies of it.
func (f Forgetter) Withdraw(ctx context.Context, visitor string, at []eventstore.Position) error {
	return schema.Unavailable(pgx.BeginFunc(ctx, f.Pool, func(tx pgx.Tx) error {
		return projection.WithdrawActivity(ctx, tx, visitor, at)
	}))
}

// Unfinished reports whether something is left to do of an erasure at a position.
func (f Forgetter) Unfinished(
	ctx context.Context, account string, leads, visitors []string, erased eventstore.Position,
) (bool, error) {
	var streams []string
	for _, id := range leads {
		streams = append(streams, event.LeadStream(id))
	}
	if held, err := f.Held(ctx, streams...); held || err != nil {
		return held, err
	}
	if returned, err := f.Returned(ctx, visitors...); returned || err != nil {
		return returned, err
	}
	gone := projection.Forgotten{Leads: leads, Visitors: map[string]eventstore.Position{}}
	visited, err := f.Visited(ctx, account, visitors, erased)
	if err != nil {
		return false, err
	}
	for _, stream := range visitors {
		linked, shown := visited[stream]
		if shown && !linked {
			return true, nil
		}
		if !linked {
			gone.Visitors[stream] = erased
		}
	}
	var copied bool
	err = pgx.BeginFunc(ctx, f.Pool, func(tx pgx.Tx) (err error) {
		copied, err = projection.InCopies(ctx, tx, gone)
		return err
	})
	return copied, schema.Unavailable(err)
}
