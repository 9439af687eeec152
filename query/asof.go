package query

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/projection/schema"
)

// ErrAsOf means that asOf is neither a time nor a position, or is beyond the end of the log.
var ErrAsOf = errors.New("must be a time such as 2006-01-02T15:04:05Z, a day such as 2006-01-02 or a position, and " +
	"not beyond the end of the log")

// AsOf is a moment of the log: a position, or a time. The zero value is the present.
type AsOf struct {
	Position eventstore.Position
	Time     time.Time
	day      bool // Time is the last moment of a day
	given    bool
}

// ParseAsOf reads a position, a time, or a day in UTC, which is its end, or the present before that; the present for an
// empty text. The error is ErrAsOf.
func ParseAsOf(text string) (AsOf, error) {
	if text == "" {
		return AsOf{}, nil
	}
	if position, err := strconv.ParseUint(text, 10, 63); err == nil && strconv.FormatUint(position, 10) == text {
		return AsOf{Position: eventstore.Position(position), given: true}, nil
	}
	if day, err := time.Parse(time.DateOnly, text); err == nil && !day.Before(time.UnixMilli(0)) {
		return AsOf{Time: day.AddDate(0, 0, 1).Add(-time.Millisecond), day: true, given: true}, nil
	}
	// the plus sign of an offset that was not escaped
	at, err := time.Parse(time.RFC3339, strings.Replace(text, " ", "+", 1))
	if err != nil || at.Before(time.UnixMilli(0)) {
		return AsOf{}, ErrAsOf
	}
	return AsOf{Time: at, given: true}, nil
}

// PositionAsOf returns the position of asOf for a report of touches. For a time, it is the position of the last event
// of touches before the first one that was recorded later, so later events do not change it. It waits until the view
// has reached the position, like WaitFor. The error is ErrAsOf beyond the end of the log.
func (r *Reader) PositionAsOf(ctx context.Context, asOf AsOf) (eventstore.Position, error) {
	switch {
	case !asOf.given:
		return r.Position(ctx, TouchView)
	case asOf.Time.IsZero():
		err := r.WaitFor(ctx, asOf.Position, TouchView)
		if errors.Is(err, eventstore.ErrUnknownPosition) {
			err = fmt.Errorf("%w: %w", ErrAsOf, err)
		}
		return asOf.Position, err
	case asOf.Time.After(r.now()):
		now := r.now()
		if !asOf.day || now.UTC().Format(time.DateOnly) != asOf.Time.Format(time.DateOnly) {
			return 0, ErrAsOf
		}
		asOf.Time = now
	}
	if err := r.CatchUp(ctx, TouchView); err != nil {
		return 0, err
	}
	return r.positionAt(ctx, asOf.Time)
}

// positionAt finds, after the last row of the index that is not later than a time, the first row of a later event, and
// then the last row before that. The id of an event begins with its time.
const positionAt = `
	WITH start AS MATERIALIZED (
	         SELECT coalesce((SELECT position FROM views.time_index WHERE at <= $1 ORDER BY at DESC LIMIT 1),
	           0) AS position),
	     later AS MATERIALIZED (
	         SELECT coalesce(least(
	                    (SELECT position FROM views.touch WHERE position > (SELECT position FROM start)
	                      AND touch_id >= $2 ORDER BY position LIMIT 1),
	                    (SELECT position FROM views.lead_change WHERE position > (SELECT position FROM start)
	                      AND at > $1 ORDER BY position LIMIT 1),
	                    (SELECT position FROM views.won_stages WHERE position > (SELECT position FROM start) AND at > $1
	                      ORDER BY position LIMIT 1),
	                    (SELECT position FROM views.spend WHERE position > (SELECT position FROM start) AND at > $1
	                      ORDER BY position LIMIT 1)),
	                9223372036854775807) AS position)
	SELECT coalesce(greatest(
	           (SELECT position FROM views.touch WHERE position < (SELECT position FROM later) ORDER BY position DESC
	             LIMIT 1),
	           (SELECT position FROM views.lead_change WHERE position < (SELECT position FROM later)
	             ORDER BY position DESC LIMIT 1),
	           (SELECT position FROM views.won_stages WHERE position < (SELECT position FROM later)
	             ORDER BY position DESC LIMIT 1),
	           (SELECT position FROM views.spend WHERE position < (SELECT position FROM later)
	             ORDER BY position DESC LIMIT 1)), 0)`

func (r *Reader) positionAt(ctx context.Context, at time.Time) (eventstore.Position, error) {
	var next ulid.ULID
	if err := next.SetTime(uint64(at.UnixMilli()) + 1); err != nil {
		return 0, ErrAsOf
	}
	var position int64
	err := r.pool.QueryRow(ctx, positionAt, pgx.QueryExecModeCacheDescribe, at, next.String()).Scan(&position)
	return eventstore.Position(position), schema.Unavailable(err)
}
