package query

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"iter"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/schema"
)

// Page selects a page of a list. Limit is 1 to 200; Cursor is empty or the NextCursor of the previous page.
type Page struct {
	Limit  int
	Cursor string
}

// List is a page of a list.
type List[T any] struct {
	Items      []T
	NextCursor string // empty at the end
	// Reach is set if the page of a search ended before it was full: everything since that time was compared.
	Reach Timestamp
}

// A cursor has the last item of a page. It contains the values that the list is ordered by, so items that are added or
// deleted between two pages neither repeat nor hide others. It begins with its kind: the list, the version of its
// order, and the account.
const (
	leadCursor          = "l1"
	sourceCursor        = "s1"
	eventCursor         = "e1"
	historyCursor       = "h2"
	reportCursor        = "r1"
	tokenCursor         = "t1"
	tokenEventCursor    = "a1"
	endpointCursor      = "w1"
	intakeCursor        = "i1"
	deliveryCursor      = "d2"
	activityCursor      = "v1"
	refusedCursor       = "f1"
	arrivalCursor       = "n1"
	latestArrivalCursor = "n2"
	auditCursor         = "b1"
	trailCursor         = "p1"
	latestTrailCursor   = "p2"
	touchCursor         = "c1"
	spendCursor         = "m1"
)

// cursorOf returns the kind of the cursors of one list of one account, so that a cursor from another account is
// refused. Cursors are not signed: an invented one shows no more than the list itself.
func cursorOf(list, account string) string {
	sum := sha256.Sum256([]byte(account))
	return list + "-" + base64.RawURLEncoding.EncodeToString(sum[:6])
}

// maxCursor is longer than any valid cursor, in bytes.
const maxCursor = 128

// latest is the end of the year 9999, the last time that timestamps in answers can show.
const latest = 253402300799999

// newestCursor is a position in a list that is ordered by time of creation and then by id, the newest first.
type newestCursor struct {
	createdAt time.Time
	id        string
}

// lowestID is before all ids of the same time.
var lowestID = ulid.ULID{}.String()

func (c newestCursor) encode(kind string) string {
	return encodeCursor(kind, strconv.FormatInt(c.createdAt.UnixMilli(), 10), c.id)
}

func decodeNewest(kind, cursor string) (newestCursor, error) {
	parts, err := decodeCursor(kind, cursor, 2)
	if err != nil {
		return newestCursor{}, err
	}
	at, err := decodeTime(parts[0])
	if err != nil || !event.ValidID(parts[1]) {
		return newestCursor{}, ErrCursor
	}
	return newestCursor{at, parts[1]}, nil
}

func decodeTime(millis string) (time.Time, error) {
	n, err := decimal(millis)
	if err != nil || n > latest {
		return time.Time{}, ErrCursor
	}
	return time.UnixMilli(n).UTC(), nil
}

// timeCursor is a position in a list that is ordered by a time, and then by the position on the log.
type timeCursor struct {
	at       time.Time
	position int64
}

func (c timeCursor) encode(kind string) string {
	return encodeCursor(kind, strconv.FormatInt(c.at.UnixMilli(), 10), strconv.FormatInt(c.position, 10))
}

func decodeTimeCursor(kind, cursor string) (timeCursor, error) {
	parts, err := decodeCursor(kind, cursor, 2)
	if err != nil {
		return timeCursor{}, err
	}
	at, err := decodeTime(parts[0])
	if err != nil {
		return timeCursor{}, err
	}
	position, err := decimal(parts[1])
	return timeCursor{at, position}, err
}

// encodeOrdinal makes the cursor of a list that is ordered by one number.
func encodeOrdinal(kind string, ordinal int64) string {
	return encodeCursor(kind, strconv.FormatInt(ordinal, 10))
}

func decodeOrdinal(kind, cursor string) (int64, error) {
	parts, err := decodeCursor(kind, cursor, 1)
	if err != nil {
		return 0, err
	}
	ordinal, err := decimal(parts[0])
	if err != nil || ordinal == math.MaxInt64 {
		return 0, ErrCursor
	}
	return ordinal, nil
}

func encodeCursor(kind string, parts ...string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(kind + "." + strings.Join(parts, ".")))
}

func decodeCursor(kind, cursor string, n int) ([]string, error) {
	if len(cursor) > maxCursor {
		return nil, ErrCursor
	}
	// The decoder skips line breaks, which no valid cursor has.
	if strings.ContainsAny(cursor, "\r\n") {
		return nil, ErrCursor
	}
	plain, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil {
		return nil, ErrCursor
	}
	parts := strings.Split(string(plain), ".")
	if len(parts) != n+1 || parts[0] != kind {
		return nil, ErrCursor
	}
	return parts[1:], nil
}

// decimal reads a number, 0 or more, as strconv writes it: no sign, no leading zeros.
func decimal(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != s {
		return 0, ErrCursor
	}
	return n, nil
}

// selection is a SELECT statement while it is built.
type selection struct {
	from  string // SELECT … FROM …
	where []string
	order string
	then  string // SELECT … FROM page …: reads further columns of the found rows; empty: there are none
	args  []any
	none  bool // no row can match
	// halves are conditions of which each row meets one, each with an index of its own in the order. Empty: one index
	// has all rows.
	halves []string

	// table and narrow are of a list with a filter that no index answers: FROM …, and what adds the conditions of
	// that filter. A page then goes through scannedRows rows at most.
	table  string
	narrow func(*selection)
}

// and adds a condition. Each ? in it is a placeholder for the next of the values.
func (s *selection) and(condition string, values ...any) {
	for _, value := range values {
		if text, ok := value.(string); ok && !storable(text) {
			s.none = true
			value = ""
		}
		s.args = append(s.args, value)
		condition = strings.Replace(condition, "?", "$"+strconv.Itoa(len(s.args)), 1)
	}
	s.where = append(s.where, condition)
}

// equal adds the condition that a column has a value, unless the value is empty.
func (s *selection) equal(column, value string) {
	if value != "" {
		s.and(column+" = ?", value)
	}
}

// within adds the condition that a column is not before one time and is before another; a zero time sets no bound.
func (s *selection) within(column string, since, until time.Time) {
	if !since.IsZero() {
		s.and(column+" >= ?", since)
	}
	if !until.IsZero() {
		s.and(column+" < ?", until)
	}
}

func (s *selection) sql(limit int) string {
	return s.upTo(strconv.Itoa(limit))
}

// upTo is sql with a limit that is a number or ALL.
func (s *selection) upTo(limit string) string {
	if s.none {
		limit = "0"
	}
	ordered := " ORDER BY " + s.order + " LIMIT " + limit
	found := s.from + " WHERE " + strings.Join(s.where, " AND ")
	if len(s.halves) > 0 {
		var parts []string
		for _, half := range s.halves {
			parts = append(parts, "("+found+" AND "+half+ordered+")")
		}
		found = "SELECT * FROM (" + strings.Join(parts, " UNION ALL ") + ") AS t"
	}
	found += ordered
	if s.then == "" {
		return found
	}
	return "WITH page AS MATERIALIZED (" + found + ")" + s.then
}

var patternEscapes = strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`)

// contains returns a LIKE pattern for texts that contain a part, whatever characters the part has.
func contains(part string) string { return "%" + patternEscapes.Replace(part) + "%" }

// maxPageBytes bounds the stored bytes of a page, except for its last item. A lead may be a hundred times as large as
// most.
const maxPageBytes = 1 << 20

// pageBuilder collects the items of a page.
type pageBuilder[T any] struct {
	limit int // of items
	items []T
	bytes int
	more  bool // an item did not fit
}

// hasRoom reports whether another item fits.
func (p *pageBuilder[T]) hasRoom() bool {
	p.more = p.more || len(p.items) == p.limit || p.bytes >= maxPageBytes
	return !p.more
}

func (p *pageBuilder[T]) add(item T, bytes int) {
	p.items, p.bytes = append(p.items, item), p.bytes+bytes
}

func (p *pageBuilder[T]) list(after func(T) string) List[T] {
	list := List[T]{Items: p.items}
	if p.more {
		list.NextCursor = after(p.items[len(p.items)-1])
	}
	return list
}

// collect reads a page from rows, the last of which may only show that more follow.
func collect[T any](rows pgx.Rows, limit int, scan pgx.RowToFunc[T]) (pageBuilder[T], error) {
	p := pageBuilder[T]{limit: limit}
	err := p.addRows(rows, scan)
	return p, err
}

func (p *pageBuilder[T]) addRows(rows pgx.Rows, scan pgx.RowToFunc[T]) error {
	defer rows.Close()
	for rows.Next() && p.hasRoom() {
		item, err := scan(rows)
		if err != nil {
			return err
		}
		p.add(item, sizeOf(rows))
	}
	rows.Close()
	return rows.Err()
}

func sizeOf(row pgx.Rows) (bytes int) {
	for _, value := range row.RawValues() {
		bytes += len(value)
	}
	return bytes
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

// page reads one page of a list, and one more row to see whether more follow. PostgreSQL plans the query for its actual
// values: the best index depends on how many leads have a value.
func page[T any](
	ctx context.Context, r *Reader, s selection, limit int, scan pgx.RowToFunc[T], after func(T) string,
) (List[T], error) {
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

// scannedRows is the maximum number of rows that a page with a filter without an index reads. An index would slow down
// every write.
const scannedRows = 20_000

// scan ends a page after the rows that it goes through, and adds the conditions of the filter that no index answers. If
// rows follow, it returns the position of the last one in the order of the list: the values of these columns.
func (s *selection) scan(ctx context.Context, r *Reader, columns string) (end []any, err error) {
	if s.narrow == nil || s.none {
		return nil, nil
	}
	through := selection{
		from: `SELECT ` + columns + ` FROM ` + s.table, where: s.where, order: s.order, halves: s.halves,
	}
	rows, err := r.pool.Query(ctx,
		`SELECT * FROM (`+through.sql(r.scannedRows)+`) AS through OFFSET `+strconv.Itoa(r.scannedRows-1), s.args...)
	if err != nil {
		return nil, schema.Unavailable(err)
	}
	for rows.Next() {
		if end, err = rows.Values(); err != nil {
			break
		}
	}
	rows.Close()
	if err := errors.Join(err, rows.Err()); err != nil {
		return nil, schema.Unavailable(err)
	}
	if end != nil {
		compare := ` <= `
		if strings.HasSuffix(s.order, ` DESC`) {
			compare = ` >= `
		}
		s.and(`(`+columns+`)`+compare+`(?`+strings.Repeat(`, ?`, len(end)-1)+`)`, end...)
	}
	s.narrow(s)
	return end, nil
}

// sortedRows is how many rows of a span of time are sorted for a page.
const sortedRows = 50_000

// bySpan adds a span of time to a list in the order of the log. PostgreSQL would look for the span along the log,
// however far away it is. Unless it has many rows it is found by the index of times, because the order has a form that
// no index has.
func (s *selection) bySpan(ctx context.Context, r *Reader, column string, since, until time.Time) error {
	s.within(column, since, until)
	if since.IsZero() && until.IsZero() || s.none {
		return nil
	}
	many := false
	span := selection{from: `SELECT true FROM ` + s.table, where: s.where, order: column}
	err := r.pool.QueryRow(ctx, span.sql(1)+` OFFSET `+strconv.Itoa(sortedRows), s.args...).Scan(&many)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return schema.Unavailable(err)
	}
	if !many {
		s.order = strings.Replace(s.order, `position`, `position + 0`, 1)
	}
	return nil
}

// positioned is an item of a list that is in the order of the log.
type positioned[T any] struct {
	position int64
	item     T
}

// pageByPosition is page for a list in the order of the log, oldest first, or newest first if the selection's order is
// descending. The error is ErrCursor for a cursor of another list.
func pageByPosition[T any](
	ctx context.Context, r *Reader, s selection, kind string, p Page, scan pgx.RowToFunc[positioned[T]],
) (List[T], error) {
	if p.Cursor != "" {
		position, err := decodeOrdinal(kind, p.Cursor)
		if err != nil {
			return List[T]{}, err
		}
		compare := `>`
		if strings.HasSuffix(s.order, ` DESC`) {
			compare = `<`
		}
		s.and(`position `+compare+` ?`, position)
	}
	end, err := s.scan(ctx, r, `position`)
	if err != nil {
		return List[T]{}, err
	}
	found, err := page(ctx, r, s, p.Limit, scan, func(p positioned[T]) string { return encodeOrdinal(kind, p.position) })
	if end != nil && found.NextCursor == "" {
		found.NextCursor = encodeOrdinal(kind, end[0].(int64))
	}
	return itemsOf(found), err
}

// itemsOf drops the positions of a list's items.
func itemsOf[T any](found List[positioned[T]]) List[T] {
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

// jsonOf scans a JSON column.
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

// given returns nil for an empty text.
func given(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
