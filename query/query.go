// Package query reads leads and their sources, tokens, endpoints, deliveries and audit events. It changes nothing.
//
// Lists come from the views, which package projection maintains; the history of one lead or token is read from its
// stream. Every query is about one account; another account's data are not found.
//
// The types are those of the API's answers.
package query

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/projection/schema"
)

var (
	// ErrNotFound reports that the account does not have the object.
	ErrNotFound = errors.New("not found")
	// ErrCursor reports a cursor of another list, or an invalid one.
	ErrCursor = errors.New("not a cursor of this list")
	// ErrBehind reports that a view did not reach a position in time.
	ErrBehind = errors.New("view has not reached the position yet")
)

// Timestamp is a time as every answer writes it: UTC, ISO 8601, exactly three decimals. The zero time is null.
type Timestamp time.Time

// MarshalJSON writes the time.
func (t Timestamp) MarshalJSON() ([]byte, error) {
	if time.Time(t).IsZero() {
		return []byte("null"), nil
	}
	return time.Time(t).UTC().AppendFormat(nil, `"2006-01-02T15:04:05.000Z"`), nil
}

// Views, for WaitFor.
const (
	LeadView            = schema.Lead
	SourceDayView       = schema.SourceDay
	TokenView           = schema.Token
	TokenEventView      = schema.TokenEvent
	AccountView         = schema.Account
	EndpointView        = schema.Endpoint
	IntakeView          = schema.Intake
	VisitorActivityView = schema.VisitorActivity
	RefusedView         = schema.Refused
	TouchView           = schema.Touch
	ArrivalView         = schema.Arrival
	TrailView           = schema.Trail
	DeliveryQueue       = schema.FanOut // not a view, but it follows the log like one
)

// Reader answers queries. Its methods may be called from many goroutines. Besides the errors that each one names, they
// fail with eventstore.ErrUnavailable when the database or the log cannot be reached.
type Reader struct {
	pool  *pgxpool.Pool
	store eventstore.Store
	leads *eventstore.Folds[lead.State]
	now   func() time.Time

	claims  *claim.Names // nil: not known
	tags    claim.Names  // of cursors that are sealed
	waits   *feedWaits
	timeout time.Duration // of WaitFor
	// asErased returns an event as it is read once the key of its person is destroyed.
	asErased func(eventstore.Recorded) eventstore.Recorded
	// scannedLeads, scannedRows and leadsAtOnce are as the constants; tests have fewer.
	scannedLeads, scannedRows, leadsAtOnce int
}

// Option changes how a Reader answers.
type Option func(*Reader)

// WithClock sets the clock by which tokens expire. The default is the system's.
func WithClock(now func() time.Time) Option { return func(r *Reader) { r.now = now } }

// WithLeads sets a cache of folded leads that is shared. Without it, the Reader has one of its own.
func WithLeads(leads *eventstore.Folds[lead.State]) Option {
	return func(r *Reader) { r.leads = leads }
}

// WithTail sets the tail of the log, which is shared. Without it, the Reader has one of its own.
func WithTail(tail *eventstore.Tail) Option {
	return func(r *Reader) { r.waits.tail = tail }
}

// WithErasedForm sets the form in which the change feed shows events whose person is being erased. The default shows
// none of their data.
func WithErasedForm(form func(eventstore.Recorded) eventstore.Recorded) Option {
	return func(r *Reader) { r.asErased = form }
}

func withoutData(e eventstore.Recorded) eventstore.Recorded {
	e.Data, e.Erased = []byte("{}"), true
	return e
}

// New returns a Reader of the views in the pool's database and of their log.
func New(pool *pgxpool.Pool, store eventstore.Store, options ...Option) *Reader {
	r := &Reader{
		pool: pool, store: store, leads: eventstore.NewFolds(leadFolds), now: time.Now, timeout: waitLimit,
		scannedLeads: scannedLeads, scannedRows: scannedRows, leadsAtOnce: leadsAtOnce, asErased: withoutData,
	}
	r.tags = claim.NewNames(randomKey())
	r.waits = &feedWaits{
		store: store, tail: eventstore.NewTail(store, eventstore.Filter{}),
		waiting: map[string]map[*FeedWait]struct{}{},
	}
	for _, option := range options {
		option(r)
	}
	return r
}

// randomKey is the key of a Reader that is not given one: its cursors are its own.
func randomKey() []byte {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return key
}

const (
	waitLimit    = 5 * time.Second
	firstPause   = 2 * time.Millisecond
	longestPause = 50 * time.Millisecond
)

// WaitFor returns when views have reached a position; at once for no views, of what is read from the log. The error is
// ErrBehind when they do not within five seconds, and eventstore.ErrUnknownPosition for a position beyond the end of
// the log.
func (r *Reader) WaitFor(ctx context.Context, position eventstore.Position, views ...string) error {
	if len(views) == 0 {
		return r.checkOnLog(ctx, position)
	}
	limited, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	for _, view := range views {
		if err := r.await(limited, view, position); err != nil {
			if limited.Err() != nil && ctx.Err() == nil {
				return ErrBehind
			}
			return schema.Unavailable(err)
		}
	}
	return nil
}

// await returns when a view has reached a position, or the context ends.
func (r *Reader) await(ctx context.Context, view string, position eventstore.Position) error {
	if at, err := r.Position(ctx, view); err != nil || at >= position {
		return err
	}
	if err := r.checkOnLog(ctx, position); err != nil {
		return err
	}
	for backoff := (eventstore.Backoff{Shortest: firstPause, Longest: longestPause}); ; {
		if err := backoff.Wait(ctx); err != nil {
			return err
		}
		if at, err := r.Position(ctx, view); err != nil || at >= position {
			return err
		}
	}
}

// checkOnLog returns eventstore.ErrUnknownPosition for a position beyond the end of the log.
func (r *Reader) checkOnLog(ctx context.Context, position eventstore.Position) error {
	head, err := r.store.Head(ctx)
	if err == nil && position > head {
		err = fmt.Errorf("%w: it ends at %d", eventstore.ErrUnknownPosition, head)
	}
	return err
}

// CatchUp returns when views have reached the present end of the log. The error is ErrBehind when they do not within
// five seconds.
func (r *Reader) CatchUp(ctx context.Context, views ...string) error {
	head, err := r.store.Head(ctx)
	if err != nil {
		return err
	}
	return r.WaitFor(ctx, head, views...)
}

// Position returns the position of a view: 0 if no event was ever projected into it.
func (r *Reader) Position(ctx context.Context, view string) (eventstore.Position, error) {
	var position int64
	err := r.pool.QueryRow(ctx, `SELECT position FROM `+schemaOf(view)+`.checkpoint WHERE projector = $1`,
		view).Scan(&position)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	return eventstore.Position(position), schema.Unavailable(err)
}

// Running reports whether some process keeps a view up to date at this moment.
func (r *Reader) Running(ctx context.Context, view string) (running bool, err error) {
	err = r.pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM lease.held WHERE name = $1)`,
		schema.ProjectorLease(schemaOf(view), view)).Scan(&running)
	return running, schema.Unavailable(err)
}

func schemaOf(view string) string {
	if view == DeliveryQueue {
		return schema.Deliveries
	}
	return schema.Views
}
