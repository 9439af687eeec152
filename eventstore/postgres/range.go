package postgres

import (
	"context"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/leadlog/leadlog/eventstore"
)

// rangeSpan is the maximum number of positions that one read of a range covers. Searching an account's events takes the
// server about a microsecond per position.
const rangeSpan = 50_000

var _ eventstore.RangeReader = (*Store)(nil)

// ReadRange implements eventstore.RangeReader. The server selects the events of the account. Positions have no gaps, so
// the log has every position up to its head.
func (s *Store) ReadRange(ctx context.Context, r eventstore.Range) ([]eventstore.Recorded, eventstore.Position, error) {
	end := min(r.Until, r.After+rangeSpan)
	query, arguments := matching(r.Filter, r.After, end)
	if r.Account != "" {
		member, err := json.Marshal(r.Account)
		if err != nil {
			return nil, 0, err
		}
		// The text as in encoded metadata. No other member can contain it: a quote in a value is preceded by a
		// backslash.
		arguments = append(arguments, append([]byte(`"account":`), member...))
		query += fmt.Sprintf(` AND position($%d::bytea in metadata) > 0`, len(arguments))
	}
	arguments = append(arguments, r.Limit)
	query += fmt.Sprintf(` ORDER BY position LIMIT $%d`, len(arguments))
	page, err := s.page(ctx, min(r.Limit, int(end-r.After)), query, arguments...)
	if err != nil {
		return nil, 0, err
	}
	if n := len(page.events); page.cut || n == r.Limit {
		end = page.events[n-1].Position
	}
	return slices.DeleteFunc(page.events, func(e eventstore.Recorded) bool {
		return r.Account != "" && e.Metadata.Account != r.Account
	}), end, nil
}
