package storetest

import (
	"context"
	"iter"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
)

// often is more than the size of any pool: what is not given back runs out.
const often = 50

// longest is how long the rounds of a law may take together. On a store whose every round waits for a server, fewer are made.
const longest = 10 * time.Second

// rounds counts to n, and ends early when the time is over.
func rounds(n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		begun := time.Now()
		for i := range n {
			if !yield(i) || time.Since(begun) > longest {
				return
			}
		}
	}
}

func interruptionLaws() []law {
	return []law{
		{"with a cancelled context every method says so", func(t *testing.T, l log) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			stream, events := l.grow(t, 1)

			_, err := l.Append(ctx, write(stream, eventstore.At(0), newEvent(noted)))
			require.ErrorIs(t, err, context.Canceled)
			_, err = collect(ctx, l, stream, 0)
			require.ErrorIs(t, err, context.Canceled)
			_, err = tail(ctx, l, 0, everything, func(eventstore.Item) bool { return false })
			require.ErrorIs(t, err, context.Canceled)
			_, err = l.Head(ctx)
			require.ErrorIs(t, err, context.Canceled)

			requireEvents(t, events, l.read(t, stream, 0)[:1])
		}},
		{"an append that was cut off and is sent again happens once", func(t *testing.T, l log) {
			for range rounds(often) {
				stream, events := newStream(), newEvents(2)
				again := write(stream, eventstore.NoStream, events...)
				if err := cutOff(t.Context(), l, again); err != nil {
					require.Nil(t, eventstore.Conflict(err))
				}
				position := l.append(t, again)
				require.Equal(t, position, l.holds(t, stream, events...)[1].Position)
			}
		}},
		{"an append cut off leaves those of others alone", func(t *testing.T, l log) {
			ctx, cancel := context.WithCancel(t.Context())
			answers := make(chan []answer)
			go func() {
				defer cancel()
				answers <- simultaneously(ctx, l, racers, func(int) []eventstore.Write {
					return []eventstore.Write{write(newStream(), eventstore.NoStream, newEvent(noted))}
				})
			}()
			for i := range often {
				l.grow(t, 1)
				if i == 0 {
					cancel()
				}
			}
			for _, a := range <-answers {
				position := l.append(t, a.writes...)
				if a.err == nil {
					require.Equal(t, position, a.position)
				}
				l.holds(t, a.writes[0].Stream, a.writes[0].Events...)
			}
		}},
		{"a subscription whose context ends says so and ends", func(t *testing.T, l log) {
			stream, _ := l.grow(t, 3)
			ctx, cancel := context.WithCancel(l.context(t))
			defer cancel()
			var ended error
			for item, err := range l.Subscribe(ctx, 0, eventstore.Filter{StreamPrefixes: []string{stream}}) {
				require.NoError(t, ended, "something came after the error")
				ended = err
				if item.Event != nil && item.Event.Revision == 2 {
					cancel()
				}
			}
			require.ErrorIs(t, ended, context.Canceled)
		}},
		{"a read whose context ends is never silently short", func(t *testing.T, l log) {
			const n = 3000
			stream, _ := l.grow(t, n)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			count := 0
			var ended error
			for _, err := range l.Read(ctx, stream, 0) {
				if ended = err; err == nil {
					count++
				}
				cancel()
			}
			if ended != nil {
				require.ErrorIs(t, ended, context.Canceled)
			} else {
				require.Equal(t, n, count)
			}
		}},
		{"a reader that stops early gives back what it held", func(t *testing.T, l log) {
			stream, _ := l.grow(t, 100)
			for range often {
				for r, err := range l.Read(l.context(t), stream, 10) {
					require.NoError(t, err)
					require.Equal(t, eventstore.Revision(10), r.Revision)
					break
				}
			}
			require.Len(t, l.read(t, stream, 0), 100)
		}},
		{"a subscriber that stops early gives back what it held", func(t *testing.T, l log) {
			stream, _ := l.grow(t, 100)
			filter := eventstore.Filter{StreamPrefixes: []string{stream}}
			for range rounds(often) {
				for item, err := range l.Subscribe(l.context(t), 0, filter) {
					require.NoError(t, err)
					if item.Event != nil {
						require.Equal(t, eventstore.Revision(0), item.Event.Revision)
						break
					}
				}
			}
			require.Len(t, l.follow(t, 0, filter, l.head(t)), 100)
		}},
		{"a consumer may use the store while it reads and follows", func(t *testing.T, l log) {
			stream, events := l.grow(t, 5)
			filter := eventstore.Filter{StreamPrefixes: []string{stream}}
			for r, err := range l.Read(l.context(t), stream, 0) {
				require.NoError(t, err)
				requireEvents(t, events[r.Revision:], l.read(t, stream, r.Revision))
				if r.Revision == 4 {
					break
				}
			}
			_, err := tail(l.context(t), l, 0, filter, func(item eventstore.Item) bool {
				if item.Event == nil {
					return false
				}
				l.grow(t, 1)
				l.holds(t, stream, events...)
				return item.Event.Revision == 4
			})
			require.NoError(t, err)
		}},
	}
}

// cutOff appends and, at the same time, cancels.
func cutOff(ctx context.Context, store eventstore.Store, writes ...eventstore.Write) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go cancel()
	_, err := store.Append(ctx, writes...)
	return err
}
