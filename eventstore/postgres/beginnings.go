package postgres

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"slices"

	"github.com/leadlog/leadlog/eventstore"
)

// Simultaneous reads of streams share a query. Most streams that are read are short: leads, claims, tokens. So the query reads the
// first page of each, and further pages are read separately.
const (
	readQueries = 2  // queries at a time
	readBatch   = 64 // streams of one
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
	case err == nil && p.cut:
		return s.streamPage(ctx, 0, stream, from, firstPage)
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
       SELECT position, recorded_at, revision, event_id, stream, type, data, metadata FROM log.event
        WHERE stream = asked.stream COLLATE "C" AND revision >= asked.revision
        ORDER BY revision LIMIT $3) AS e`

// selectKeyed is selectFirst, and has a key of each stream that $4 names beside the first of its events.
const selectKeyed = `SELECT e.*, asked.place, k.*
  FROM unnest($1::text[], $2::bigint[], $4::text[]) WITH ORDINALITY AS asked (stream, revision, keyed, place)
 CROSS JOIN LATERAL (
       SELECT position, recorded_at, revision, event_id, stream, type, data, metadata FROM log.event
        WHERE stream = asked.stream COLLATE "C" AND revision >= asked.revision
        ORDER BY revision LIMIT $3) AS e
  LEFT JOIN LATERAL (
       SELECT id, sealed_by, sealed FROM person.key
        WHERE stream = asked.keyed COLLATE "C" AND e.revision = asked.revision LIMIT 1) AS k ON true`

// firstPages reads the first pages of many streams. If they are too large together, all of them are cut to nothing.
func (s *Store) firstPages(ctx context.Context, asked []beginning) ([]page, error) {
	streams, revisions, keyed := make([]string, len(asked)), make([]int64, len(asked)), make([]*string, len(asked))
	query, arguments := selectFirst, []any{streams, revisions, firstPage}
	for i, a := range asked {
		streams[i], revisions[i] = a.stream, int64(a.from)
		if s.keyed(a.stream) {
			keyed[i] = &streams[i]
			query, arguments = selectKeyed, []any{streams, revisions, firstPage, keyed}
		}
	}
	pages := make([]page, len(asked))
	_, cut, err := s.query(ctx, &decoder{}, query, arguments, func(recorded eventstore.Recorded, row [][]byte) {
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
		if cut {
			pages[i] = page{cut: true}
		}
		// The database gives them in this order, but does not promise to.
		slices.SortFunc(pages[i].events, func(x, y eventstore.Recorded) int { return cmp.Compare(x.Revision, y.Revision) })
	}
	return pages, nil
}
