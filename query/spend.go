package query

import (
	"context"
	"errors"
	"iter"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/schema"
)

// Spend is what a day and a key cost.
type Spend struct {
	Day      string              `json:"day"` // in UTC, such as 2026-01-31
	Key      event.SpendKey      `json:"key"`
	Amount   string              `json:"amount"`   // decimal, in the account's currency
	SetAt    Timestamp           `json:"setAt"`    // when the amount was recorded
	Position eventstore.Position `json:"position"` // of the amount

	ordinal int
}

// SpendFilter selects amounts. A zero time sets no bound.
type SpendFilter struct {
	Since time.Time // days that begin then or later
	Until time.Time // days that begin before
	AsOf  eventstore.Position
}

// bounds adds the conditions of a filter, for an account.
func (f SpendFilter) bounds(s *selection, account string) {
	s.and(`account = ?`, account)
	s.and(`position <= ?`, int64(f.AsOf))
	if !f.Since.IsZero() {
		s.and(`day >= ?::date`, dayFrom(f.Since))
	}
	if !f.Until.IsZero() {
		s.and(`day < ?::date`, dayFrom(f.Until))
	}
}

// dayFrom is the first day that does not begin before a time.
func dayFrom(at time.Time) string {
	day := at.UTC().Truncate(24 * time.Hour)
	if day.Before(at) {
		day = day.AddDate(0, 0, 1)
	}
	return day.Format(time.DateOnly)
}

// spendKey are the columns that a day and a key have.
const spendKey = `day, source, utm_source, utm_medium, utm_campaign`

// spendSelection selects the last amount of each day and key, in the order of these.
func spendSelection() selection {
	return selection{
		from:  `SELECT DISTINCT ON (` + spendKey + `) ` + spendKey + `, amount, at, position, ordinal FROM views.spend`,
		order: spendKey + `, position DESC`,
	}
}

// Spend lists what days of advertising cost as of a position that the view of touches has reached, by day and key. The
// error is ErrCursor for a cursor of another list.
func (r *Reader) Spend(ctx context.Context, account string, filter SpendFilter, p Page) (List[Spend], error) {
	kind := cursorOf(spendCursor, account)
	s := spendSelection()
	filter.bounds(&s, account)
	if p.Cursor != "" && !s.none {
		last, err := r.spendAt(ctx, account, kind, p.Cursor)
		if err != nil {
			return List[Spend]{}, err
		}
		s.and(`(`+spendKey+`) > (?::date, ?, ?, ?, ?)`, last.Day, last.Key.Source, last.Key.UTMSource,
			last.Key.UTMMedium, last.Key.UTMCampaign)
	}
	return page(ctx, r, s, p.Limit, scanSpend, func(row Spend) string {
		return encodeCursor(kind, strconv.FormatUint(uint64(row.Position), 10), strconv.Itoa(row.ordinal))
	})
}

// spendAt returns the row of a cursor.
func (r *Reader) spendAt(ctx context.Context, account, kind, cursor string) (Spend, error) {
	parts, err := decodeCursor(kind, cursor, 2)
	if err != nil {
		return Spend{}, err
	}
	position, err := decimal(parts[0])
	ordinal, wrong := decimal(parts[1])
	if err != nil || wrong != nil {
		return Spend{}, ErrCursor
	}
	row, err := one(ctx, r, scanSpend, `SELECT `+spendKey+`, amount, at, position, ordinal FROM views.spend
		WHERE account = $1 AND position = $2 AND ordinal::bigint = $3`, account, position, ordinal)
	if errors.Is(err, ErrNotFound) {
		err = ErrCursor
	}
	return row, err
}

// SpendAll yields everything that Spend lists, in constant memory. It ends after yielding an error.
func (r *Reader) SpendAll(ctx context.Context, account string, filter SpendFilter) iter.Seq2[Spend, error] {
	return All(func(p Page) (List[Spend], error) { return r.Spend(ctx, account, filter, p) })
}

func scanSpend(row pgx.CollectableRow) (s Spend, err error) {
	var day time.Time
	err = row.Scan(&day, &s.Key.Source, &s.Key.UTMSource, &s.Key.UTMMedium, &s.Key.UTMCampaign, &s.Amount, &s.SetAt,
		&s.Position, &s.ordinal)
	s.Day = day.Format(time.DateOnly)
	return s, schema.Unavailable(err)
}
