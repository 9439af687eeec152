package esdb

import (
	"context"
	"errors"
	"iter"

	"github.com/leadlog/leadlog/eventstore"
)

// Subscribe implements eventstore.Store. It reads by itself up to the end of the log, and from there on shares the process's
// follower. It goes on by itself after a lost connection, and ends with ErrUnavailable when that lasts.
func (s *Store) Subscribe(ctx context.Context, after eventstore.Position, filter eventstore.Filter) iter.Seq2[eventstore.Item, error] {
	return func(yield func(eventstore.Item, error) bool) {
		within, cancel := s.within(ctx)
		defer cancel()
		sub := &subscription{filter: filter, at: after, yield: yield}
		if err := sub.run(within, s); !errors.Is(err, errStopped) {
			if ended := ctx.Err(); ended != nil {
				err = ended
			}
			yield(eventstore.Item{}, err)
		}
	}
}

// subscription is one subscriber's place on the log.
type subscription struct {
	filter eventstore.Filter
	at     eventstore.Position // the newest item's
	yield  func(eventstore.Item, error) bool
}

// errStopped says that the consumer stopped.
var errStopped = errors.New("the consumer stopped")

// run returns why the subscription ended, which is always an error.
func (s *subscription) run(ctx context.Context, store *Store) error {
	for {
		catchUp := store.newReader(s.at, s, true)
		if err := catchUp.run(ctx); err != nil {
			return err
		}
		if err := store.attend(ctx, s, catchUp.read); err != nil {
			return err
		}
	}
}

// events yields the events of an append that the filter selects.
func (s *subscription) events(records []*record) error {
	for _, r := range records {
		if r.Position <= s.at || !s.filter.Matches(r.Stream, r.Type) {
			continue
		}
		s.at = r.Position
		event := r.Recorded // a copy, since subscriptions share the record
		if !s.yield(eventstore.Item{Event: &event, Position: s.at}, nil) {
			return errStopped
		}
	}
	return nil
}

// progress yields a mark that the log was read up to a position.
func (s *subscription) progress(to eventstore.Position) error {
	if to <= s.at {
		return nil
	}
	s.at = to
	if !s.yield(eventstore.Item{Position: to}, nil) {
		return errStopped
	}
	return nil
}
