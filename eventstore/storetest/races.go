package storetest

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/leadlog/leadlog/eventstore"
)

const racers = 32

func raceLaws() []law {
	return []law{
		{"of many that begin a stream exactly one does", func(t *testing.T, l log) {
			stream := newStream()
			won := l.race(t, eventstore.ConflictError{Stream: stream, Expected: eventstore.NoStream, Actual: eventstore.At(0)},
				func(e eventstore.Event) []eventstore.Write {
					return []eventstore.Write{write(stream, eventstore.NoStream, e)}
				})
			l.holds(t, stream, won)
		}},
		{"of many that go on at a revision exactly one does", func(t *testing.T, l log) {
			stream, events := l.grow(t, 3)
			won := l.race(t, eventstore.ConflictError{Stream: stream, Expected: eventstore.At(2), Actual: eventstore.At(3)},
				func(e eventstore.Event) []eventstore.Write {
					return []eventstore.Write{write(stream, eventstore.At(2), e)}
				})
			l.holds(t, stream, append(events, won)...)
		}},
		{"many that expect nothing all go on", func(t *testing.T, l log) {
			stream := newStream()
			answers := simultaneously(l.context(t), l, racers, func(int) []eventstore.Write {
				return []eventstore.Write{write(stream, eventstore.Any, newEvents(2)...)}
			})
			for _, a := range answers {
				require.NoError(t, a.err)
			}
			recorded := l.holds(t, stream, l.events(t, stream)...)
			require.Len(t, recorded, 2*racers)
			for _, a := range answers {
				requireAt(t, a, recorded)
			}
		}},
		{"one append sent many times at once is one append", func(t *testing.T, l log) {
			one, two, events := newStream(), newStream(), newEvents(3)
			answers := simultaneously(l.context(t), l, racers, func(int) []eventstore.Write {
				return []eventstore.Write{
					write(one, eventstore.NoStream, events[0]),
					write(two, eventstore.NoStream, events[1:]...),
				}
			})
			l.holds(t, one, events[0])
			position := l.holds(t, two, events[1:]...)[1].Position
			for _, a := range answers {
				require.NoError(t, a.err)
				require.Equal(t, position, a.position)
			}
		}},
		{"many checks of one stream do not stand in each other's way", func(t *testing.T, l log) {
			watched, _ := l.grow(t, 1)
			for _, a := range simultaneously(l.context(t), l, racers, func(int) []eventstore.Write {
				return []eventstore.Write{
					eventstore.Check(watched, eventstore.At(0)),
					write(newStream(), eventstore.NoStream, newEvents(1)...),
				}
			}) {
				require.NoError(t, a.err)
			}
		}},
		{"nothing that checked a stream is stored after what moved it", checksAgainstMove},
		{"of two that each check what the other writes one goes through", noWriteSkew},
	}
}

// answer is what became of an append.
type answer struct {
	writes   []eventstore.Write
	position eventstore.Position
	err      error
}

// simultaneously sends n appends at once and waits for their answers.
func simultaneously(ctx context.Context, store eventstore.Store, n int, writes func(i int) []eventstore.Write) []answer {
	answers := make([]answer, n)
	start := make(chan struct{})
	var group sync.WaitGroup
	for i := range n {
		answers[i].writes = writes(i)
		group.Go(func() {
			<-start
			answers[i].position, answers[i].err = store.Append(ctx, answers[i].writes...)
		})
	}
	close(start)
	group.Wait()
	return answers
}

// race sends many appends of one event each, of which one must win, and returns the event that did.
func (l log) race(t *testing.T, conflict eventstore.ConflictError, writes func(eventstore.Event) []eventstore.Write) eventstore.Event {
	t.Helper()
	var won []eventstore.Event
	for _, a := range simultaneously(l.context(t), l, racers, func(int) []eventstore.Write { return writes(newEvent(noted)) }) {
		if a.err == nil {
			won = append(won, a.writes[0].Events...)
			continue
		}
		requireConflict(t, conflict, a.err)
	}
	require.Len(t, won, 1)
	return won[0]
}

// requireAt says that an append's answer is the position at which its last event stands.
func requireAt(t *testing.T, a answer, recorded []eventstore.Recorded) {
	t.Helper()
	events := a.writes[len(a.writes)-1].Events
	for _, r := range recorded {
		if r.ID == events[len(events)-1].ID {
			require.Equal(t, r.Position, a.position)
			return
		}
	}
	t.Errorf("the event of an accepted append is not there")
}

// checksAgainstMove races captures, which check a token, against its rotation: all that get through come before it.
// Each captures until it is refused, so that some are on their way at every moment of the rotation.
func checksAgainstMove(t *testing.T, l log) {
	for range 60 {
		watched, _ := l.grow(t, 1)
		var newest [racers]eventstore.Position
		var captures errgroup.Group
		for i := range newest {
			captures.Go(func() (err error) {
				newest[i], err = captureUntilRefused(l.context(t), l, eventstore.Check(watched, eventstore.At(0)))
				return err
			})
		}
		moved := l.append(t, write(watched, eventstore.At(0), newEvent(noted)))
		require.NoError(t, captures.Wait())
		for _, position := range newest {
			require.Less(t, position, moved)
		}
	}
}

// captureUntilRefused begins stream after stream under a check, and returns the last position it was given.
func captureUntilRefused(ctx context.Context, store eventstore.Store, check eventstore.Write) (eventstore.Position, error) {
	var newest eventstore.Position
	for {
		stream := newStream()
		position, err := store.Append(ctx, write(stream, eventstore.NoStream, newEvent(noted)), check)
		switch conflict := eventstore.Conflict(err); {
		case err == nil:
			newest = position
		case conflict == nil || *conflict != eventstore.ConflictError{Stream: check.Stream, Expected: check.Expect, Actual: check.Expect + 1}:
			return newest, err
		default:
			refused, err := collect(ctx, store, stream, 0)
			if err == nil && len(refused) > 0 {
				err = fmt.Errorf("the refused append on %s stands at %d", stream, refused[0].Position)
			}
			return newest, err
		}
	}
}

func noWriteSkew(t *testing.T, l log) {
	const pairs = 16
	var streams [pairs][2]string
	for i := range streams {
		streams[i] = [2]string{newStream(), newStream()}
	}
	answers := simultaneously(l.context(t), l, 2*pairs, func(i int) []eventstore.Write {
		mine, other := streams[i/2][i%2], streams[i/2][1-i%2]
		return []eventstore.Write{
			eventstore.Check(other, eventstore.NoStream),
			write(mine, eventstore.NoStream, newEvent(noted)),
		}
	})
	for i := range pairs {
		a, b := answers[2*i], answers[2*i+1]
		if a.err != nil {
			a, b = b, a
		}
		require.NoError(t, a.err)
		requireConflict(t, eventstore.ConflictError{
			Stream: a.writes[1].Stream, Expected: eventstore.NoStream, Actual: eventstore.At(0),
		}, b.err)
	}
}
