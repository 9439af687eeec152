package query

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/projection/schema"
)

// Views, for WaitFor.
const (
	LeadView            = schema.Lead
	SourceHistoryView   = schema.SourceHistory
	SourceDayView       = schema.SourceDay
	TokenView           = schema.Token
	TokenEventView      = schema.TokenEvent
	AccountView         = schema.Account
	EndpointView        = schema.Endpoint
	VisitorActivityView = schema.VisitorActivity
	RefusedView         = schema.Refused
	DeliveryQueue       = schema.FanOut // not a view, but it follows the log like one
)

// Reader answers queries. Its methods may be called from many goroutines. Besides the errors that each one names, they fail with
// eventstore.ErrUnavailable when the database or the log cannot be reached.
type Reader struct {
	pool  *pgxpool.Pool
	store eventstore.Store
	leads *eventstore.Folds[lead.State]
	now   func() time.Time

	claims   *claim.Names  // nil: not known
	patience time.Duration // of WaitFor
	few      int           // leads, for searches
}

// Option changes how a Reader answers.
type Option func(*Reader)

// WithClock sets the clock by which tokens expire. The default is the system's.
func WithClock(now func() time.Time) Option { return func(r *Reader) { r.now = now } }

// New returns a Reader of the views in the pool's database and of their log.
func New(pool *pgxpool.Pool, store eventstore.Store, options ...Option) *Reader {
	r := &Reader{pool: pool, store: store, leads: eventstore.NewFolds(leadFolds), now: time.Now, patience: waitLimit, few: fewLeads}
	for _, option := range options {
		option(r)
	}
	return r
}

const (
	waitLimit    = 5 * time.Second
	firstPause   = 2 * time.Millisecond
	longestPause = 50 * time.Millisecond
)

// WaitFor returns when views have reached a position. The error is ErrBehind when they do not within five seconds, and
// eventstore.ErrUnknownPosition for a position beyond the end of the log.
func (r *Reader) WaitFor(ctx context.Context, position eventstore.Position, views ...string) error {
	limited, cancel := context.WithTimeout(ctx, r.patience)
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
	if head, err := r.store.Head(ctx); err != nil {
		return err
	} else if position > head {
		return fmt.Errorf("%w: it ends at %d", eventstore.ErrUnknownPosition, head)
	}
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		if err := eventstore.Sleep(ctx, pause); err != nil {
			return err
		}
		if at, err := r.Position(ctx, view); err != nil || at >= position {
			return err
		}
	}
}

// CatchUp returns when views have reached the present end of the log. The error is ErrBehind when they do not within five seconds.
func (r *Reader) CatchUp(ctx context.Context, views ...string) error {
	head, err := r.store.Head(ctx)
	if err != nil {
		return err
	}
	return r.WaitFor(ctx, head, views...)
}

// Position returns how far a view has come: 0 when nothing was ever projected into it.
func (r *Reader) Position(ctx context.Context, view string) (eventstore.Position, error) {
	kept := schema.Views
	if view == DeliveryQueue {
		kept = schema.Deliveries
	}
	var position int64
	err := r.pool.QueryRow(ctx, `SELECT position FROM `+kept+`.checkpoint WHERE projector = $1`, view).Scan(&position)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	return eventstore.Position(position), schema.Unavailable(err)
}

// one reads a single row. The error is ErrNotFound if there is none.
func one[T any](ctx context.Context, r *Reader, scan pgx.RowToFunc[T], sql string, args ...any) (T, error) {
	var none T
	for _, arg := range args {
		if text, ok := arg.(string); ok && !storable(text) {
			return none, ErrNotFound
		}
	}
	rows, err := r.pool.Query(ctx, sql, args...)
	if err != nil {
		return none, schema.Unavailable(err)
	}
	found, err := pgx.CollectExactlyOneRow(rows, scan)
	if errors.Is(err, pgx.ErrNoRows) {
		return found, ErrNotFound
	}
	return found, schema.Unavailable(err)
}

// page reads one part of a list, and one row more to see whether the list goes on. PostgreSQL plans the query for its actual
// values, because a value that few or no leads have needs another index.
func page[T any](ctx context.Context, r *Reader, s selection, limit int, scan pgx.RowToFunc[T], after func(T) string) (List[T], error) {
	args := append([]any{pgx.QueryExecModeCacheDescribe}, s.args...)
	rows, err := r.pool.Query(ctx, s.sql(limit+1), args...)
	if err != nil {
		return List[T]{}, schema.Unavailable(err)
	}
	items, err := collect(rows, limit, scan)
	if err != nil {
		return List[T]{}, schema.Unavailable(err)
	}
	return items.list(after), nil
}

// placed is an item of a list that is in the order of the log.
type placed[T any] struct {
	position int64
	item     T
}

// goOn makes a list in the order of the log continue after a cursor: with > for the oldest first, with < for the newest first.
func (s *selection) goOn(compare, kind, cursor string) error {
	if cursor == "" {
		return nil
	}
	position, err := decodeOrdinal(kind, cursor)
	if err != nil {
		return err
	}
	s.and(`position `+compare+` ?`, position)
	return nil
}

// pageByPosition is page for a list in the order of the log.
func pageByPosition[T any](ctx context.Context, r *Reader, s selection, kind string, limit int, scan pgx.RowToFunc[placed[T]]) (List[T], error) {
	found, err := page(ctx, r, s, limit, scan, func(p placed[T]) string { return encodeOrdinal(kind, p.position) })
	return unplaced(found), err
}

// unplaced drops the positions of a list's items.
func unplaced[T any](found List[placed[T]]) List[T] {
	list := List[T]{Items: make([]T, len(found.Items)), NextCursor: found.NextCursor}
	for i, p := range found.Items {
		list.Items[i] = p.item
	}
	return list
}

// exportPage is how many rows of an export are in memory at a time.
const exportPage = 250

// All yields a whole list, which it reads page by page, so that a slow consumer does not occupy a connection.
func All[T any](part func(Page) (List[T], error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		p := Page{Limit: exportPage}
		for {
			list, err := part(p)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range list.Items {
				if !yield(item, nil) {
					return
				}
			}
			if p.Cursor = list.NextCursor; p.Cursor == "" {
				return
			}
		}
	}
}

// ScanTimestamptz reads a column. Null is the zero time.
func (t *Timestamp) ScanTimestamptz(at pgtype.Timestamptz) error {
	*t = Timestamp(at.Time)
	return nil
}

// jsonOf reads a column of JSON into what it says.
type jsonOf struct{ into any }

// ScanBytes implements pgtype.BytesScanner.
func (j jsonOf) ScanBytes(text []byte) error { return json.Unmarshal(text, j.into) }

// cut returns a page of items, of which the last may only show that more follow.
func cut[T any](items []T, limit int, after func(T) string) List[T] {
	if len(items) <= limit {
		return List[T]{Items: items}
	}
	items = items[:limit]
	return List[T]{Items: items, NextCursor: after(items[limit-1])}
}

// storable reports whether PostgreSQL can store a text. If not, no row can match it.
func storable(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }
