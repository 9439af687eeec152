package esdb

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"
	"unicode/utf8"

	client "github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/google/uuid"
	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/eventstore"
)

// Read implements eventstore.Store. It reads ahead while the consumer works, and goes on after a lost connection.
func (s *Store) Read(ctx context.Context, stream string, from eventstore.Revision) iter.Seq2[eventstore.Recorded, error] {
	return func(yield func(eventstore.Recorded, error) bool) {
		if !utf8.ValidString(stream) || strings.ContainsRune(stream, 0) || stream == "" || reserved(stream) {
			return // no stream can have that name
		}
		ctx, cancel := s.within(ctx)
		defer cancel()
		for retry := s.retrying(); ; {
			next, err := s.readOn(ctx, stream, from, func(r *record) bool { return yield(r.Recorded, nil) })
			if err == nil {
				return
			}
			if next > from {
				retry.reset()
			}
			from = next
			if err := retry.pause(ctx, err); err != nil {
				yield(eventstore.Recorded{}, err)
				return
			}
		}
	}
}

// readOn yields a stream's events from a revision on and returns the next to be read. The error is nil at the stream's end,
// and when the consumer stops.
func (s *Store) readOn(
	ctx context.Context, stream string, from eventstore.Revision, yield func(*record) bool,
) (next eventstore.Revision, err error) {
	from = max(from, 0)
	// An event's number on the server is never smaller than its revision.
	number, end := eventstore.Expected(from), tail{}
	if known, ok := s.tails.get(stream); ok && eventstore.Expected(from) > known.end {
		number = known.number + 1
	}
	end.number, end.end = number-1, eventstore.Expected(from)-1
	f, err := s.readFlow(ctx, s.readStream(stream, client.Forwards, client.Revision(uint64(number)), everything), all)
	if err != nil {
		return from, err
	}
	defer f.stop()
	records := resolver{Store: s, stream: stream}
	yielded := false
	for {
		m := f.next(ctx)
		if finished(m.err) {
			if yielded && records.pending == nil {
				s.tails.add(stream, end)
			}
			return from, nil
		}
		if m.err != nil {
			return from, m.err
		}
		end.number = m.record.number
		events, commit, err := records.take(ctx, m.record)
		if err != nil {
			return from, err
		}
		if len(events) == 0 {
			continue
		}
		if ok, err := s.valid(ctx, commit); err != nil || !ok {
			if err != nil {
				return from, err
			}
			continue
		}
		for _, e := range events {
			if e.Revision < from {
				continue
			}
			from, yielded = e.Revision+1, true
			end.end = eventstore.At(e.Revision)
			if !yield(e) {
				return from, nil
			}
		}
	}
}

// Last implements eventstore.Store.
func (s *Store) Last(ctx context.Context, stream string) (last eventstore.Recorded, err error) {
	if !utf8.ValidString(stream) || strings.ContainsRune(stream, 0) || stream == "" || reserved(stream) {
		return last, nil // no stream can have that name
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
	err = s.attempts(ctx, answerTime, func(ctx context.Context) error {
		_, err := s.backwards(ctx, stream, tailPage, func(r *record) bool {
			last = r.Recorded
			return false
		})
		return err
	})
	return last, err
}

// Head implements eventstore.Store. It reads $all from its end to the newest event of this log, and no further than
// the last time.
func (s *Store) Head(ctx context.Context) (eventstore.Position, error) {
	ctx, cancel := s.within(ctx)
	defer cancel()
	var head eventstore.Position
	err := s.attempts(ctx, answerTime, func(ctx context.Context) error {
		// Most often the newest record is an event, and one is enough.
		for _, count := range []uint64{1, 64, everything} {
			var found bool
			var err error
			if head, found, err = s.newest(ctx, count); found || err != nil {
				return err
			}
		}
		return nil
	})
	return head, err
}

// newest looks for the newest event of this log among the newest of all.
func (s *Store) newest(ctx context.Context, count uint64) (head eventstore.Position, found bool, err error) {
	known, seen := s.heads.known()
	f, err := s.readFlow(ctx, func(ctx context.Context, c *client.Client) (*client.ReadStream, error) {
		return c.ReadAll(onLeader(ctx), client.ReadAllOptions{Direction: client.Backwards, From: client.End{}}, count)
	}, s.own)
	if err != nil {
		return 0, false, err
	}
	defer f.stop()
	var end eventstore.Position
	for {
		m := f.next(ctx)
		if finished(m.err) {
			if count == everything {
				s.heads.found(0, end)
			}
			return 0, false, nil
		}
		if m.err != nil && !errors.Is(m.err, errForeign) {
			return 0, false, ofAll(m.err)
		}
		end = max(end, m.position)
		switch {
		case errors.Is(m.err, errForeign):
			s.heads.found(m.position, end)
			return m.position, true, nil
		case m.position == seen:
			s.heads.found(known, end)
			return known, true, nil
		case m.record != nil && !m.record.provisional() && m.record.more == 0:
			// An append that is not valid does not count, nor do the events before its last one.
			ok, err := s.valid(ctx, m.record)
			if err != nil {
				return 0, false, err
			}
			if ok {
				s.heads.found(m.position, end)
				return m.position, true, nil
			}
		}
	}
}

// Epoch implements eventstore.Store. The id is that of an event on a stream beside the log, appended by whoever asks
// first.
func (s *Store) Epoch(ctx context.Context) (string, error) {
	ctx, cancel := s.within(ctx)
	defer cancel()
	var epoch string
	err := s.retryTransient(ctx, func(ctx context.Context) error {
		begun, err := s.page(ctx, epochStream, client.Forwards, client.Start{}, 1)
		if err != nil {
			return err
		}
		if len(begun) == 0 {
			if err := s.begin(ctx); err != nil && !wrongExpected(err) {
				return err
			}
			return errMoved // it is there now: read it
		}
		epoch = begun[0].ID.String()
		return nil
	})
	return epoch, err
}

// begin appends the event that identifies the log.
func (s *Store) begin(ctx context.Context) error {
	id := ulid.Make()
	_, err := ask(ctx, s.conn, func(ctx context.Context, c *client.Client) (*client.WriteResult, error) {
		return c.AppendToStream(onLeader(ctx), s.name(epochStream), client.AppendToStreamOptions{ExpectedRevision: client.NoStream{}},
			client.EventData{
				EventID: uuid.UUID(id), EventType: "leadlog.epoch.v1", ContentType: client.ContentTypeJson, Data: []byte(`{}`),
				Metadata: fmt.Appendf(nil, `{"at":%q}`, ulid.Time(id.Time()).UTC().Format(time.RFC3339Nano)),
			})
	})
	return err
}
