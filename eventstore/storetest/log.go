package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// noted is the type of events in tests that do not depend on the type.
const noted = "test.noted.v1"

// newStream returns the name of a new stream.
func newStream() string { return "test-" + ulid.Make().String() }

// newEvent returns a new event of a type.
func newEvent(eventType string) eventstore.Event {
	id := ulid.Make()
	return eventstore.Event{
		ID:       id,
		Type:     eventType,
		At:       time.UnixMilli(int64(id.Time())).UTC(),
		Data:     fmt.Appendf(nil, `{"note":%q}`, id),
		Metadata: event.Metadata{Account: "acme", RequestID: "req-" + id.String()},
	}
}

// newEvents returns n new events.
func newEvents(n int) []eventstore.Event {
	events := make([]eventstore.Event, n)
	for i := range events {
		events[i] = newEvent(noted)
	}
	return events
}

func write(stream string, expect eventstore.Expected, events ...eventstore.Event) eventstore.Write {
	return eventstore.Write{Stream: stream, Expect: expect, Events: events}
}

// Append appends, and fails the test on an error.
func Append(t testing.TB, store eventstore.Store, writes ...eventstore.Write) eventstore.Position {
	t.Helper()
	position, err := store.Append(t.Context(), writes...)
	require.NoError(t, err)
	return position
}

// AppendNext appends events to the end of a stream.
func AppendNext(t testing.TB, store eventstore.Store, stream string, events ...eventstore.Event) {
	t.Helper()
	last, err := store.Last(t.Context(), stream)
	require.NoError(t, err)
	Append(t, store, eventstore.Write{Stream: stream, Expect: eventstore.After(last), Events: events})
}

// Head returns the position of the last event.
func Head(t testing.TB, store eventstore.Store) eventstore.Position {
	t.Helper()
	head, err := store.Head(t.Context())
	require.NoError(t, err)
	return head
}

// Events returns all events that are on a log now.
func Events(t testing.TB, store eventstore.Store, filter eventstore.Filter) (all []eventstore.Recorded) {
	t.Helper()
	for page, err := range eventstore.ReadTo(t.Context(), store, 0, Head(t, store), filter) {
		require.NoError(t, err)
		all = append(all, page.Events...)
	}
	return all
}

// append is Append on the store under test.
func (l log) append(t testing.TB, writes ...eventstore.Write) eventstore.Position {
	t.Helper()
	position, err := appendRetried(l.context(t), l, writes...)
	require.NoError(t, err)
	return position
}

// grow creates a new stream of n events.
func (l log) grow(t testing.TB, n int) (stream string, events []eventstore.Event) {
	t.Helper()
	stream, events = newStream(), newEvents(n)
	l.append(t, write(stream, eventstore.NoStream, events...))
	return stream, events
}

// refuse appends and requires a conflict.
func (l log) refuse(t testing.TB, conflict eventstore.ConflictError, writes ...eventstore.Write) {
	t.Helper()
	_, err := l.Append(l.context(t), writes...)
	requireConflict(t, conflict, err)
}

func requireConflict(t testing.TB, conflict eventstore.ConflictError, err error) {
	t.Helper()
	require.Error(t, err)
	require.NotNil(t, eventstore.Conflict(err), "not a conflict: %v", err)
	require.Equal(t, conflict, *eventstore.Conflict(err))
}

// read reads a stream to its end.
func (l log) read(t testing.TB, stream string, from eventstore.Revision) []eventstore.Recorded {
	t.Helper()
	recorded, err := collect(l.context(t), l, stream, from)
	require.NoError(t, err)
	return recorded
}

func collect(
	ctx context.Context, store eventstore.Store, stream string, from eventstore.Revision,
) ([]eventstore.Recorded, error) {
	var all []eventstore.Recorded
	for recorded, err := range store.Read(ctx, stream, from) {
		if err != nil {
			return all, err
		}
		all = append(all, recorded)
	}
	return all, nil
}

// requireStream requires that a stream has exactly these events, at revisions from 0 and at increasing positions.
func (l log) requireStream(t testing.TB, stream string, events ...eventstore.Event) []eventstore.Recorded {
	t.Helper()
	recorded := l.read(t, stream, 0)
	requireEvents(t, events, recorded)
	for i, r := range recorded {
		require.Equal(t, stream, r.Stream)
		require.Equal(t, eventstore.Revision(i), r.Revision)
		require.Positive(t, r.Position)
		if i > 0 {
			require.Greater(t, r.Position, recorded[i-1].Position)
		}
	}
	return recorded
}

// requireEvents compares appended events with read ones. Ids are compared first, for readable failures.
func requireEvents(t testing.TB, events []eventstore.Event, recorded []eventstore.Recorded) {
	t.Helper()
	require.Equal(t, ids(events), recordedIDs(recorded))
	for i, r := range recorded {
		require.Equal(t, events[i], r.Event)
	}
}

func ids(events []eventstore.Event) []string {
	out := make([]string, len(events))
	for i, e := range events {
		out[i] = e.ID.String()
	}
	return out
}

func recordedIDs(recorded []eventstore.Recorded) []string {
	out := make([]string, len(recorded))
	for i, r := range recorded {
		out[i] = r.ID.String()
	}
	return out
}

// follow subscribes after a position until the log was read up to another, and returns the events up to that position.
func (l log) follow(
	t testing.TB, after eventstore.Position, filter eventstore.Filter, until eventstore.Position,
) []eventstore.Recorded {
	t.Helper()
	events, err := tail(l.context(t), l, after, filter, func(page eventstore.Page) bool {
		return page.Position >= until
	})
	require.NoError(t, err)
	return slices.DeleteFunc(events, func(r eventstore.Recorded) bool { return r.Position > until })
}

// tail reads a subscription until done accepts a page, and returns its events. It fails on an event at or before a
// position that was reported as read, on an event that the filter does not select, and on an end without an error.
func tail(
	ctx context.Context, store eventstore.Store, after eventstore.Position, filter eventstore.Filter,
	done func(eventstore.Page) bool,
) ([]eventstore.Recorded, error) {
	var events []eventstore.Recorded
	last := after
	for page, err := range store.Subscribe(ctx, after, filter) {
		if err != nil {
			return events, fmt.Errorf("at position %d after %d events: %w", last, len(events), err)
		}
		if err := inOrder(page, last, filter); err != nil {
			return events, err
		}
		last, events = page.Position, append(events, page.Events...)
		if done(page) {
			return events, nil
		}
	}
	return events, errors.New("the subscription ended without an error")
}

func inOrder(page eventstore.Page, last eventstore.Position, filter eventstore.Filter) error {
	for _, e := range page.Events {
		switch {
		case e.Position <= last:
			return fmt.Errorf("the event at %d came when the log was read up to %d", e.Position, last)
		case !filter.Matches(e.Stream, e.Type):
			return fmt.Errorf("the event at %d, %s on %s, is not selected by the filter", e.Position, e.Type, e.Stream)
		}
		last = e.Position
	}
	if page.Position < last {
		return fmt.Errorf("a page ended at %d when the log was read up to %d", page.Position, last)
	}
	return nil
}
