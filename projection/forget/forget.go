// Package forget does away with what was made of a person's events elsewhere than in the views that are served, which
// follow the log by themselves.
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

// Keys are those that persons' events are sealed with.
type Keys interface {
	Destroy(ctx context.Context, streams ...string) error
	// Expel destroys those of what streams told before they were forgotten, and Returned tells whether there are such.
	Expel(ctx context.Context, streams ...string) error
	Returned(ctx context.Context, streams ...string) (bool, error)
	// Held tells whether there is a key of any of the streams.
	Held(ctx context.Context, streams ...string) (bool, error)
}

// Forgetter forgets in one database of read models. It is what a command that erases a lead needs.
type Forgetter struct {
	Keys
	Pool *pgxpool.Pool
	// Patience is how long the views may take to come to where the log is; 0 means 5 s.
	Patience time.Duration
}

// ErrBehind says that the views have not come to the erasure yet. What is left to do is done when it is asked for again.
var ErrBehind = errors.New("the person's key is destroyed, but the views are behind: ask again")

// Await returns when every view that shows leads or visitors, and what goes to endpoints, has come to a position.
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

// Visited gives those of visitors, by their streams, of whom anything that they did before an erasure is still shown, and
// tells whether a lead that is there is linked with them: somebody forgotten may come again, and is not the person who was.
// It goes over the account's leads, once for all visitors: an index would cost every capture and serve erasures alone.
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

// Sweep takes leads, and what visitors did before a position, out of copies of the views as of a day, and of those that a
// replay left unfinished.
func (f Forgetter) Sweep(ctx context.Context, leads []string, visitors map[string]eventstore.Position) error {
	return schema.Unavailable(pgx.BeginFunc(ctx, f.Pool, func(tx pgx.Tx) error {
		return projection.ForgetInCopies(ctx, tx, projection.Forgotten{Leads: leads, Visitors: visitors})
	}))
}

// Unfinished tells whether something is left to do of an erasure at a position, but for claims: they show by themselves.
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
