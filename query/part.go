package query

import "github.com/jackc/pgx/v5"

// mostBytes is how much of what is stored a part of a list is made of, beyond its last item. A lead may be a hundred times as
// large as most are, and memory is for all callers together.
const mostBytes = 1 << 20

// part is a part of a list in the making.
type part[T any] struct {
	limit int // of items
	items []T
	bytes int
	more  bool // an item came that has no place any more
}

// takes reports whether another item fits.
func (p *part[T]) takes() bool {
	p.more = p.more || len(p.items) == p.limit || p.bytes >= mostBytes
	return !p.more
}

func (p *part[T]) add(item T, bytes int) {
	p.items, p.bytes = append(p.items, item), p.bytes+bytes
}

func (p *part[T]) list(after func(T) string) List[T] {
	list := List[T]{Items: p.items}
	if p.more {
		list.NextCursor = after(p.items[len(p.items)-1])
	}
	return list
}

// collect makes a part of rows, of which the last may only show that more follow.
func collect[T any](rows pgx.Rows, limit int, scan pgx.RowToFunc[T]) (part[T], error) {
	defer rows.Close()
	p := part[T]{limit: limit}
	for rows.Next() && p.takes() {
		item, err := scan(rows)
		if err != nil {
			return p, err
		}
		p.add(item, sizeOf(rows))
	}
	rows.Close()
	return p, rows.Err()
}

func sizeOf(row pgx.Rows) (bytes int) {
	for _, value := range row.RawValues() {
		bytes += len(value)
	}
	return bytes
}
