package storetest

import (
	"slices"

	"github.com/leadlog/leadlog/eventstore"
)

// model is what a store is, without engine, durability or callers at the same time: a list of events.
// It keeps to the words of eventstore.Store as plainly as it can, so that it is easily seen to be right.
type model struct {
	base    eventstore.Position // of the log before the first event of the model
	all     []eventstore.Recorded
	streams map[string][]eventstore.Recorded
}

func (m *model) head() eventstore.Position { return m.base + eventstore.Position(len(m.all)) }

func (m *model) stream(name string) []eventstore.Recorded { return m.streams[name] }

func (m *model) end(stream string) eventstore.Expected {
	return eventstore.Expected(len(m.streams[stream]) - 1)
}

func (m *model) append(writes []eventstore.Write) (eventstore.Position, error) {
	if err := eventstore.Validate(writes); err != nil {
		return 0, err
	}
	if position, there := m.standing(writes); there {
		return position, nil
	}
	return m.allOrNothing(writes)
}

func (m *model) allOrNothing(writes []eventstore.Write) (eventstore.Position, error) {
	for _, w := range writes {
		if conflict := m.conflict(w); conflict != nil {
			return 0, conflict
		}
	}
	for _, w := range writes {
		m.put(w)
	}
	return m.head(), nil
}

func (m *model) conflict(w eventstore.Write) error {
	if actual := m.end(w.Stream); w.Expect != eventstore.Any && w.Expect != actual {
		return &eventstore.ConflictError{Stream: w.Stream, Expected: w.Expect, Actual: actual}
	}
	return nil
}

func (m *model) put(w eventstore.Write) eventstore.Position {
	if m.streams == nil {
		m.streams = make(map[string][]eventstore.Recorded)
	}
	for _, e := range w.Events {
		r := eventstore.Recorded{
			Event:    e,
			Stream:   w.Stream,
			Revision: eventstore.Revision(len(m.streams[w.Stream])),
			Position: m.head() + 1,
		}
		m.all = append(m.all, r)
		m.streams[w.Stream] = append(m.streams[w.Stream], r)
	}
	return m.head()
}

// standing reports whether all events of an append are there already, at the places it wants for them,
// and the position of the last.
func (m *model) standing(writes []eventstore.Write) (eventstore.Position, bool) {
	var position eventstore.Position
	for _, w := range writes {
		if len(w.Events) == 0 {
			continue
		}
		there := m.stream(w.Stream)
		from := int(w.Expect) + 1
		if w.Expect == eventstore.Any {
			from = slices.IndexFunc(there, func(r eventstore.Recorded) bool { return r.ID == w.Events[0].ID })
		}
		to := from + len(w.Events)
		if from < 0 || to > len(there) || !slices.Equal(recordedIDs(there[from:to]), ids(w.Events)) {
			return 0, false
		}
		position = there[to-1].Position
	}
	return position, position > 0
}

// after lists what a subscription yields: positions grow, so it begins at a known place.
func (m *model) after(position eventstore.Position, filter eventstore.Filter) []eventstore.Recorded {
	from, _ := slices.BinarySearchFunc(m.all, position+1, func(r eventstore.Recorded, p eventstore.Position) int {
		return int(r.Position) - int(p)
	})
	var events []eventstore.Recorded
	for _, r := range m.all[from:] {
		if filter.Matches(r.Stream, r.Type) {
			events = append(events, r)
		}
	}
	return events
}
