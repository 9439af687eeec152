package esdb

import (
	"slices"
	"strings"

	client "github.com/EventStore/EventStore-Client-Go/v4/esdb"

	"github.com/leadlog/leadlog/eventstore"
)

// serverFilter returns the part of a filter that the server can apply: to the names of streams or to types, not to both. It may let
// through too much, but never too little; wanted applies the rest.
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

// particular reports whether prefixes are longer than a kind of stream, as lead-01J is and lead- is not.
func particular(prefixes []string) bool {
	return !slices.ContainsFunc(prefixes, func(p string) bool {
		_, rest, _ := strings.Cut(p, "-")
		return rest == ""
	})
}

// wanted returns the filter for the events that the server lets through.
func (s *Store) wanted(f eventstore.Filter) func(*client.RecordedEvent) bool {
	return func(r *client.RecordedEvent) bool {
		return s.own(r) && f.Matches(r.StreamID[len(s.namespace):], r.EventType)
	}
}
