package eventstore

import (
	"context"
	"fmt"

	"github.com/leadlog/leadlog/eventstore/event"
)

// Load folds a stream. It returns the state, which for a stream without events is the zero value, and the
// revision to expect of the stream when appending what was decided on that state.
func Load[S any](ctx context.Context, store Store, stream string, evolve func(S, event.Fact) S) (S, Expected, error) {
	var state S
	end := NoStream
	for recorded, err := range store.Read(ctx, stream, 0) {
		if err != nil {
			return state, end, err
		}
		fact, err := recorded.Fact()
		if err != nil {
			return state, end, fmt.Errorf("stream %s at revision %d: %w", stream, recorded.Revision, err)
		}
		state = evolve(state, fact)
		end = At(recorded.Revision)
	}
	return state, end, nil
}
