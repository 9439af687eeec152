package esdb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	client "github.com/EventStore/EventStore-Client-Go/v4/esdb"

	"github.com/leadlog/leadlog/eventstore"
)

const (
	// readAhead is how many events wait decoded while the consumer works: 64 MiB at most, since an append has 1 MiB at most.
	readAhead = 64

	// answerTime is how long a read may wait for its next event. Without it a server that hangs would hold it for good.
	answerTime = 15 * time.Second

	// everything is a count that no read reaches.
	everything = math.MaxInt64
)

// message is what a flow carries: a record of ours, the position of one that is not wanted, a checkpoint, word that
// the end was reached for now, or the error that ends the flow, io.EOF among them.
type message struct {
	record     *record
	own        bool                // the event is of this log, wanted or not
	position   eventstore.Position // of the event, wanted or not, or of the checkpoint
	checkpoint bool
	caughtUp   bool
	err        error
}

// flow reads ahead from a read or a subscription.
type flow struct {
	messages chan message
	stop     context.CancelFunc
}

// start pumps until an error, which it passes on, or until the flow is stopped.
func start(ctx context.Context, stop context.CancelFunc, v *visit, receive func() message, closeSource func()) *flow {
	f := &flow{messages: make(chan message, readAhead), stop: stop}
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

// finished tells that a read came to its end.
func finished(err error) bool {
	return missing(err) || errors.Is(err, io.EOF) && grpcStatus(err) == nil
}

// safely receives. The library panics over messages that it does not know, and when its client was closed meanwhile.
func safely(receive func() message) (m message) {
	defer func() {
		if broken := recover(); broken != nil {
			m = message{err: fmt.Errorf("%w: %v", errLost, broken)}
		}
	}()
	return receive()
}

// next waits for a message, for no longer than answerTime.
func (f *flow) next(ctx context.Context) message {
	select {
	case m := <-f.messages:
		return m
	default:
	}
	late := time.NewTimer(answerTime)
	defer late.Stop()
	select {
	case m := <-f.messages:
		return m
	case <-late.C:
		return message{err: fmt.Errorf("no event within %v: %w", answerTime, context.DeadlineExceeded)}
	case <-ctx.Done():
		return message{err: context.Cause(ctx)}
	}
}

// opener begins a read in the client.
type opener = func(context.Context, *client.Client) (*client.ReadStream, error)

// opening is the context of what is being opened: ended by stop, and by itself when it is not opened in time.
func (s *Store) opening(ctx context.Context) (_ context.Context, stop context.CancelFunc, opened func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(s.patience, func() { cancel(errLate) })
	return ctx, func() { cancel(nil) }, func() { late.Stop() }
}

// errLate says that a connection was not there in time.
var errLate = fmt.Errorf("no connection in time: %w", context.DeadlineExceeded)

// readFlow begins a read. Events that wanted refuses are passed on as positions only.
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
	m := message{position: eventstore.Position(r.Position.Commit), own: s.own(r)}
	if wanted(r) {
		m.record, m.err = s.decode(r)
	}
	return m
}

// readStream opens a read of a stream, of any of which the leader has the newest.
func (s *Store) readStream(stream string, direction client.Direction, from client.StreamPosition, count uint64) opener {
	return func(ctx context.Context, c *client.Client) (*client.ReadStream, error) {
		return c.ReadStream(onLeader(ctx), s.name(stream), client.ReadStreamOptions{Direction: direction, From: from}, count)
	}
}

// all wants every event: in a stream of ours each is one of ours.
func all(*client.RecordedEvent) bool { return true }

// page reads a few records of a stream; none when there is no such stream.
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
