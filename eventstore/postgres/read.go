package postgres

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

const (
	firstPage     = 50   // events of one stream that are read first,
	streamPage    = 500  // then, when there are more,
	streamPageMax = 4000 // and at most at a time

	// maxPageBytes is how much payload a page gathers before it is cut short.
	maxPageBytes = 4 << 20

	// queryTimeout is how long one query may take. Without it a server that hangs would hold up a subscription for good.
	queryTimeout = 30 * time.Second
)

const selectEvents = `SELECT position, recorded_at, revision, event_id, stream, type, data, metadata FROM log.event `

// Read implements eventstore.Store. A stream of less than 50 small events takes one round trip, which simultaneous reads share. Of a
// longer one, the next page is read while the consumer works on a page; of the first page it works on three quarters before that,
// since it may stop there.
func (s *Store) Read(ctx context.Context, stream string, from eventstore.Revision) iter.Seq2[eventstore.Recorded, error] {
	return func(yield func(eventstore.Recorded, error) bool) {
		if !utf8.ValidString(stream) || strings.ContainsRune(stream, 0) {
			return // no stream can have that name
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
						// Not cancelled when the consumer stops: that would cost the connection.
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

// Simultaneous reads of streams share a query for the first page of each. Most streams are short: leads, claims, tokens. Further pages
// are read separately.
const (
	readQueries = 2         // queries at a time
	readBatch   = 64        // streams of one
	firstBytes  = 128 << 10 // of a first page, however many share a query
)

// readStart is where a read of a stream begins.
type readStart struct {
	stream string
	from   eventstore.Revision
}

// first is the first page of a stream from a revision on.
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

const selectFirst = `SELECT e.*, asked.place
  FROM unnest($1::text[], $2::bigint[]) WITH ORDINALITY AS asked (stream, revision, place)
 CROSS JOIN LATERAL (
       SELECT position, recorded_at, revision, event_id, stream, type, data, metadata FROM (
              SELECT *, sum(octet_length(data)) OVER (ORDER BY revision ROWS UNBOUNDED PRECEDING) - octet_length(data) AS before
                FROM log.event WHERE stream = asked.stream COLLATE "C" AND revision >= asked.revision
               ORDER BY revision LIMIT $3) AS all_of_it
        WHERE before < $4) AS e`

// selectKeyed is selectFirst with a key of each stream that $5 names, beside the first of its events.
const selectKeyed = `SELECT e.*, asked.place, k.*
  FROM unnest($1::text[], $2::bigint[], $5::text[]) WITH ORDINALITY AS asked (stream, revision, keyed, place)
 CROSS JOIN LATERAL (
       SELECT position, recorded_at, revision, event_id, stream, type, data, metadata FROM (
              SELECT *, sum(octet_length(data)) OVER (ORDER BY revision ROWS UNBOUNDED PRECEDING) - octet_length(data) AS before
                FROM log.event WHERE stream = asked.stream COLLATE "C" AND revision >= asked.revision
               ORDER BY revision LIMIT $3) AS all_of_it
        WHERE before < $4) AS e
  LEFT JOIN LATERAL (
       SELECT id, sealed_by, sealed FROM person.key
        WHERE stream = asked.keyed COLLATE "C" AND e.revision = asked.revision LIMIT 1) AS k ON true`

// firstPages reads the first pages of many streams. Each is cut once it has its share of the bytes of a page.
func (s *Store) firstPages(ctx context.Context, asked []readStart) ([]page, error) {
	streams, revisions, keyed := make([]string, len(asked)), make([]int64, len(asked)), make([]*string, len(asked))
	share := max(maxPageBytes/len(asked), firstBytes)
	query, arguments := selectFirst, []any{streams, revisions, firstPage, share}
	for i, a := range asked {
		streams[i], revisions[i] = a.stream, int64(a.from)
		if s.keyed(a.stream) {
			keyed[i] = &streams[i]
			query, arguments = selectKeyed, []any{streams, revisions, firstPage, share, keyed}
		}
	}
	pages := make([]page, len(asked))
	_, _, err := s.query(ctx, &decoder{}, math.MaxInt, query, arguments, func(recorded eventstore.Recorded, row [][]byte) {
		if len(row) > 9 && row[9] != nil {
			recorded.Key = &eventstore.Key{
				Stream: recorded.Stream, ID: int64(binary.BigEndian.Uint64(row[9])), SealedBy: string(row[10]), Sealed: bytes.Clone(row[11]),
			}
		}
		p := &pages[binary.BigEndian.Uint64(row[8])-1]
		p.events = append(p.events, recorded)
		p.bytes += len(recorded.Data)
	})
	if err != nil {
		return nil, err
	}
	for i := range pages {
		pages[i].cut = pages[i].bytes >= share
		// The database gives them in this order, but does not promise to.
		slices.SortFunc(pages[i].events, func(x, y eventstore.Recorded) int { return cmp.Compare(x.Revision, y.Revision) })
	}
	return pages, nil
}

// selectPage selects events of a stream until their data has so many bytes. So a page of large events ends on the server, and its
// connection can be used again.
const selectPage = `SELECT position, recorded_at, revision, event_id, stream, type, data, metadata FROM (
       SELECT *, sum(octet_length(data)) OVER (ORDER BY revision ROWS UNBOUNDED PRECEDING) - octet_length(data) AS before
         FROM log.event WHERE stream = $1 AND revision >= $2 ORDER BY revision LIMIT $3) AS e
 WHERE before < $4 ORDER BY revision`

func (s *Store) streamPage(ctx context.Context, capacity int, stream string, from eventstore.Revision, limit int) (page, error) {
	p, err := s.page(ctx, capacity, selectPage, stream, int64(from), limit, maxPageBytes)
	p.cut = p.bytes >= maxPageBytes
	return p, err
}

// Last implements eventstore.Store.
func (s *Store) Last(ctx context.Context, stream string) (eventstore.Recorded, error) {
	if !utf8.ValidString(stream) || strings.ContainsRune(stream, 0) {
		return eventstore.Recorded{}, nil // no stream can have that name
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
	err := s.pool.QueryRow(ctx, `SELECT position, event_id, `+selectRequired+` FROM log.event ORDER BY position DESC LIMIT 1`).Scan(&head, &id, &required)
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
	cut    bool // there were more, too large for a page
}

// next is how many events to read after this page: after a cut no more than fitted, then twice as many each time while events are
// small.
func (p page) next(asked, fitted, most int) int {
	switch {
	case p.cut:
		return fitted
	case p.bytes < maxPageBytes/4:
		return min(2*asked, most)
	}
	return asked
}

// page reads the events of a query. Capacity is how many the caller expects.
func (s *Store) page(ctx context.Context, capacity int, query string, arguments ...any) (page, error) {
	known := s.replicas.position()
	p := page{events: make([]eventstore.Recorded, 0, capacity)}
	d := decoder{chunk: min(capacity*chunkPerEvent, maxChunk)}
	var err error
	p.bytes, p.cut, err = s.query(ctx, &d, maxPageBytes, query, arguments, func(recorded eventstore.Recorded, _ [][]byte) {
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

// confirm returns when an event that was read, and all before it, may be in an answer. Known is the replicated position from
// before the read.
func (s *Store) confirm(ctx context.Context, known eventstore.Position, newest mark) error {
	if err := s.replicas.confirm(ctx, known, newest); err != nil {
		return err
	}
	s.newest.see(newest.position, newest.id)
	return nil
}

// query passes each row of a query, which begins with the columns of selectEvents, to a function. All are passed before it
// returns, so that no connection is held while a consumer works on them. It returns the bytes of payload, and whether the result
// was cut short because there are more than most.
func (s *Store) query(
	ctx context.Context, d *decoder, most int, query string, arguments []any, each func(recorded eventstore.Recorded, row [][]byte),
) (size int, cut bool, err error) {
	asking, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	// Binary columns, read without the driver's conversions: decoding is the cost of reading a log.
	arguments = append([]any{pgx.QueryResultFormats{pgx.BinaryFormatCode}}, arguments...)
	rows, err := s.pool.Query(asking, query, arguments...)
	if err != nil {
		return 0, false, unavailable(ctx, err)
	}
	defer rows.Close()
	for rows.Next() {
		if size >= most {
			cancel() // loses the connection, but the rest may be gigabytes
			return size, true, nil
		}
		row := rows.RawValues()
		recorded, err := d.decode(row)
		if err != nil {
			return 0, false, err
		}
		each(recorded, row)
		size += len(recorded.Data)
	}
	if err := rows.Err(); err != nil {
		return 0, false, unavailable(ctx, err)
	}
	return size, false, nil
}

// Events of a long page share chunks of memory, to save allocations. Keeping one event keeps the whole chunk.
const (
	chunkPerEvent = 256
	maxChunk      = 16 << 10
	fewEvents     = 16 // from here on, a page that was not expected to be long counts as long
)

// decoder turns rows of selectEvents into events. Equal texts of neighbouring events share memory.
type decoder struct {
	chunk    int    // bytes; 0: none is shared
	free     []byte // the rest of the latest chunk
	texts    strings.Builder
	stream   string
	types    map[string]string
	encoded  []byte // of metadata
	metadata event.Metadata
}

// postgresEpoch is where PostgreSQL's binary timestamps count microseconds from: 2000-01-01.
const postgresEpoch = 946_684_800 * 1_000_000

func (d *decoder) decode(row [][]byte) (eventstore.Recorded, error) {
	r := eventstore.Recorded{
		Position: eventstore.Position(binary.BigEndian.Uint64(row[0])),
		Revision: eventstore.Revision(binary.BigEndian.Uint64(row[2])),
	}
	if d.stream != string(row[4]) {
		d.stream = d.text(row[4])
	}
	r.Stream = d.stream
	r.At = time.UnixMicro(int64(binary.BigEndian.Uint64(row[1])) + postgresEpoch).UTC()
	r.ID = ulid.ULID(row[3])
	r.Type = d.typeName(row[5])
	r.Data = d.clone(row[6])
	if !bytes.Equal(d.encoded, row[7]) {
		metadata, err := event.DecodeMetadata(row[7])
		if err != nil {
			return r, fmt.Errorf("metadata at position %d of stream %s: %w", r.Position, r.Stream, err)
		}
		d.encoded, d.metadata = append(d.encoded[:0], row[7]...), metadata
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

// text returns substrings of one string. They stay valid as long as the builder does not grow.
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
