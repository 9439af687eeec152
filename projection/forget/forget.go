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

// Visited tells whether anything that a visitor did before an erasure is still shown, and whether a lead that is there is
// linked with it: somebody forgotten may come again, and is not the person who was. It goes over the account's leads, in which an index would cost every capture and serve erasures alone.
func (f Forgetter) Visited(ctx context.Context, account, stream string, erased eventstore.Position) (shown, linked bool, err error) {
	err = f.Pool.QueryRow(ctx, `
		WITH ids AS (SELECT DISTINCT visitor_id FROM views.visitor_activity WHERE stream = $2 AND account = $1 AND position < $3)
		SELECT EXISTS (SELECT FROM ids), EXISTS (
		       SELECT FROM views.lead l CROSS JOIN LATERAL json_array_elements_text(l.state -> 'VisitorIDs') AS v (id)
		        WHERE l.account = $1 AND json_typeof(l.state -> 'VisitorIDs') = 'array' AND v.id IN (SELECT visitor_id FROM ids)
		          AND EXISTS (SELECT FROM ids))`, account, stream, int64(erased)).Scan(&shown, &linked)
	return shown, linked, schema.Unavailable(err)
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
	for _, stream := range visitors {
		shown, linked, err := f.Visited(ctx, account, stream, erased)
		if err != nil || shown && !linked {
			return err == nil, err
		}
		if !linked {
			gone.Visitors[stream] = erased
		}
	}
	var copied bool
	err := pgx.BeginFunc(ctx, f.Pool, func(tx pgx.Tx) (err error) {
		copied, err = projection.InCopies(ctx, tx, gone)
		return err
	})
	return copied, schema.Unavailable(err)
}
