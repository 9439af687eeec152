package esdb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	client "github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/eventstore"
)

// Atomic implements eventstore.Store: writes are applied one after another.
func (s *Store) Atomic() bool { return false }

// Append implements eventstore.Store: first the checks, at the same time, then the writes one after the other. Whether a write
// happened is never guessed: after a lost connection it is sent again, and recognised by its ids if it had happened.
func (s *Store) Append(ctx context.Context, writes ...eventstore.Write) (eventstore.Position, error) {
	if err := eventstore.Validate(writes); err != nil {
		return 0, err
	}
	if err := validateNames(writes); err != nil {
		return 0, err
	}
	var checks []eventstore.Write
	var bodies []body
	for _, w := range writes {
		if len(w.Events) == 0 {
			checks = append(checks, w)
			continue
		}
		proposed, err := proposals(w)
		if err != nil {
			return 0, err
		}
		bodies = append(bodies, body{Write: w, proposed: proposed})
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
	if ctx.Err() != nil {
		return 0, outcome(ctx, context.Cause(ctx))
	}
	return s.append(ctx, checks, bodies)
}

// body is a write with its events as they are sent.
type body struct {
	eventstore.Write
	proposed []client.EventData
}

func (s *Store) append(ctx context.Context, checks []eventstore.Write, bodies []body) (eventstore.Position, error) {
	if err := s.check(ctx, checks); err != nil {
		if eventstore.Conflict(err) == nil || len(bodies) == 0 {
			return 0, err
		}
		// The same append may have gone through before what it checked moved.
		position, there, lookErr := s.allStand(ctx, bodies)
		if lookErr != nil {
			return 0, lookErr
		}
		if there {
			return position, nil
		}
		return 0, err
	}
	if len(bodies) == 0 {
		return s.Head(ctx)
	}
	var position eventstore.Position
	for _, b := range bodies {
		err := s.patiently(ctx, func(ctx context.Context) (err error) {
			position, err = s.put(ctx, b)
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	return position, nil
}

// check reads the ends of the streams at the same time, and reports the first that is not as expected.
func (s *Store) check(ctx context.Context, checks []eventstore.Write) error {
	failures := make([]error, len(checks))
	var reading sync.WaitGroup
	for i, c := range checks {
		if c.Expect == eventstore.Any {
			continue
		}
		reading.Go(func() {
			failures[i] = s.patiently(ctx, func(ctx context.Context) error {
				actual, err := s.end(ctx, c.Stream)
				if err == nil && actual != c.Expect {
					err = &eventstore.ConflictError{Stream: c.Stream, Expected: c.Expect, Actual: actual}
				}
				return err
			})
		})
	}
	reading.Wait()
	for _, err := range failures {
		if err != nil {
			return err
		}
	}
	return nil
}

// allStand reports whether every write is on the log, and the position of the last event.
func (s *Store) allStand(ctx context.Context, bodies []body) (position eventstore.Position, there bool, err error) {
	for _, b := range bodies {
		err := s.patiently(ctx, func(ctx context.Context) (err error) {
			position, there, err = s.stands(ctx, b)
			return err
		})
		if err != nil || !there {
			return 0, false, err
		}
	}
	return position, true, nil
}

// put makes one attempt to append to one stream.
func (s *Store) put(ctx context.Context, b body) (eventstore.Position, error) {
	if b.Expect == eventstore.Any {
		// The server remembers only the newest ids it has seen, and none from before its start.
		if position, there, err := s.stands(ctx, b); there || err != nil {
			return position, err
		}
	}
	result, err := s.send(ctx, b)
	switch {
	case wrongExpected(err):
		return s.conflict(ctx, b)
	case err != nil:
		return 0, tooLarge(err)
	case result.CommitPosition != 0 && len(b.Events) == 1:
		return eventstore.Position(result.CommitPosition), nil
	}
	// The position of a write of several events is that of the write, which need not be that of its last event. And an
	// answer that the library does not understand comes as a success at position 0.
	position, there, err := s.stands(ctx, b)
	if err == nil && !there {
		err = fmt.Errorf("%w: what was accepted on stream %s is not there", errMoved, b.Stream)
	}
	return position, err
}

// send appends in the client. A caller that gives up leaves the call running until its own timeout: if it were cancelled while it
// sends, the library would read memory that gRPC is still writing.
func (s *Store) send(ctx context.Context, b body) (*client.WriteResult, error) {
	return ask(ctx, s.conn, func(ctx context.Context, c *client.Client) (*client.WriteResult, error) {
		limit := s.patience / 2
		return c.AppendToStream(onLeader(context.WithoutCancel(ctx)), s.name(b.Stream),
			client.AppendToStreamOptions{ExpectedRevision: expected(b.Expect), Deadline: &limit}, b.proposed...)
	})
}

func expected(e eventstore.Expected) client.ExpectedRevision {
	switch e {
	case eventstore.Any:
		return client.Any{}
	case eventstore.NoStream:
		return client.NoStream{}
	}
	return client.Revision(uint64(e))
}

// conflict finds out what a refusal means: the events are there already, or the stream is not as expected, or it has become as
// expected since, and another attempt must be made.
func (s *Store) conflict(ctx context.Context, b body) (eventstore.Position, error) {
	if position, there, err := s.stands(ctx, b); there || err != nil {
		return position, err
	}
	actual, err := s.end(ctx, b.Stream)
	if err != nil {
		return 0, err
	}
	if actual == b.Expect {
		return 0, errMoved
	}
	return 0, &eventstore.ConflictError{Stream: b.Stream, Expected: b.Expect, Actual: actual}
}

// errMoved says that a stream was not as expected when it was written and is now.
var errMoved = errors.New("the stream moved meanwhile")

// stands reports whether a write is at its place already, and the position of its last event.
func (s *Store) stands(ctx context.Context, b body) (eventstore.Position, bool, error) {
	if b.Expect == eventstore.Any {
		return s.standsAnywhere(ctx, b.Write)
	}
	count := uint64(len(b.Events))
	there, err := s.page(ctx, b.Stream, client.Forwards, client.Revision(uint64(b.Expect+1)), count)
	if err != nil || !same(there, b.Events) {
		return 0, false, err
	}
	return there[len(there)-1].Position, true, nil
}

func same(there []*eventstore.Recorded, events []eventstore.Event) bool {
	return slices.EqualFunc(there, events, func(r *eventstore.Recorded, e eventstore.Event) bool { return r.ID == e.ID })
}

const (
	// skew is how far clocks may differ: an event that happened this much before another was made cannot follow it.
	skew = 10 * time.Minute

	// farthest is how many events of a stream are looked through for an append that expects nothing.
	farthest = 10_000

	// nearest is how many of them are looked at first.
	nearest = 64
)

// standsAnywhere looks backwards through a stream for a write that has no place of its own. An id tells when its
// event was made: what was recorded well before that ends the search.
func (s *Store) standsAnywhere(ctx context.Context, w eventstore.Write) (eventstore.Position, bool, error) {
	made := ulid.Time(w.Events[0].ID.Time()).Add(-skew)
	var later []*eventstore.Recorded // from the newest backwards
	var from client.StreamPosition = client.End{}
	for count := uint64(nearest); len(later) < farthest; count = min(4*count, 4096) {
		older, err := s.page(ctx, w.Stream, client.Backwards, from, count)
		if err != nil {
			return 0, false, err
		}
		later = append(later, older...)
		if position, there := among(later, w.Events); there {
			return position, true, nil
		}
		if len(older) < int(count) {
			return 0, false, nil
		}
		oldest := older[len(older)-1]
		recent := func(r *eventstore.Recorded) bool { return !ulid.Time(r.ID.Time()).Before(made) }
		if oldest.Revision == 0 || !slices.ContainsFunc(older, recent) {
			return 0, false, nil
		}
		from = client.Revision(uint64(oldest.Revision - 1))
	}
	return 0, false, nil
}

// among looks for events in their order in what was read backwards.
func among(backwards []*eventstore.Recorded, events []eventstore.Event) (eventstore.Position, bool) {
	first := slices.IndexFunc(backwards, func(r *eventstore.Recorded) bool { return r.ID == events[0].ID })
	if first < 0 || first+1 < len(events) {
		return 0, false
	}
	for i, e := range events {
		if backwards[first-i].ID != e.ID {
			return 0, false
		}
	}
	return backwards[first-len(events)+1].Position, true
}
