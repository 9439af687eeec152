package storetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
)

func filterLaws() []law {
	selecting := func(says string, filter func(root string) eventstore.Filter, want ...string) law {
		return law{says, func(t *testing.T, l log) {
			root, before, end := l.mixed(t)
			var got []string
			for _, r := range l.follow(t, before, filter(root), end) {
				got = append(got, r.Stream[len(root):]+" "+r.Type)
			}
			require.Equal(t, want, got)
		}}
	}
	return []law{
		selecting("a prefix selects streams", func(root string) eventstore.Filter {
			return eventstore.Filter{StreamPrefixes: []string{root + "lead-"}}
		}, "lead-1 made.v1", "lead-1 changed.v1", "lead-2 made.v1", "lead-2 changed.v1"),
		selecting("several prefixes select the streams of each, once", func(root string) eventstore.Filter {
			return eventstore.Filter{StreamPrefixes: []string{root + "token-", root + "lead-2", root + "lead-"}}
		}, "lead-1 made.v1", "token-1 made.v1", "lead-1 changed.v1", "lead-2 made.v1", "lead-2 changed.v1"),
		selecting("a whole name is a prefix", func(root string) eventstore.Filter {
			return eventstore.Filter{StreamPrefixes: []string{root + "lead-1"}}
		}, "lead-1 made.v1", "lead-1 changed.v1"),
		selecting("prefix and type select what is of both", func(root string) eventstore.Filter {
			return eventstore.Filter{StreamPrefixes: []string{root + "lead-"}, Types: []string{"changed.v1"}}
		}, "lead-1 changed.v1", "lead-2 changed.v1"),
		selecting("several types select the events of each", func(root string) eventstore.Filter {
			return eventstore.Filter{StreamPrefixes: []string{root}, Types: []string{"made.v11", "changed.v1", "other.v1"}}
		}, "lead-1 changed.v1", "webhook-1 made.v11", "lead-2 changed.v1"),
		selecting("a type is its whole name", func(root string) eventstore.Filter {
			return eventstore.Filter{StreamPrefixes: []string{root}, Types: []string{"made.v1"}}
		}, "lead-1 made.v1", "token-1 made.v1", "lead-2 made.v1"),
		selecting("a filter may select nothing", func(root string) eventstore.Filter {
			return eventstore.Filter{StreamPrefixes: []string{root + "token-"}, Types: []string{"changed.v1"}}
		}),
		{"a type alone selects over all streams", func(t *testing.T, l log) {
			eventType := "test." + newStream() + ".v1"
			events := newEvents(6)
			events[1].Type, events[4].Type = eventType, eventType
			var end eventstore.Position
			for _, e := range events {
				end = l.append(t, write(newStream(), eventstore.NoStream, e))
			}
			requireEvents(t, []eventstore.Event{events[1], events[4]},
				l.follow(t, 0, eventstore.Filter{Types: []string{eventType}}, end))
		}},
		{"an empty prefix selects all streams", func(t *testing.T, l log) {
			eventType := "test." + newStream() + ".v1"
			e := newEvent(eventType)
			end := l.append(t, write(newStream(), eventstore.NoStream, e))
			requireEvents(t, []eventstore.Event{e},
				l.follow(t, 0, eventstore.Filter{StreamPrefixes: []string{""}, Types: []string{eventType}}, end))
		}},
	}
}

// mixed appends events of several types to streams of several kinds, below a root of its own.
func (l log) mixed(t *testing.T) (root string, before, end eventstore.Position) {
	t.Helper()
	root, before = newStream()+"/", l.head(t)
	for _, e := range []struct{ stream, eventType string }{
		{"lead-1", "made.v1"},
		{"token-1", "made.v1"},
		{"lead-1", "changed.v1"},
		{"webhook-1", "made.v11"},
		{"lead-2", "made.v1"},
		{"leader", "told.v1"},
		{"lead-2", "changed.v1"},
	} {
		end = l.append(t, write(root+e.stream, eventstore.Any, newEvent(e.eventType)))
	}
	return root, before, end
}
