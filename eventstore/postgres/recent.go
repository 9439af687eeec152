package postgres

import (
	"slices"
	"sync"
	"time"

	"github.com/leadlog/leadlog/eventstore"
)

// recent is the end of the log as far as this process alone has written it, so that its own subscriptions need not read back what
// it has just written. It has no gaps: when another process has appended in between, it starts again after that.
type recent struct {
	mu      sync.Mutex
	batches []written
	bytes   int // of payload, in all of them
}

// mostRecent is how many bytes of payload are kept for subscriptions that are a little behind: about what is appended while
// projections rest.
const mostRecent = 1 << 20

// written is what one batch put on the log: its events have the positions that follow after.
type written struct {
	after, end eventstore.Position
	bytes      int
	runs       []run
}

// run is a number of events of a stream that follow each other on the log too.
type run struct {
	stream   string
	first    eventstore.Position
	revision eventstore.Revision
	events   []eventstore.Event
}

// add adds a batch.
func (r *recent) add(b written) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.batches); n > 0 && r.batches[n-1].end != b.after {
		r.batches, r.bytes = nil, 0
	}
	if b.bytes > mostRecent { // it is only known that it is there
		b = written{after: b.end, end: b.end}
		r.batches, r.bytes = nil, 0
	}
	r.batches, r.bytes = append(r.batches, b), r.bytes+b.bytes
	for r.bytes > mostRecent {
		r.bytes -= r.batches[0].bytes
		r.batches = slices.Delete(r.batches, 0, 1)
	}
}

// since returns what was written after a position. Whole is false when some of it is no longer in memory; then nothing is returned.
func (r *recent) since(after eventstore.Position) (_ []written, whole bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.batches) > 0 && after < r.batches[0].after {
		return nil, false
	}
	i, _ := slices.BinarySearchFunc(r.batches, after, func(b written, after eventstore.Position) int {
		if b.end <= after {
			return -1
		}
		return 1
	})
	return slices.Clone(r.batches[i:]), true
}

// each yields the matching events after a position. It returns false when the consumer stops.
func (b written) each(after eventstore.Position, filter eventstore.Filter, yield func(eventstore.Item, error) bool) bool {
	for _, run := range b.runs {
		for i, e := range run.events {
			position := run.first + eventstore.Position(i)
			if position <= after || !filter.Matches(run.stream, e.Type) {
				continue
			}
			e.At = time.UnixMicro(e.At.UnixMicro()).UTC() // as it is read
			recorded := eventstore.Recorded{Event: e, Stream: run.stream, Revision: run.revision + eventstore.Revision(i), Position: position}
			if !yield(eventstore.Item{Event: &recorded, Position: position}, nil) {
				return false
			}
		}
	}
	return true
}

// written returns what a batch put on the log, given the answer to it. Ok is false when a part of it was there before.
func (c *columns) written(batch []*request, a answer) (w written, ok bool) {
	w = written{after: eventstore.Position(a.head), end: eventstore.Position(a.head), runs: make([]run, 0, c.arrays[eventID].n)}
	expected, refused := c.expected, 0
	for i, r := range batch {
		if refused < len(a.refused) && a.refused[refused] == int64(i+1) {
			if a.stored[refused] > 0 {
				return w, false
			}
			refused++
			expected = expected[len(r.writes):]
			continue
		}
		for j, write := range r.writes {
			if len(write.Events) == 0 {
				continue
			}
			w.runs = append(w.runs, run{
				stream: write.Stream, first: w.end + 1, revision: eventstore.Revision(a.revisions[expected[j]-1]) + 1, events: write.Events,
			})
			w.end += eventstore.Position(len(write.Events))
		}
		w.bytes += r.bytes
		expected = expected[len(r.writes):]
	}
	return w, true
}
