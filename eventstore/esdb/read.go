package esdb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	client "github.com/EventStore/EventStore-Client-Go/v4/esdb"

	"github.com/leadlog/leadlog/eventstore"
)

// Read implements eventstore.Store. It reads ahead of the consumer, and resumes after a lost connection.
func (s *Store) Read(
	ctx context.Context, stream string, from eventstore.Revision,
) iter.Seq2[eventstore.Recorded, error] {
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

// readOn yields a stream's events from a revision on and returns the next revision to read. The error is nil at the
// stream's end and when the consumer stops.
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
		events, commit, err := records.resolve(ctx, m.record)
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
	err = s.attempts(ctx, eventTimeout, func(ctx context.Context) error {
		_, err := s.backwards(ctx, stream, tailPage, func(r *record) bool {
			last = r.Recorded
			return false
		})
		return err
	})
	return last, err
}

// Head implements eventstore.Store. It reads $all backwards to the newest event of this log, or to where the last call
// started.
func (s *Store) Head(ctx context.Context) (eventstore.Position, error) {
	ctx, cancel := s.within(ctx)
	defer cancel()
	var head eventstore.Position
	err := s.attempts(ctx, eventTimeout, func(ctx context.Context) (err error) {
		head, err = s.newest(ctx)
		return err
	})
	return head, err
}

// heads caches the result of Head.
type heads struct {
	mu     sync.Mutex
	newest eventstore.Position
	seen   eventstore.Position // no event of this log is between newest and this position
}

func (h *heads) known() (newest, seen eventstore.Position) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.newest, h.seen
}

func (h *heads) found(newest, seen eventstore.Position) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if seen > h.seen {
		h.newest, h.seen = newest, seen
	}
}

// newest searches $all backwards for the newest event of this log. Every read ends by itself: servers reset the streams
// of a connection on which many reads are cut off.
func (s *Store) newest(ctx context.Context) (head eventstore.Position, err error) {
	known, seen := s.heads.known()
	var from client.AllPosition = client.End{}
	var end eventstore.Position
	// Usually the newest record is an event, and one record is enough.
	for count := uint64(1); ; count = min(64*count, 4096) {
		read, found, last := uint64(0), false, eventstore.Position(0)
		err := s.backwardsFrom(ctx, from, count, func(m message) error {
			read, last, end = read+1, m.position, max(end, m.position)
			switch {
			case found:
			case m.position == seen:
				head, found = known, true
			case errors.Is(m.err, errForeign):
				head, found = m.position, true
			case m.record != nil && !m.record.provisional() && m.record.more == 0:
				// Only the commit record of a valid append counts.
				ok, err := s.valid(ctx, m.record)
				if err != nil {
					return err
				}
				if ok {
					head, found = m.position, true
				}
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
		if found || read < count {
			s.heads.found(head, end)
			return head, nil
		}
		from = at(last)
	}
}

// backwardsFrom reads a page of $all. The last message may have errForeign.
func (s *Store) backwardsFrom(
	ctx context.Context, from client.AllPosition, count uint64, yield func(message) error,
) error {
	f, err := s.readFlow(ctx, func(ctx context.Context, c *link) (*client.ReadStream, error) {
		return c.ReadAll(onLeader(ctx), client.ReadAllOptions{Direction: client.Backwards, From: from}, count)
	}, s.isOfLog)
	if err != nil {
		return err
	}
	defer f.stop()
	for {
		m := f.next(ctx)
		if finished(m.err) {
			return nil
		}
		foreign := errors.Is(m.err, errForeign)
		if m.err != nil && !foreign {
			return ofAll(m.err)
		}
		if err := yield(m); err != nil || foreign { // it is the last message of a flow
			return err
		}
	}
}

const (
	// readAhead is how many decoded events are buffered for the consumer: at most 64 MiB, since an append has at most 1
	// MiB.
	readAhead = 64

	// eventTimeout is how long a read waits for its next event before the server counts as hanging.
	eventTimeout = 15 * time.Second

	// everything is a count that no read reaches.
	everything = math.MaxInt64
)

// message is an item of a flow: a record, the position of a record that was filtered out, a checkpoint, the notice that
// the subscription has caught up, or the error that ends the flow, such as io.EOF.
type message struct {
	record     *record
	own        bool                // the record is of this log
	position   eventstore.Position // of the record or the checkpoint
	checkpoint bool
	caughtUp   bool
	err        error
}

// flow buffers what a read or a subscription receives.
type flow struct {
	messages chan message
	stop     context.CancelFunc
	silent   <-chan struct{} // closed when the node does not answer and another leads
	suspect  func()          // asks whether another node leads
}

// start receives in a goroutine until an error, which is the flow's last message, or until the flow is stopped.
func start(ctx context.Context, stop context.CancelFunc, v *visit, receive func() message, closeSource func()) *flow {
	f := &flow{
		messages: make(chan message, readAhead), stop: stop,
		silent: v.silent, suspect: func() { v.conn.suspect(v.link) },
	}
	go func() {
		var failure error
		defer func() {
			closeSource()
			v.left(failure)
		}()
		for {
			m := safely(receive)
			if m.err != nil && ctx.Err() == nil && !finished(m.err) {
				failure = m.err
			}
			select {
			case f.messages <- m:
			case <-ctx.Done():
				return
			}
			if m.err != nil {
				return
			}
		}
	}()
	return f
}

// finished reports whether an error is the end of a read.
func finished(err error) bool {
	return missing(err) || errors.Is(err, io.EOF) && grpcStatus(err) == nil
}

// safely recovers from panics: the library panics on unknown messages, and when its client was closed.
func safely(receive func() message) (m message) {
	defer func() {
		if broken := recover(); broken != nil {
			m = message{err: fmt.Errorf("%w: %v", errLost, broken)}
		}
	}()
	return receive()
}

// next waits for a message, up to eventTimeout.
func (f *flow) next(ctx context.Context) message {
	select {
	case m := <-f.messages:
		return m
	default:
	}
	late, slow := time.NewTimer(eventTimeout), time.NewTicker(suspectAfter)
	defer late.Stop()
	defer slow.Stop()
	for {
		select {
		case m := <-f.messages:
			return m
		case <-slow.C:
			f.suspect()
		case <-f.silent:
			return message{err: errLost}
		case <-late.C:
			return message{err: fmt.Errorf("no event within %v: %w", eventTimeout, context.DeadlineExceeded)}
		case <-ctx.Done():
			return message{err: context.Cause(ctx)}
		}
	}
}

// opener opens a read.
type opener = func(context.Context, *link) (*client.ReadStream, error)

// opening returns the context of a read or subscription that is being opened. It is cancelled by stop, or if opened is
// not called in time.
func (s *Store) opening(ctx context.Context) (_ context.Context, stop context.CancelFunc, opened func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(s.timeout, func() { cancel(errLate) })
	return ctx, func() { cancel(nil) }, func() { late.Stop() }
}

// errLate is the cause of a context that was cancelled because there was no connection in time.
var errLate = fmt.Errorf("no connection in time: %w", context.DeadlineExceeded)

// readFlow opens a read. For records that wanted rejects, the flow has only the positions.
func (s *Store) readFlow(ctx context.Context, open opener, wanted func(*client.RecordedEvent) bool) (*flow, error) {
	if s.beforeCall != nil {
		if err := s.beforeCall("read"); err != nil {
			return nil, err
		}
	}
	ctx, stop, opened := s.opening(ctx)
	stream, v, err := hold(ctx, s.conn, (*client.ReadStream).Close, open)
	opened()
	if err != nil {
		stop()
		return nil, err
	}
	return start(ctx, stop, v, func() message {
		resolved, err := stream.Recv()
		if err != nil {
			return message{err: err}
		}
		return s.received(resolved, wanted)
	}, stream.Close), nil
}

func (s *Store) received(resolved *client.ResolvedEvent, wanted func(*client.RecordedEvent) bool) message {
	r := resolved.OriginalEvent()
	if r == nil {
		return message{err: errors.New("an answer without an event")}
	}
	m := message{position: eventstore.Position(r.Position.Commit), own: s.isOfLog(r)}
	if wanted(r) {
		m.record, m.err = s.decode(r)
	}
	return m
}

// readStream opens a read of a stream on the leader.
func (s *Store) readStream(stream string, direction client.Direction, from client.StreamPosition, count uint64) opener {
	return func(ctx context.Context, c *link) (*client.ReadStream, error) {
		return c.ReadStream(onLeader(ctx), s.name(stream), client.ReadStreamOptions{
			Direction: direction, From: from,
		}, count)
	}
}

// all accepts every record.
func all(*client.RecordedEvent) bool { return true }

// page reads up to count records of a stream, none if it does not exist.
func (s *Store) page(
	ctx context.Context, stream string, direction client.Direction, from client.StreamPosition, count uint64,
) ([]*record, error) {
	f, err := s.readFlow(ctx, s.readStream(stream, direction, from, count), all)
	if err != nil {
		return nil, err
	}
	defer f.stop()
	var records []*record
	for {
		switch m := f.next(ctx); {
		case m.err == nil:
			records = append(records, m.record)
		case finished(m.err):
			return records, nil
		default:
			return nil, m.err
		}
	}
}
