package view

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/schema"
)

// Place is an index of the log by time: a row for the first event of each minute that is later than all events before it. Some
// engines read from the positions of their events only, so a reader that starts at a time needs a position that the log gave.
type Place struct{}

// placeInterval is the least time between two rows.
const placeInterval = time.Minute

func (Place) Name() string     { return schema.Place }
func (Place) Version() int     { return 1 }
func (Place) Tables() []string { return []string{"place"} }

// Filter selects what other projectors select too, so that the log is not read further for this one.
func (Place) Filter() eventstore.Filter {
	return eventstore.Filter{StreamPrefixes: []string{
		event.LeadPrefix, event.TokenPrefix, event.WebhookPrefix, event.AccountPrefix, event.VisitorPrefix, event.RefusedPrefix,
	}}
}

// Choose implements projection.Chooser: few events make a row.
func (Place) Choose(ctx context.Context, conn *pgx.Conn) (func(projection.Event) bool, error) {
	last, err := lastPlace(ctx, conn)
	return last.passedBy, err
}

func (Place) Apply(ctx context.Context, tx pgx.Tx, batch []projection.Event) error {
	last, err := lastPlace(ctx, tx)
	if err != nil {
		return err
	}
	var places rows
	for _, e := range batch {
		if last.passedBy(e) {
			places.row(2)
			places.bigint(int64(e.Position))
			places.timestamp(e.At)
		}
	}
	return places.insert(ctx, tx, "place", "position", "at")
}

// placeTime is the time of a row, which is the latest time of all events up to it.
type placeTime struct{ at time.Time }

func lastPlace(ctx context.Context, db projection.Querier) (last *placeTime, err error) {
	last = &placeTime{}
	err = db.QueryRow(ctx, `SELECT at FROM place ORDER BY at DESC LIMIT 1`).Scan(&last.at)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return last, err
}

// passedBy reports whether an event makes a row, and takes it for the last one then.
func (last *placeTime) passedBy(e projection.Event) bool {
	if !e.At.Truncate(placeInterval).After(last.at.Truncate(placeInterval)) {
		return false
	}
	last.at = e.At
	return true
}

// PlaceBefore returns a position that the log gave, such that every event of a lead, token, endpoint, account or visitor up to it
// is earlier than a time: 0 when none is known. The views may be behind the log; then the position is earlier than it could be.
func PlaceBefore(ctx context.Context, pool *pgxpool.Pool, store eventstore.Store, at time.Time) (eventstore.Position, error) {
	applied, err := projection.AppliedUpTo(ctx, pool, store, schema.Place)
	if err != nil || applied == 0 {
		return 0, err
	}
	var position int64
	err = pool.QueryRow(ctx, `SELECT position FROM views.place WHERE at < $1 AND position <= $2 ORDER BY at DESC LIMIT 1`, at, int64(applied)).
		Scan(&position)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	return eventstore.Position(position), schema.Unavailable(err)
}
