package postgres

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

const (
	firstPage     = 50   // events of the first page of a stream,
	streamPage    = 500  // of the second,
	streamPageMax = 4000 // and at most of later ones

	// maxPageBytes is the payload size at which a page is cut. pageBytes is the size that pages approach, since
	// several of them are in memory, encoded and decoded.
	maxPageBytes = 4 << 20
	pageBytes    = 1 << 20

	// queryTimeout is the timeout of a query. Without it, a server that hangs would block a subscription forever.
	queryTimeout = 30 * time.Second
)

const (
	eventColumns = `position, recorded_at, revision, event_id, stream, type, data, metadata`
	selectEvents = `SELECT ` + eventColumns + ` FROM log.event `
)

// Read implements eventstore.Store. A stream of less than 50 small events takes one round trip, which concurrent reads
// share. The next page of a longer stream is read while the consumer processes the current one. For the first page this
// starts after three quarters of its events, since the consumer may stop there.
func (s *Store) Read(
	ctx context.Context, stream string, from eventstore.Revision,
) iter.Seq2[eventstore.Recorded, error] {
	return func(yield func(eventstore.Recorded, error) bool) {
		if !validStream(stream) {
			return
		}
		limit, wanted := firstPage, firstPage*3/4
		page, err := s.first(ctx, stream, from)
		for err == nil {
			var next chan fetched
			more := len(page.events) == limit || page.cut
			for i, recorded := range page.events {
				if more && i == min(wanted, len(page.events)-1) {
					from = page.events[len(page.events)-1].Revision + 1
					limit = page.next(max(limit, streamPage/2), len(page.events), streamPageMax)
					next = make(chan fetched, 1)
					go func() {
						// Not cancelled when the consumer stops: that would close the connection.
						ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), queryTimeout)
						defer cancel()
						page, err := s.streamPage(ctx, limit, stream, from, limit)
						next <- fetched{page: page, err: err}
					}()
				}
				if !yield(recorded, nil) {
					return
				}
			}
			if next == nil {
				return
			}
			select {
			case f := <-next:
				page, err, wanted = f.page, f.err, 0
			case <-ctx.Done():
				err = unavailable(ctx, ctx.Err())
			}
		}
		yield(eventstore.Recorded{}, err)
	}
}

// validStream reports whether a stream can have a name: the database stores neither NUL nor invalid UTF-8.
func validStream(name string) bool {
	return utf8.ValidString(name) && !strings.ContainsRune(name, 0)
}

// Concurrent reads of streams share a query for their first pages. Most streams are short: leads, claims, tokens. Later
// pages are read separately.
const (
	readQueries = 2         // maximum number of concurrent queries
	readBatch   = 64        // maximum number of streams in a query
	firstBytes  = 128 << 10 // minimum size of a first page, for any number of streams in a query
)

// readStart is the start of a read of a stream.
type readStart struct {
	stream string
	from   eventstore.Revision
}

// first returns the first page of a stream from a revision on.
func (s *Store) first(ctx context.Context, stream string, from eventstore.Revision) (page, error) {
	waiting, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	known := s.replicas.position()
	p, err := s.firsts.Do(waiting, readStart{stream, from})
	switch {
	case err != nil && waiting.Err() != nil:
		return page{}, unavailable(waiting, err)
	case err == nil:
		err = s.confirmPage(waiting, known, p)
	}
	if err != nil {
		return page{}, err
	}
	return p, nil
}

// joinPage joins each requested stream with its first events, up to a size of their data.
const joinPage = ` CROSS JOIN LATERAL (
       SELECT ` + eventColumns + ` FROM (
              SELECT *, sum(octet_length(data)) OVER (ORDER BY revision ROWS UNBOUNDED PRECEDING) - octet_length(data)
              AS before
                FROM log.event WHERE stream = asked.stream COLLATE "C" AND revision >= asked.revision
               ORDER BY revision LIMIT $3) AS page
        WHERE before < $4) AS e`

// selectFirst selects the first pages of streams.
const selectFirst = `SELECT e.*, asked.ordinal
  FROM unnest($1::text[], $2::bigint[]) WITH ORDINALITY AS asked (stream, revision, ordinal)` + joinPage

// firstPages reads the first pages of many streams. A page is cut at its share of the bytes.
func (s *Store) firstPages(ctx context.Context, asked []readStart) ([]page, error) {
	streams, revisions := make([]string, len(asked)), make([]int64, len(asked))
	share := max(maxPageBytes/len(asked), firstBytes)
	for i, a := range asked {
		streams[i], revisions[i] = a.stream, int64(a.from)
	}
	var ordinal int64
	d := decoder{more: []any{&ordinal}}
	pages := make([]page, len(asked))
	arguments := []any{streams, revisions, firstPage, share}
	_, _, err := s.query(ctx, &d, math.MaxInt, selectFirst, arguments, func(recorded eventstore.Recorded) {
		p := &pages[ordinal-1]
		p.events = append(p.events, recorded)
		p.bytes += len(recorded.Data)
	})
	if err != nil {
		return nil, err
	}
	for i := range pages {
		pages[i].cut = pages[i].bytes >= share
		// The database returns them in this order, but does not guarantee it.
		slices.SortFunc(pages[i].events, func(x, y eventstore.Recorded) int {
			return cmp.Compare(x.Revision, y.Revision)
		})
	}
	return pages, nil
}

// selectPage selects events of a stream up to a size of their data. So the server ends a page of large events, and the
// connection can be reused.
const selectPage = `SELECT ` + eventColumns + ` FROM (
       SELECT *, sum(octet_length(data)) OVER (ORDER BY revision ROWS UNBOUNDED PRECEDING) - octet_length(data) AS
       before
         FROM log.event WHERE stream = $1 AND revision >= $2 ORDER BY revision LIMIT $3) AS e
 WHERE before < $4 ORDER BY revision`

func (s *Store) streamPage(
	ctx context.Context, capacity int, stream string, from eventstore.Revision, limit int,
) (page, error) {
	p, err := s.page(ctx, capacity, selectPage, stream, int64(from), limit, maxPageBytes)
	p.cut = p.bytes >= maxPageBytes
	return p, err
}

// Last implements eventstore.Store.
func (s *Store) Last(ctx context.Context, stream string) (eventstore.Recorded, error) {
	if !validStream(stream) {
		return eventstore.Recorded{}, nil
	}
	p, err := s.page(ctx, 1, selectEvents+`WHERE stream = $1 ORDER BY revision DESC LIMIT 1`, stream)
	if err != nil || len(p.events) == 0 {
		return eventstore.Recorded{}, err
	}
	return p.events[0], nil
}

// Head implements eventstore.Store.
func (s *Store) Head(ctx context.Context) (eventstore.Position, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	known := s.replicas.position()
	var head int64
	var id [16]byte
	var required bool
	err := s.pool.QueryRow(ctx,
		`SELECT position, event_id, `+selectRequired+` FROM log.event ORDER BY position DESC
			LIMIT 1`).Scan(&head, &id, &required)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	if err != nil {
		return 0, unavailable(ctx, err)
	}
	s.replicas.require(required)
	return eventstore.Position(head), s.confirm(ctx, known, mark{eventstore.Position(head), id})
}

// Epoch implements eventstore.Store.
func (s *Store) Epoch(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	var id string
	if err := s.pool.QueryRow(ctx, `SELECT id::text FROM log.epoch`).Scan(&id); err != nil {
		return "", unavailable(ctx, err)
	}
	return id, nil
}

// page is the result of a query for events.
type page struct {
	events []eventstore.Recorded
	bytes  int
	cut    bool // the page ends at its size limit, before the end of the query
}

// next returns how many events to read after this page: after a cut as many as fitted, and otherwise twice as many each
// time while events are small, or half as many while they are large.
func (p page) next(limit, fitted, maxLimit int) int {
	switch {
	case p.cut:
		return fitted
	case p.bytes > pageBytes:
		return max(limit/2, 1)
	case p.bytes < pageBytes/2:
		return min(2*limit, maxLimit)
	}
	return limit
}

// page reads the events of a query. Capacity is the number of events that the caller expects.
func (s *Store) page(ctx context.Context, capacity int, query string, arguments ...any) (page, error) {
	known := s.replicas.position()
	p := page{events: make([]eventstore.Recorded, 0, capacity)}
	d := decoder{chunk: min(capacity*chunkPerEvent, maxChunk)}
	var err error
	p.bytes, p.cut, err = s.query(ctx, &d, maxPageBytes, query, arguments, func(recorded eventstore.Recorded) {
		if p.events = append(p.events, recorded); len(p.events) == fewEvents {
			d.chunk = maxChunk
		}
	})
	if err == nil {
		err = s.confirmPage(ctx, known, p)
	}
	if err != nil {
		return page{}, err
	}
	return p, nil
}

// confirmPage is confirm for events in the order of their positions.
func (s *Store) confirmPage(ctx context.Context, known eventstore.Position, p page) error {
	if len(p.events) == 0 {
		return nil
	}
	last := p.events[len(p.events)-1]
	return s.confirm(ctx, known, mark{last.Position, last.ID})
}

// confirm waits until an event that was read, and all before it, may be returned. Known is the replicated position
// before the read.
func (s *Store) confirm(ctx context.Context, known eventstore.Position, newest mark) error {
	if err := s.replicas.confirm(ctx, known, newest); err != nil {
		return err
	}
	s.newest.see(newest.position, newest.id)
	return nil
}

// query passes each row of a query to a function. The rows have the columns of selectEvents, then those of the decoder.
// All rows are passed before it returns, so that no connection is held while a consumer processes them. It returns the
// bytes of payload, and whether the result was cut because it exceeded maxBytes.
func (s *Store) query(
	ctx context.Context, d *decoder, maxBytes int, query string, arguments []any, each func(eventstore.Recorded),
) (size int, cut bool, err error) {
	querying, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	rows, err := s.pool.Query(querying, query, arguments...)
	if err != nil {
		return 0, false, unavailable(ctx, err)
	}
	defer rows.Close()
	columns := d.columns()
	for rows.Next() {
		if size >= maxBytes {
			cancel() // closes the connection, but the rest may be gigabytes
			return size, true, nil
		}
		if err := rows.Scan(columns...); err != nil {
			return 0, false, unavailable(ctx, err)
		}
		recorded, err := d.recorded()
		if err != nil {
			return 0, false, err
		}
		each(recorded)
		size += len(recorded.Data)
	}
	if err := rows.Err(); err != nil {
		return 0, false, unavailable(ctx, err)
	}
	return size, false, nil
}

// Events of a long page share chunks of memory, to save allocations. An event in memory keeps its whole chunk.
const (
	chunkPerEvent = 256
	maxChunk      = 16 << 10
	fewEvents     = 16 // number of events after which an unexpectedly long page counts as long
)

// decoder decodes rows of selectEvents. Equal texts of neighbouring events share memory.
type decoder struct {
	more []any // where further columns are scanned to

	position, revision         int64
	at                         time.Time
	id                         [16]byte
	onStream, kind, data, meta pgtype.DriverBytes // valid until the next row

	chunk    int    // bytes; 0: no sharing
	free     []byte // the rest of the latest chunk
	texts    strings.Builder
	stream   string
	types    map[string]string
	encoded  []byte // of metadata
	metadata event.Metadata
}

// columns returns where the columns of a row are scanned to.
func (d *decoder) columns() []any {
	return append([]any{&d.position, &d.at, &d.revision, &d.id, &d.onStream, &d.kind, &d.data, &d.meta}, d.more...)
}

// recorded returns the event of the row that was scanned.
func (d *decoder) recorded() (eventstore.Recorded, error) {
	r := eventstore.Recorded{Position: eventstore.Position(d.position), Revision: eventstore.Revision(d.revision)}
	if d.stream != string(d.onStream) {
		d.stream = d.text(d.onStream)
	}
	r.Stream, r.At, r.ID, r.Type, r.Data = d.stream, d.at.UTC(), d.id, d.typeName(d.kind), d.clone(d.data)
	if !bytes.Equal(d.encoded, d.meta) {
		metadata, err := event.DecodeMetadata(d.meta)
		if err != nil {
			return r, fmt.Errorf("metadata at position %d of stream %s: %w", r.Position, r.Stream, err)
		}
		d.encoded, d.metadata = append(d.encoded[:0], d.meta...), metadata
	}
	r.Metadata = d.metadata
	return r, nil
}

func (d *decoder) clone(b []byte) []byte {
	if len(b) > d.chunk/4 {
		return bytes.Clone(b)
	}
	if len(b) > len(d.free) {
		d.free = make([]byte, d.chunk)
	}
	c := d.free[:len(b):len(b)]
	d.free = d.free[len(b):]
	copy(c, b)
	return c
}

// text returns substrings of one string, which stay valid while the builder does not grow.
func (d *decoder) text(b []byte) string {
	if len(b) > d.chunk/4 {
		return string(b)
	}
	if d.texts.Cap()-d.texts.Len() < len(b) {
		d.texts = strings.Builder{}
		d.texts.Grow(d.chunk)
	}
	from := d.texts.Len()
	d.texts.Write(b)
	return d.texts.String()[from:]
}

func (d *decoder) typeName(b []byte) string {
	name, known := d.types[string(b)]
	if !known {
		name = string(b)
		if d.types == nil {
			d.types = make(map[string]string)
		}
		d.types[name] = name
	}
	return name
}
