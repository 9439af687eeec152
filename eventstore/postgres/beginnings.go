package postgres

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"math"
	"slices"

	"github.com/leadlog/leadlog/eventstore"
)

// Simultaneous reads of streams share a query. Most streams that are read are short: leads, claims, tokens. So the query reads the
// first page of each, and further pages are read separately.
const (
	readQueries = 2         // queries at a time
	readBatch   = 64        // streams of one
	firstBytes  = 128 << 10 // of a first page, however many share a query
)

// beginning is where a read begins.
type beginning struct {
	stream string
	from   eventstore.Revision
}

// first is the first page of a stream from a revision on.
func (s *Store) first(ctx context.Context, stream string, from eventstore.Revision) (page, error) {
	waiting, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	known := s.replicas.position()
	p, err := s.firsts.Answer(waiting, beginning{stream, from})
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

// selectKeyed is selectFirst, and has a key of each stream that $5 names beside the first of its events.
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

// firstPages reads the first pages of many streams. Each is cut once it has its part of the bytes of a page.
func (s *Store) firstPages(ctx context.Context, asked []beginning) ([]page, error) {
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
