package storetest

import (
	"slices"
	"strings"
	"time"

	"github.com/leadlog/leadlog/eventstore"
)

// fault is a fault that is injected into a memory store.
type fault string

const (
	noFault          fault = ""
	wrongActual      fault = "reports the expected revision as the actual one"
	lastConflict     fault = "reports the last conflict"
	freshRetry       fault = "reports a conflict for a repeated append"
	doubledRetry     fault = "writes a repeated append again"
	retryAtHead      fault = "returns the head for a retry"
	retryByChecks    fault = "compares the checks of a retry"
	retryByPrefix    fault = "accepts the first event of an append as the whole append"
	halfAppend       fault = "keeps the writes before a conflict"
	ignoredChecks    fault = "ignores checks"
	lateCheck        fault = "ignores the checks of every second append"
	anyAsNoStream    fault = "treats any revision as no stream"
	firstPosition    fault = "returns the position of the first event"
	checkedToZero    fault = "returns position zero for checks"
	unvalidated      fault = "does not validate appends"
	gaps             fault = "leaves gaps between positions"
	skipped          fault = "skips one event in a hundred"
	doubled          fault = "delivers one event in a hundred twice"
	shuffled         fault = "delivers two events in the wrong order"
	noCheckpoints    fault = "sends no checkpoints"
	farCheckpoints   fault = "sends checkpoints beyond the head"
	eagerCheckpoints fault = "sends checkpoints before their events"
	patternPrefixes  fault = "treats an underscore in a prefix as a wildcard"
	ignoredTypes     fault = "ignores the types of a filter"
	localTimes       fault = "returns local times"
	seconds          fault = "truncates times to seconds"
	tidyData         fault = "removes spaces from data"
	lostMetadata     fault = "loses the user agent"
	aliasedData      fault = "keeps the caller's slices"
)

// append appends to the model with the fault.
func (f fault) append(m *memory, writes []eventstore.Write) (eventstore.Position, error) {
	before := slices.Clone(m.model.all)
	stored, isStored := m.model.stored(writes)
	if isStored {
		if position, err, handled := f.retry(&m.model, writes); handled {
			return position, err
		}
	}
	switch {
	case f == retryByPrefix && len(writes) == 1 && len(writes[0].Events) > 1:
		if at, isStored := m.model.stored(
			[]eventstore.Write{write(writes[0].Stream, writes[0].Expect, writes[0].Events[0])},
		); isStored {
			return at, nil
		}
	case f == unvalidated && eventstore.Validate(writes) != nil && writes[0].Stream != "":
		return m.model.put(writes[0]), nil
	case f == ignoredChecks, f == lateCheck && m.appends%2 == 0:
		writes = slices.DeleteFunc(writes, func(w eventstore.Write) bool { return len(w.Events) == 0 })
	case f == anyAsNoStream && !isStored:
		for i, w := range writes {
			if w.Expect == eventstore.Any {
				writes[i].Expect = eventstore.NoStream
			}
		}
	case f == lastConflict:
		slices.Reverse(writes)
	}
	position, err := m.model.append(writes)
	return f.result(m, writes, before, stored, position, err)
}

// retry returns the result of an append that is stored, and whether the fault affects retries.
func (f fault) retry(m *model, writes []eventstore.Write) (_ eventstore.Position, _ error, handled bool) {
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

// result applies the fault to the result of the model.
func (f fault) result(
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

// pages returns the pages of a subscription for a range of the log.
func (f fault) pages(
	read []eventstore.Recorded, after, head eventstore.Position, filter eventstore.Filter,
) []eventstore.Page {
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
	case f == noCheckpoints && len(events) == 0:
		head = after
	case f == noCheckpoints:
		head = events[len(events)-1].Position
	case f == farCheckpoints:
		head++
	case f == eagerCheckpoints:
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

// matched replaces the underscores of a pattern by the characters of a name.
func matched(pattern, name string) string {
	filled := []byte(pattern)
	for i := range filled {
		if filled[i] == '_' {
			filled[i] = name[i]
		}
	}
	return string(filled)
}
