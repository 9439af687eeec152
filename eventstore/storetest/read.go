package storetest

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

func readTests() []test {
	return []test{
		{"no stream", func(t *testing.T, l log) {
			require.Empty(t, l.read(t, newStream(), 0))
			require.Empty(t, l.read(t, newStream(), 5))
		}},
		{"from a revision", func(t *testing.T, l log) {
			stream, events := l.grow(t, 5)
			for from := range events {
				recorded := l.read(t, stream, eventstore.Revision(from))
				requireEvents(t, events[from:], recorded)
				require.Equal(t, eventstore.Revision(from), recorded[0].Revision)
			}
		}},
		{"after the end", func(t *testing.T, l log) {
			stream, _ := l.grow(t, 5)
			require.Empty(t, l.read(t, stream, 5))
			require.Empty(t, l.read(t, stream, 1<<40))
		}},
		{"long stream", func(t *testing.T, l log) {
			const appends, size = 6, 2000
			stream, events := newStream(), newEvents(appends*size)
			end := eventstore.NoStream
			for i := range appends {
				l.append(t, write(stream, end, events[i*size:(i+1)*size]...))
				end = eventstore.At(eventstore.Revision((i+1)*size - 1))
			}
			l.requireStream(t, stream, events...)
			requireEvents(t, events[appends*size-1:], l.read(t, stream, appends*size-1))
		}},
		{"last event", func(t *testing.T, l log) {
			none, err := l.Last(t.Context(), newStream())
			require.NoError(t, err)
			require.Zero(t, none)
			stream, events := l.grow(t, 5)
			all := l.read(t, stream, 0)
			last, err := l.Last(t.Context(), stream)
			require.NoError(t, err)
			require.Equal(t, all[4], last)
			l.append(t, write(stream, eventstore.At(4), newEvents(1)...))
			last, err = l.Last(t.Context(), stream)
			require.NoError(t, err)
			require.EqualValues(t, 5, last.Revision)
			requireEvents(t, events, all)
		}},
		{"streams that share a prefix", func(t *testing.T, l log) {
			short, shortEvents := l.grow(t, 2)
			long, longEvents := short+"1", newEvents(2)
			l.append(t, write(long, eventstore.NoStream, longEvents...))
			l.requireStream(t, short, shortEvents...)
			l.requireStream(t, long, longEvents...)
		}},
	}
}

func roundTripTests() []test {
	return []test{
		{"every field", func(t *testing.T, l log) {
			stream := newStream()
			events := []eventstore.Event{fullEvent(), newEvent(noted)}
			events[1].Metadata = event.Metadata{}
			position := l.append(t, write(stream, eventstore.NoStream, events...))
			recorded := l.requireStream(t, stream, events...)
			require.Equal(t, recorded, l.follow(t, 0, eventstore.Filter{StreamPrefixes: []string{stream}}, position))
		}},
		{"times", func(t *testing.T, l log) {
			events := newEvents(4)
			events[0].At = time.UnixMilli(0).UTC()
			events[1].At = time.Date(2024, 2, 29, 23, 59, 59, 999e6, time.UTC)
			events[2].At = time.Date(2038, 1, 19, 3, 14, 8, 1e6, time.UTC)
			events[3].At = time.Date(9999, 12, 31, 23, 59, 59, 999e6, time.UTC)
			stream := newStream()
			l.append(t, write(stream, eventstore.NoStream, events...))
			for _, r := range l.requireStream(t, stream, events...) {
				require.Equal(t, time.UTC, r.At.Location())
			}
		}},
		{"data", func(t *testing.T, l log) {
			stream := newStream()
			var events []eventstore.Event
			for _, data := range []string{
				`{}`, `null`, `0`, `"x"`,
				"{ \"b\" :\t1,\r\n \"a\":[ ] }",
				`{"z":1,"a":2,"z":3}`,
				`{"big":123456789012345678901234567890,"exact":1.10,"exp":1E400,"zero":-0}`,
				`{"escaped":"\u00e9\/\u0000\ud83d\ude00","plain":"é/😀` + "\u2028" + `"}`,
			} {
				e := newEvent(noted)
				e.Data = []byte(data)
				events = append(events, e)
			}
			l.append(t, write(stream, eventstore.NoStream, events...))
			l.requireStream(t, stream, events...)
		}},
		{"largest data", func(t *testing.T, l log) {
			stream, events := newStream(), newEvents(6)
			end := eventstore.NoStream
			for i := range events {
				// Half of the limit, the limit, and one byte less: they cover the sizes of toast chunks and frames.
				size := []int{eventstore.MaxEventData / 2, eventstore.MaxEventData, eventstore.MaxEventData - 1}[i%3]
				events[i].Data = largeJSON(size, byte('a'+i))
				require.Len(t, events[i].Data, size)
				l.append(t, write(stream, end, events[i]))
				end = eventstore.At(eventstore.Revision(i))
			}
			l.requireStream(t, stream, events...)
		}},
		{"caller changes its slices", func(t *testing.T, l log) {
			stream, events := newStream(), newEvents(2)
			given := make([]eventstore.Event, len(events))
			for i, e := range events {
				given[i] = e
				given[i].Data = bytes.Clone(e.Data)
			}
			l.append(t, write(stream, eventstore.NoStream, given...))
			clear(given[0].Data)
			clear(given)
			l.requireStream(t, stream, events...)
		}},
		{"event types", func(t *testing.T, l log) {
			stream, events := newStream(), newEvents(4)
			for i, name := range []string{
				"Ärger.größer.v1", "a b%_'\"\\", "t", strings.Repeat("t", eventstore.MaxStreamName),
			} {
				events[i].Type = name
			}
			l.append(t, write(stream, eventstore.NoStream, events...))
			l.requireStream(t, stream, events...)
		}},
	}
}

// fullEvent has a value in every field, with texts that stores often mishandle.
func fullEvent() eventstore.Event {
	e := newEvent("test.everything.v12")
	e.At = time.Date(2025, 3, 30, 1, 2, 3, 45e6, time.UTC)
	e.Data = []byte(`{"name":"Zoë 🦊","quote":"\"'\\"}`)
	e.Metadata = event.Metadata{
		Account:     "Ünïcode & <Söhne> GmbH",
		Actor:       `user:auth0|"x"\'y'`,
		Credential:  "token:" + e.ID.String(),
		RequestID:   "req 1/2\t3",
		Causation:   newEvent(noted).ID.String(),
		Correlation: newEvent(noted).ID.String(),
		TraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		IP:          "2001:db8::1",
		UserAgent:   "Mozilla/5.0 (X11; 日本語) \u2028\U0001f98a %s {} \x7f\r\n end",
	}
	return e
}

func largeJSON(size int, fill byte) []byte {
	return fmt.Appendf(nil, `{"fill":%q}`, strings.Repeat(string(fill), size-len(`{"fill":""}`)))
}

// unusualNames are names that are equal for a store that folds, trims, escapes or matches patterns.
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

func nameTests() []test {
	return []test{
		{"unusual names", func(t *testing.T, l log) {
			prefix := newStream() + "-"
			kept := make(map[string]eventstore.Event)
			for _, name := range unusualNames() {
				kept[name] = newEvent(noted)
				l.append(t, write(prefix+name, eventstore.NoStream, kept[name]))
			}
			for name, e := range kept {
				l.requireStream(t, prefix+name, e)
				l.refuse(t,
					eventstore.ConflictError{
						Stream: prefix + name, Expected: eventstore.NoStream, Actual: eventstore.At(0),
					},
					eventstore.Check(prefix+name, eventstore.NoStream))
			}
		}},
		{"unusual names in one append", func(t *testing.T, l log) {
			prefix := newStream() + "-"
			var writes []eventstore.Write
			for _, name := range unusualNames() {
				writes = append(writes, write(prefix+name, eventstore.NoStream, newEvent(noted)))
			}
			l.append(t, writes...)
			for _, w := range writes {
				l.requireStream(t, w.Stream, w.Events...)
			}
		}},
		{"longest name", func(t *testing.T, l log) {
			stream := newStream()
			stream += strings.Repeat("n", eventstore.MaxStreamName-len(stream))
			twin := stream[:len(stream)-1] + "m" // a store that truncates names would treat it as the same
			events := newEvents(2)
			l.append(t, write(stream, eventstore.NoStream, events[0]))
			position := l.append(t, write(twin, eventstore.NoStream, events[1]))
			l.requireStream(t, stream, events[0])
			l.requireStream(t, twin, events[1])
			requireEvents(t, events[:1], l.follow(t, 0, eventstore.Filter{StreamPrefixes: []string{stream}}, position))
		}},
		{"prefix is text", func(t *testing.T, l log) {
			root := newStream() + "-"
			all := unusualNames()
			before, err := l.Head(l.context(t))
			require.NoError(t, err)
			var end eventstore.Position
			for _, name := range all {
				end = l.append(t, write(root+name, eventstore.NoStream, newEvent(noted)))
			}
			prefixes := append(all, "per%", "per_", "%", "_", "under_", "under", "back\\", "with ",
				"gr", "U", "é", "[a-z]", ".*")
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
