package esdb

import (
	"slices"
	"strings"

	client "github.com/EventStore/EventStore-Client-Go/v4/esdb"

	"github.com/leadlog/leadlog/eventstore"
)

// serverFilter is what the server can do of a filter: it looks at names of streams or at types, not at both. It may
// let through too much, never too little; the rest is sorted out here.
//
// Types tell more than kinds of streams do, as each of ours stands on one kind of stream only. They go as prefixes
// too: a pattern would be read by another engine than ours.
func (s *Store) serverFilter(f eventstore.Filter) *client.SubscriptionFilter {
	prefixes := f.StreamPrefixes
	if slices.Contains(prefixes, "") {
		prefixes = nil
	}
	switch {
	case len(f.Types) > 0 && !(len(prefixes) > 0 && particular(prefixes)):
		return &client.SubscriptionFilter{Type: client.EventFilterType, Prefixes: f.Types}
	case len(prefixes) > 0:
		named := make([]string, len(prefixes))
		for i, p := range prefixes {
			named[i] = s.name(p)
		}
		return &client.SubscriptionFilter{Type: client.StreamFilterType, Prefixes: named}
	case s.namespace != "":
		return &client.SubscriptionFilter{Type: client.StreamFilterType, Prefixes: []string{s.namespace}}
	}
	return client.ExcludeSystemEventsFilter()
}

// particular tells prefixes that go beyond a kind of stream, as lead-01J does and lead- does not.
func particular(prefixes []string) bool {
	return !slices.ContainsFunc(prefixes, func(p string) bool {
		_, rest, _ := strings.Cut(p, "-")
		return rest == ""
	})
}

// wanted sorts out the rest.
func (s *Store) wanted(f eventstore.Filter) func(*client.RecordedEvent) bool {
	return func(r *client.RecordedEvent) bool {
		return s.own(r) && f.Matches(r.StreamID[len(s.namespace):], r.EventType)
	}
}
