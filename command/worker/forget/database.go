package forget

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/schema"
)

// Database is the database of the views and the delivery records.
type Database struct {
	Pool *pgxpool.Pool
	// Timeout limits the wait for the views to reach a position; 0 means 5 s.
	Timeout time.Duration
}

// ErrBehind means that the views have not reached an erasure yet. Repeating the erasure finishes it.
var ErrBehind = errors.New("the erasure is on the log, but the views are behind: ask again")

// Await implements Views. It waits for the views of leads, visitors and arrivals, and for the fan-out of webhooks.
func (d Database) Await(ctx context.Context, position eventstore.Position) error {
	timeout := d.Timeout
	if timeout == 0 {
		timeout = 5 * time.Second
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for backoff := (eventstore.Backoff{Shortest: 2 * time.Millisecond, Longest: 50 * time.Millisecond}); ; {
		var behind bool
		err := d.Pool.QueryRow(limited, `
			SELECT EXISTS (
			       SELECT FROM unnest($1::text[]) AS v (name) LEFT JOIN views.checkpoint c ON c.projector = v.name
			        WHERE coalesce(c.position, 0) < $3)
			    OR EXISTS (SELECT FROM delivery.checkpoint WHERE projector = $2 AND position < $3)`,
			[]string{schema.Lead, schema.Touch, schema.VisitorActivity, schema.Arrival}, schema.FanOut,
			int64(position)).Scan(&behind)
		switch {
		case err == nil && !behind:
			return nil
		case err != nil && limited.Err() == nil:
			return schema.Unavailable(err)
		}
		switch {
		case backoff.Wait(limited) == nil:
		case ctx.Err() != nil:
			return schema.Unavailable(ctx.Err())
		default:
			return fmt.Errorf("%w: %w", eventstore.ErrUnavailable, ErrBehind)
		}
	}
}

// arrivalsAtOnce is the maximum number of arrivals that Arrivals returns.
const arrivalsAtOnce = 500

// Arrivals implements Views.
func (d Database) Arrivals(ctx context.Context, account string, leads []string) (ids []string, err error) {
	rows, err := d.Pool.Query(ctx, `
		SELECT arrival_id FROM views.arrival
		 WHERE kept AND account = $1 AND (lead_id <> '' AND lead_id = ANY ($2) OR other_lead_id <> ''
		   AND other_lead_id = ANY ($2))
		 LIMIT $3`, account, leads, arrivalsAtOnce)
	if err != nil {
		return nil, schema.Unavailable(err)
	}
	ids, err = pgx.CollectRows(rows, pgx.RowTo[string])
	return ids, schema.Unavailable(err)
}

// Linked implements Views. It reads the account's leads once for all visitors, because an index would slow down every
// capture and only serve erasures.
func (d Database) Linked(
	ctx context.Context, account string, visitors []string, before eventstore.Position,
) (map[string]bool, error) {
	linked := map[string]bool{}
	if len(visitors) == 0 {
		return linked, nil
	}
	rows, err := d.Pool.Query(ctx, `
		WITH ids AS MATERIALIZED (
		     SELECT DISTINCT stream, visitor_id FROM views.visitor_activity WHERE stream = ANY ($2) AND account = $1
		     AND position < $3
		), taken AS MATERIALIZED (
		     SELECT DISTINCT v.id FROM views.lead l CROSS
		     JOIN LATERAL json_array_elements_text(l.state -> 'visitorIds') AS v (id)
		      WHERE l.account = $1 AND json_typeof(l.state -> 'visitorIds') = 'array'
		      AND v.id IN (SELECT visitor_id FROM ids)
		        AND EXISTS (SELECT FROM ids)
		)
		SELECT i.stream, bool_or(t.id IS NOT NULL) FROM ids i LEFT JOIN taken t ON t.id = i.visitor_id
		GROUP BY i.stream`,
		account, visitors, int64(before))
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

// DeleteFromCopies implements Views. It covers copies as of a day, and copies left by an interrupted replay.
func (d Database) DeleteFromCopies(ctx context.Context, gone projection.Forgotten) error {
	return schema.Unavailable(pgx.BeginFunc(ctx, d.Pool, func(tx pgx.Tx) error {
		return projection.DeleteFromCopies(ctx, tx, gone)
	}))
}

// HasCopies implements Views.
func (d Database) HasCopies(ctx context.Context, gone projection.Forgotten) (found bool, err error) {
	err = pgx.BeginFunc(ctx, d.Pool, func(tx pgx.Tx) error {
		found, err = projection.InCopies(ctx, tx, gone)
		return err
	})
	return found, schema.Unavailable(err)
}

// RemainingValue is a campaign parameter that stays on the log after an erasure, because events have it in plain text.
type RemainingValue struct {
	Name  string // such as utm_campaign
	Value string
}

// RemainingValues returns the campaign parameters of the touches of leads and of their visitors, sorted. Sealed values
// are left out.
func (d Database) RemainingValues(ctx context.Context, account string, leads []string) ([]RemainingValue, error) {
	rows, err := d.Pool.Query(ctx, `
		WITH arrival AS (
		         SELECT * FROM views.touch WHERE account = $1 AND lead_id <> '' AND lead_id = ANY ($2)),
		     seen AS (
		         SELECT * FROM arrival
		          UNION ALL
		         SELECT v.* FROM views.touch v
		          WHERE v.account = $1 AND v.kind = 'visit' AND v.visitor <> ''
		          AND v.visitor IN (SELECT visitor FROM arrival))
		SELECT DISTINCT p.name, p.value
		  FROM seen CROSS JOIN LATERAL (VALUES
		       ('utm_source', utm_source), ('utm_medium', utm_medium), ('utm_campaign', utm_campaign),
		       ('utm_id', utm_id)) AS p (name, value)
		 WHERE p.value <> '' ORDER BY p.name, p.value`, account, leads)
	if err != nil {
		return nil, schema.Unavailable(err)
	}
	kept, err := pgx.CollectRows(rows, pgx.RowToStructByPos[RemainingValue])
	return kept, schema.Unavailable(err)
}
