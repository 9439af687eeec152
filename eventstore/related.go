package eventstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/leadlog/leadlog/eventstore/event"
)

// ReadRelated reads a stream, and each stream that related names for an event that was read, in the order of the log.
func ReadRelated(
	ctx context.Context, store Store, stream string, related func(event.Data) []string,
) ([]event.Fact, error) {
	type positioned struct {
		Position
		event.Fact
	}
	var all []positioned
	for streams, next := []string{stream}, 0; next < len(streams); next++ {
		for recorded, err := range store.Read(ctx, streams[next], 0) {
			if err != nil {
				return nil, err
			}
			fact, err := recorded.Fact()
			if err != nil {
				return nil, fmt.Errorf("stream %s at revision %d: %w", streams[next], recorded.Revision, err)
			}
			all = append(all, positioned{recorded.Position, fact})
			for _, other := range related(fact.Data) {
				if !slices.Contains(streams, other) {
					streams = append(streams, other)
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b positioned) int { return cmp.Compare(a.Position, b.Position) })
	history := make([]event.Fact, len(all))
	for i, one := range all {
		history[i] = one.Fact
	}
	return history, nil
}
