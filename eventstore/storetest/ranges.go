package storetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
)

func rangeTests() []test {
	return []test{
		{"every part", func(t *testing.T, l log) {
			for i := range 8 {
				e := newEvent([]string{"made.v1", "changed.v1"}[i%2])
				e.Metadata.Account = []string{"acme", "globex", `a"b`}[i%3]
				l.append(t, write(newStream(), eventstore.NoStream, e))
			}
			all := l.follow(t, 0, everything, l.head(t))
			bounds := []eventstore.Position{0}
			for _, r := range all {
				bounds = append(bounds, r.Position)
			}
			for i, after := range bounds {
				for _, until := range bounds[i:] {
					for _, r := range []eventstore.Range{
						{Limit: 100}, {Limit: 2}, {Limit: 100, Account: "acme"}, {Limit: 1, Account: `a"b`},
						{Limit: 100, Account: "acme\",\"x"},
						{Limit: 100, Account: "globex", Filter: eventstore.Filter{Types: []string{"changed.v1"}}},
					} {
						r.After, r.Until = after, until
						requireRange(t, l, r, all)
					}
				}
			}
		}},
		{"whole appends", func(t *testing.T, l log) {
			streams := []string{newStream(), newStream(), newStream()}
			end := l.append(t,
				write(streams[0], eventstore.NoStream, newEvents(3)...),
				write(streams[1], eventstore.NoStream, newEvents(2)...),
				write(streams[2], eventstore.NoStream, newEvents(4)...))
			requireRange(t, l, eventstore.Range{Until: end, Limit: 2}, l.follow(t, 0, everything, end))
		}},
	}
}

// requireRange reads a range to its end, in as many reads as needed, and compares it with the log.
func requireRange(t *testing.T, l log, r eventstore.Range, all []eventstore.Recorded) {
	t.Helper()
	var want, got []eventstore.Recorded
	for _, e := range all {
		if e.Position > r.After && e.Position <= r.Until && (r.Account == "" || e.Metadata.Account == r.Account) &&
			r.Filter.Matches(e.Stream, e.Type) {
			want = append(want, e)
		}
	}
	for {
		events, reached, err := eventstore.ReadRange(l.context(t), l.Store, r)
		require.NoError(t, err)
		require.LessOrEqual(t, len(events), r.Limit)
		require.LessOrEqual(t, reached, r.Until)
		got = append(got, events...)
		if reached == r.Until {
			break
		}
		require.Greater(t, reached, r.After)
		r.After = reached
	}
	require.Equal(t, want, got)
}
