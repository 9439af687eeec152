package eventstore

import (
	"fmt"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/leadlog/leadlog/eventstore/event"
)

// Decoded is an event on the log with its decoded data. All of its consumers share it, and must not change it.
type Decoded struct {
	*Recorded
	Data   event.Data
	Stored *Recorded // in stored form; only a follower of a Tail gets it
	Err    error     // the event could not be opened or decoded
}

// Fact returns the event for a fold.
func (d Decoded) Fact() event.Fact {
	return event.Fact{ID: d.ID, Stream: d.Stream, At: d.At, Metadata: d.Metadata, Data: d.Data, Erased: d.Erased}
}

// DecodeAll decodes events in place, many of them on all processors.
func DecodeAll(events []Decoded) {
	const few = 50
	if len(events) <= few {
		decodeEach(events)
		return
	}
	var group errgroup.Group
	parts := runtime.GOMAXPROCS(0)
	for i := range parts {
		part := events[len(events)*i/parts : len(events)*(i+1)/parts]
		group.Go(func() error {
			decodeEach(part)
			return nil
		})
	}
	_ = group.Wait()
}

func decodeEach(events []Decoded) {
	for i := range events {
		e := &events[i]
		if e.Err != nil {
			continue
		}
		var err error
		if e.Data, err = e.Decode(); err != nil {
			e.Err = fmt.Errorf("event at position %d of stream %s: %w", e.Position, e.Stream, err)
		}
	}
}
