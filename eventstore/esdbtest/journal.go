package esdbtest

import (
	"bytes"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
)

// record is an event in the journal. It never changes.
type record struct {
	id       uuid.UUID
	stream   string
	kind     string // the event's type
	json     bool
	data     []byte
	metadata []byte
	revision int64
	position uint64 // of the record's first byte; the commit and prepare positions of a single write are equal
	end      uint64 // of the record, where the next one starts
	created  time.Time
}

// recordBytes is the size of a record in the journal without its texts.
const recordBytes = 96

// journal is the event log that the nodes of a cluster share.
type journal struct {
	mu      sync.Mutex
	all     []*record
	streams map[string][]*record
	ids     map[uuid.UUID]location // of events written since the start: the server's cache, which a restart clears
	end     uint64
	grown   chan struct{} // closed by the next append
}

// location is the location of an event by id.
type location struct {
	stream   string
	revision int64
}

// newJournal returns a journal with the system events of a new server.
func newJournal() *journal {
	j := &journal{streams: make(map[string][]*record), ids: make(map[uuid.UUID]location), grown: make(chan struct{})}
	j.put("$epoch-information", []proposal{{
		id: uuid.New(), kind: "$epoch-information", json: true, data: []byte(`{}`),
	}})
	j.put("$users", []proposal{{id: uuid.New(), kind: "$UserCreated", json: true, data: []byte(`{}`)}})
	return j
}

// proposal is an event to append.
type proposal struct {
	id       uuid.UUID
	kind     string
	json     bool
	data     []byte
	metadata []byte
}

// Expectations other than revisions, with the server's values.
const (
	noStream     = -1
	anything     = -2
	streamExists = -4
)

// verdict is the result of an append: its last event, or that the stream is not as expected.
type verdict struct {
	wrong   bool
	current int64 // revision of the stream's last event, -1 for none
	last    *record
}

// append checks the expectation and writes.
func (j *journal) append(stream string, expected int64, events []proposal) verdict {
	j.mu.Lock()
	defer j.mu.Unlock()
	current := int64(len(j.streams[stream])) - 1
	switch {
	case expected == streamExists && current < 0:
		return verdict{wrong: true, current: current}
	case expected == anything || expected == streamExists:
		if last, known := j.seen(stream, events); known {
			return same(last, current)
		}
	case expected > current:
		return verdict{wrong: true, current: current}
	case expected < current:
		return same(j.storedAfter(stream, expected, events), current)
	}
	written := j.put(stream, events)
	if len(written) == 0 {
		return verdict{current: current}
	}
	return verdict{current: current, last: written[len(written)-1]}
}

// same returns the result of a repeated append by its stored last event; nil: it is not a repetition.
func same(last *record, current int64) verdict {
	if last == nil {
		return verdict{wrong: true, current: current}
	}
	return verdict{current: current, last: last}
}

// seen looks up the cached ids of an append without expectation. The append is new if its first id is not known on the
// stream, a repetition if all ids are, and wrong if only some are.
func (j *journal) seen(stream string, events []proposal) (last *record, known bool) {
	for i, e := range events {
		at, known := j.ids[e.id]
		if !known || at.stream != stream {
			return nil, i > 0
		}
		last = j.streams[stream][at.revision]
	}
	return last, last != nil
}

// storedAfter returns the last of the given events if they are stored right after a revision, and otherwise nil.
func (j *journal) storedAfter(stream string, expected int64, events []proposal) (last *record) {
	recorded := j.streams[stream]
	for i, e := range events {
		at := expected + 1 + int64(i)
		if at >= int64(len(recorded)) || recorded[at].id != e.id {
			return nil
		}
		last = recorded[at]
	}
	return last
}

func (j *journal) put(stream string, events []proposal) []*record {
	written := make([]*record, len(events))
	for i, e := range events {
		written[i] = j.write(stream, e)
	}
	j.wake()
	return written
}

// write adds an event. The caller holds the mutex, and calls wake after the last one.
func (j *journal) write(stream string, e proposal) *record {
	r := &record{
		id: e.id, stream: stream, kind: e.kind, json: e.json, data: bytes.Clone(e.data),
		metadata: bytes.Clone(e.metadata), revision: int64(len(j.streams[stream])), position: j.end,
		created: time.Now(),
	}
	r.end = r.position + uint64(recordBytes+len(stream)+len(e.kind)+len(e.data)+len(e.metadata))
	j.end = r.end
	j.all = append(j.all, r)
	j.streams[stream] = append(j.streams[stream], r)
	j.ids[e.id] = location{stream, r.revision}
	return r
}

// wake wakes the subscriptions.
func (j *journal) wake() {
	close(j.grown)
	j.grown = make(chan struct{})
}

// view is a snapshot of the journal.
type view struct {
	all   []*record
	end   uint64
	grown <-chan struct{}
}

// look returns the journal up to a number of events, or all of it if that is negative.
func (j *journal) look(limit int) view {
	j.mu.Lock()
	defer j.mu.Unlock()
	all := j.all
	end := j.end
	if limit >= 0 && limit < len(all) {
		all = all[:limit]
		end = all[limit-1].end
	}
	return view{all: all, end: end, grown: j.grown}
}

// stream returns a stream as of a view of the journal.
func (j *journal) stream(name string, v view) []*record {
	j.mu.Lock()
	defer j.mu.Unlock()
	recorded := j.streams[name]
	n, _ := slices.BinarySearchFunc(recorded, v.end, byPosition)
	return recorded[:n]
}

func byPosition(r *record, position uint64) int {
	switch {
	case r.position < position:
		return -1
	case r.position > position:
		return 1
	}
	return 0
}

// from returns the index of the first event at or after a position.
func (v view) from(position uint64) int {
	i, _ := slices.BinarySearchFunc(v.all, position, byPosition)
	return i
}

// boundary reports whether a record starts at a position. A server rejects reads from other positions as invalid.
func (v view) boundary(position uint64) bool {
	i := v.from(position)
	return position >= v.end || v.all[i].position == position
}
