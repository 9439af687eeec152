package storetest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
)

// unusualNames are names that look alike to a store that folds, trims, escapes or matches patterns.
func unusualNames() []string {
	return []string{
		"größe-Ω-日本語-🦊",
		"gro\u0308ße", "gröo\u0308", // combined and not
		"UPPER", "upper", "Upper",
		"with spaces  and more", "with spaces", "tab\tand\nline",
		"per%cent", "per%%cent", "perXcent", "under_score", "underXscore",
		"quote'", "double\"quote", "back\\slash", "back\\\\slash", "back\\%", "$1", "a$b", "semi;colon--",
		"{a,b}", "[a-z]*", "(.*)?", "^start", "end$", "NULL", "null", "{}",
		"slash/and?query#x", "comma,and:colon@x",
		strings.Repeat("n", eventstore.MaxStreamName-100), strings.Repeat("é", (eventstore.MaxStreamName-40)/2),
	}
}

func nameLaws() []law {
	return []law{
		{"unusual names are names like any other", func(t *testing.T, l log) {
			prefix := newStream() + "-"
			kept := make(map[string]eventstore.Event)
			for _, name := range unusualNames() {
				kept[name] = newEvent(noted)
				l.append(t, write(prefix+name, eventstore.NoStream, kept[name]))
			}
			for name, e := range kept {
				l.holds(t, prefix+name, e)
				l.refuse(t,
					eventstore.ConflictError{Stream: prefix + name, Expected: eventstore.NoStream, Actual: eventstore.At(0)},
					eventstore.Check(prefix+name, eventstore.NoStream))
			}
		}},
		{"many unusual names stand in one append", func(t *testing.T, l log) {
			prefix := newStream() + "-"
			var writes []eventstore.Write
			for _, name := range unusualNames() {
				writes = append(writes, write(prefix+name, eventstore.NoStream, newEvent(noted)))
			}
			l.append(t, writes...)
			for _, w := range writes {
				l.holds(t, w.Stream, w.Events...)
			}
		}},
		{"a name may be as long as allowed", func(t *testing.T, l log) {
			stream := newStream()
			stream += strings.Repeat("n", eventstore.MaxStreamName-len(stream))
			twin := stream[:len(stream)-1] + "m" // a store that cut names would take it for the same
			events := newEvents(2)
			l.append(t, write(stream, eventstore.NoStream, events[0]))
			position := l.append(t, write(twin, eventstore.NoStream, events[1]))
			l.holds(t, stream, events[0])
			l.holds(t, twin, events[1])
			requireEvents(t, events[:1], l.follow(t, 0, eventstore.Filter{StreamPrefixes: []string{stream}}, position))
		}},
		{"a prefix is text, not a pattern", func(t *testing.T, l log) {
			root := newStream() + "-"
			all := unusualNames()
			before, err := l.Head(l.context(t))
			require.NoError(t, err)
			var end eventstore.Position
			for _, name := range all {
				end = l.append(t, write(root+name, eventstore.NoStream, newEvent(noted)))
			}
			prefixes := append(all, "per%", "per_", "%", "_", "under_", "under", "back\\", "with ", "gr", "U", "é", "[a-z]", ".*")
			for _, prefix := range prefixes {
				var want, got []string
				for _, name := range all {
					if strings.HasPrefix(name, prefix) {
						want = append(want, root+name)
					}
				}
				for _, r := range l.follow(t, before, eventstore.Filter{StreamPrefixes: []string{root + prefix}}, end) {
					got = append(got, r.Stream)
				}
				require.Equal(t, want, got, "prefix %q", prefix)
			}
		}},
	}
}
