package storetest

import (
	"slices"
	"strings"
	"time"

	"github.com/leadlog/leadlog/eventstore"
)

// fault names what is wrong with a memory store.
type fault string

const (
	noFault         fault = ""
	wrongActual     fault = "reports the expected revision as the actual one"
	lastConflict    fault = "reports the last conflict"
	freshRetry      fault = "takes the same append as a conflict"
	doubledRetry    fault = "writes the same append again"
	retryAtHead     fault = "answers a retry with the head"
	retryByChecks   fault = "compares the checks of a retry"
	retryByPrefix   fault = "takes the beginning of an append for the whole"
	halfAppend      fault = "leaves the writes before a conflict"
	ignoredChecks   fault = "ignores checks"
	lateCheck       fault = "lets a check see only every second append"
	laxAny          fault = "compares an expectation of nothing"
	firstPosition   fault = "answers with the position of the first event"
	checkedToZero   fault = "answers checks with position zero"
	unvalidated     fault = "writes what is not well formed"
	gaps            fault = "leaves gaps between positions"
	skipped         fault = "skips an event in a hundred"
	doubled         fault = "delivers an event in a hundred twice"
	shuffled        fault = "delivers two events in the wrong order"
	noMarks         fault = "never marks progress"
	farMarks        fault = "marks progress beyond the head"
	eagerMarks      fault = "marks progress before the events"
	patternPrefixes fault = "takes an underscore in a prefix for any character"
	ignoredTypes    fault = "ignores the types of a filter"
	localTimes      fault = "returns local times"
	seconds         fault = "cuts times to seconds"
	tidyData        fault = "tidies data"
	lostMetadata    fault = "loses the user agent"
	aliasedData     fault = "keeps the caller's slices"
)

// append is the model's, except for faults that answer instead of it or change its input.
func (f fault) append(m *memory, writes []eventstore.Write) (eventstore.Position, error) {
	before := slices.Clone(m.model.all)
	stored, there := m.model.stored(writes)
	if there {
		if position, err, did := f.retry(&m.model, writes); did {
			return position, err
		}
	}
	switch {
	case f == retryByPrefix && len(writes) == 1 && len(writes[0].Events) > 1:
		if at, begun := m.model.stored([]eventstore.Write{write(writes[0].Stream, writes[0].Expect, writes[0].Events[0])}); begun {
			return at, nil
		}
	case f == unvalidated && eventstore.Validate(writes) != nil && writes[0].Stream != "":
		return m.model.put(writes[0]), nil
	case f == ignoredChecks, f == lateCheck && m.appends%2 == 0:
		writes = slices.DeleteFunc(writes, func(w eventstore.Write) bool { return len(w.Events) == 0 })
	case f == laxAny && !there:
		for i, w := range writes {
			if w.Expect == eventstore.Any {
				writes[i].Expect = eventstore.NoStream
			}
		}
	case f == lastConflict:
		slices.Reverse(writes)
	}
	position, err := m.model.append(writes)
	return f.answer(m, writes, before, stored, position, err)
}

// retry answers an append that was stored before, if the fault is about retries.
func (f fault) retry(m *model, writes []eventstore.Write) (_ eventstore.Position, _ error, did bool) {
	switch f {
	case freshRetry:
		position, err := m.allOrNothing(writes)
		return position, err, true
	case doubledRetry:
		return m.put(writes[0]), nil, true
	case retryAtHead:
		return m.head(), nil, true
	case retryByChecks:
		for _, w := range writes {
			if conflict := m.conflict(w); len(w.Events) == 0 && conflict != nil {
				return 0, conflict, true
			}
		}
	}
	return 0, nil, false
}

// answer changes the model's answer.
func (f fault) answer(
	m *memory, writes []eventstore.Write, before []eventstore.Recorded, stored, position eventstore.Position, err error,
) (eventstore.Position, error) {
	conflict := eventstore.Conflict(err)
	grown := len(m.model.all) - len(before)
	switch {
	case f == wrongActual && conflict != nil && conflict.Expected >= 0:
		conflict.Actual = conflict.Expected
	case f == halfAppend && conflict != nil && len(writes[0].Events) > 0 && conflict.Stream != writes[0].Stream:
		m.model.put(writes[0])
	case f == firstPosition && grown > 0:
		return position - eventstore.Position(grown) + 1, err
	case f == checkedToZero && err == nil && grown == 0 && stored == 0:
		return 0, nil
	case f == gaps && grown > 0:
		m.model.all = append(m.model.all, eventstore.Recorded{Position: m.model.head() + 1})
	}
	return position, err
}

func (f fault) read(r eventstore.Recorded) eventstore.Recorded {
	switch f {
	case localTimes:
		r.At = r.At.In(time.FixedZone("local", 3600))
	case seconds:
		r.At = r.At.Truncate(time.Second)
	case tidyData:
		r.Data = []byte(strings.ReplaceAll(string(r.Data), " ", ""))
	case lostMetadata:
		r.Metadata.UserAgent = ""
	}
	return r
}

// pages returns what a subscription yields of a part of the log.
func (f fault) pages(read []eventstore.Recorded, after, head eventstore.Position, filter eventstore.Filter) []eventstore.Page {
	var events []eventstore.Recorded
	for _, r := range read {
		if !f.matches(filter, r) || f == skipped && r.Position%100 == 7 {
			continue
		}
		events = append(events, r)
		if f == doubled && r.Position%100 == 7 {
			events = append(events, r)
		}
	}
	if f == shuffled && len(events) > 2 {
		events[0], events[1] = events[1], events[0]
	}
	switch {
	case len(read) == 0:
		return nil
	case f == noMarks && len(events) == 0:
		head = after
	case f == noMarks:
		head = events[len(events)-1].Position
	case f == farMarks:
		head++
	case f == eagerMarks:
		return []eventstore.Page{{Position: head}, {Events: events, Position: head}}
	}
	return []eventstore.Page{{Events: events, Position: head}}
}

func (f fault) matches(filter eventstore.Filter, r eventstore.Recorded) bool {
	switch f {
	case patternPrefixes:
		for i, prefix := range filter.StreamPrefixes {
			if len(prefix) <= len(r.Stream) {
				filter.StreamPrefixes = slices.Clone(filter.StreamPrefixes)
				filter.StreamPrefixes[i] = matched(prefix, r.Stream)
			}
		}
	case ignoredTypes:
		filter.Types = nil
	}
	return filter.Matches(r.Stream, r.Type)
}

// matched fills the underscores of a pattern from a name.
func matched(pattern, name string) string {
	filled := []byte(pattern)
	for i := range filled {
		if filled[i] == '_' {
			filled[i] = name[i]
		}
	}
	return string(filled)
}
