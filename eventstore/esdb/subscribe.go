package esdb

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	client "github.com/EventStore/EventStore-Client-Go/v4/esdb"

	"github.com/leadlog/leadlog/eventstore"
)

const (
	// searchWindow is how many events the server looks through before it tells how far it got.
	searchWindow = 500

	// lookPage is how many events of $all a subscription reads at a time when it looks for itself.
	lookPage = 1000
)

// Subscribe implements eventstore.Store. It goes on by itself after a lost connection, and ends with ErrUnavailable
// when that lasts.
func (s *Store) Subscribe(ctx context.Context, after eventstore.Position, filter eventstore.Filter) iter.Seq2[eventstore.Item, error] {
	return func(yield func(eventstore.Item, error) bool) {
		within, cancel := s.within(ctx)
		defer cancel()
		sub := subscription{store: s, filter: filter, wanted: s.wanted(filter), read: after, told: after, yield: yield}
		if err := sub.run(within); err != nil {
			if ended := ctx.Err(); ended != nil {
				err = ended
			}
			yield(eventstore.Item{}, err)
		}
	}
}

// subscription follows $all.
//
// It trusts the server's order of events, but not its checkpoints as they come. Servers have sent such that lay at the
// end of the log, where the next event was about to stand (KurrentDB, pull requests 4023 and 4990), and while nothing
// matches they send one in hundreds of events only. So a checkpoint counts when something other than the event at its
// place follows it, and what nobody told is looked up: when a subscription hears nothing for a while, when it has
// caught up, and before the first event after that, it reads $all from where it is.
type subscription struct {
	store  *Store
	filter eventstore.Filter
	wanted func(*client.RecordedEvent) bool
	yield  func(eventstore.Item, error) bool

	read eventstore.Position // everything up to here is yielded or not wanted
	told eventstore.Position // the newest item's
	head eventstore.Position // some event of this log is known to stand here
	seen eventstore.Position // read was here when the head was last asked for
	held eventstore.Position // a checkpoint that is not proven yet; 0 for none
	join bool                // the server has gone over from reading to following, and no event has come since
}

// errStopped says that the consumer stopped.
var errStopped = errors.New("the consumer stopped")

// run returns nil when the consumer stops.
func (s *subscription) run(ctx context.Context) error {
	for retry := s.store.retrying(); ; {
		before := s.read
		err := s.follow(ctx)
		if errors.Is(err, errStopped) {
			return nil
		}
		if s.read > before {
			retry.reset()
		}
		if err := retry.pause(ctx, err); err != nil {
			return err
		}
	}
}

// follow goes on from where the log was read until something fails.
func (s *subscription) follow(ctx context.Context) error {
	f, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer f.stop()
	s.held, s.join = 0, false
	quiet := time.NewTimer(s.store.poll)
	defer quiet.Stop()
	for {
		select {
		case m := <-f.messages:
			if err := s.take(ctx, m); err != nil {
				return err
			}
			continue
		default:
		}
		if err := s.tell(ctx); err != nil {
			return err
		}
		quiet.Reset(s.store.poll)
		select {
		case m := <-f.messages:
			err = s.take(ctx, m)
		case <-quiet.C:
			err = s.look(ctx, 0)
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if err != nil {
			return err
		}
	}
}

func (s *subscription) open(ctx context.Context) (*flow, error) {
	ctx, stop, opened := s.store.opening(ctx)
	if s.store.leader {
		ctx = onLeader(ctx)
	}
	options := client.SubscribeToAllOptions{
		From: s.from(), Filter: s.store.serverFilter(s.filter), MaxSearchWindow: searchWindow, CheckpointInterval: 1,
	}
	server, v, err := hold(ctx, s.store.conn, closeSubscription, func(ctx context.Context, c *client.Client) (*client.Subscription, error) {
		return c.SubscribeToAll(ctx, options)
	})
	opened()
	if err != nil {
		stop()
		return nil, err
	}
	return start(ctx, stop, v, func() message { return s.receive(server) }, func() { closeSubscription(server) }), nil
}

func closeSubscription(server *client.Subscription) {
	_ = server.Close() // always nil
}

// from is where to go on. It is never nil, which would mean the end.
func (s *subscription) from() client.AllPosition {
	if s.read == 0 {
		return client.Start{}
	}
	return client.Position{Commit: uint64(s.read), Prepare: uint64(s.read)}
}

func (s *subscription) receive(server *client.Subscription) message {
	switch e := server.Recv(); {
	case e.EventAppeared != nil:
		return s.store.received(e.EventAppeared, s.wanted)
	case e.CheckPointReached != nil:
		return message{position: eventstore.Position(e.CheckPointReached.Commit), checkpoint: true}
	case e.CaughtUp != nil:
		return message{caughtUp: true}
	case e.SubscriptionDropped != nil:
		return message{err: fmt.Errorf("subscription dropped: %w", e.SubscriptionDropped.Error)}
	}
	return message{} // fell behind: it reads again, and will tell when it has caught up
}

// take handles what the server sent.
func (s *subscription) take(ctx context.Context, m message) error {
	switch {
	case m.err != nil:
		return m.err
	case m.caughtUp:
		s.held, s.join = 0, true
		return s.look(ctx, 0)
	case m.checkpoint:
		proven := s.held
		if s.held = m.position; proven > s.read && proven < m.position {
			s.read = proven
		}
		return nil
	case m.position == 0:
		return nil
	}
	s.held = 0
	if s.join {
		s.join = false
		if err := s.look(ctx, m.position); err != nil {
			return err
		}
	}
	return s.event(ctx, m)
}

// event yields an event, or counts one that is not wanted as read. What was read before is left out.
func (s *subscription) event(ctx context.Context, m message) error {
	if m.position <= s.read {
		return nil
	}
	s.read = m.position
	if m.own {
		s.head = m.position
	}
	if m.event == nil {
		if s.read-s.told > tellAfter {
			return s.tell(ctx)
		}
		return nil
	}
	s.told = m.position
	if !s.yield(eventstore.Item{Event: m.event, Position: m.position}, nil) {
		return errStopped
	}
	return nil
}

// tellAfter is how far, in bytes of log, a subscription reads past unwanted events before it says so.
const tellAfter = 1 << 20

// tell yields a progress mark if there was progress. What the server writes for itself behind the log's head is none:
// a mark beyond the head would be taken for one of another log.
func (s *subscription) tell(ctx context.Context) error {
	if s.read > max(s.head, s.seen) {
		head, err := s.store.Head(ctx)
		if err != nil {
			return err
		}
		s.head, s.seen = head, s.read
	}
	progress := min(s.read, s.head)
	if progress <= s.told {
		return nil
	}
	s.told = progress
	if !s.yield(eventstore.Item{Position: progress}, nil) {
		return errStopped
	}
	return nil
}

// look reads $all from where the log was read, a page, and more as long as until is not reached.
func (s *subscription) look(ctx context.Context, until eventstore.Position) error {
	for {
		n, err := s.lookOnce(ctx)
		if err != nil {
			return err
		}
		if n < lookPage || s.read >= until {
			return s.tell(ctx)
		}
	}
}

// lookOnce reads one page and tells how many events it had.
func (s *subscription) lookOnce(ctx context.Context) (n int, err error) {
	f, err := s.store.readFlow(ctx, func(ctx context.Context, c *client.Client) (*client.ReadStream, error) {
		if s.store.leader {
			ctx = onLeader(ctx)
		}
		return c.ReadAll(ctx, client.ReadAllOptions{Direction: client.Forwards, From: s.from()}, lookPage)
	}, s.wanted)
	if err != nil {
		return 0, err
	}
	defer f.stop()
	for {
		m := f.next(ctx)
		if finished(m.err) {
			return n, nil
		}
		if m.err != nil {
			return n, m.err
		}
		n++
		if err := s.event(ctx, m); err != nil {
			return n, err
		}
	}
}
