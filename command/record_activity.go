package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/visitor"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// RecordActivity is the command that records something a visitor of a web site did.
type RecordActivity struct {
	Admission Admission
	VisitorID string                    // as given
	Body      map[string]jsontext.Value // members of the request's body
}

// ActivityRecorded is the answer.
type ActivityRecorded struct {
	ID       string // of the event
	Activity event.VisitorActed
	At       time.Time           // when it was recorded
	Position eventstore.Position // of its append
}

// RecordActivity appends an activity to its visitor's stream. One without a time happened when it is recorded.
//
// The errors are field.Errors, ErrUnauthorized, ErrFeatureDisabled and those of the store.
func (h *Handlers) RecordActivity(ctx context.Context, cmd RecordActivity) (ActivityRecorded, error) {
	parsed, err := visitor.ParseActivity(cmd.VisitorID, cmd.Body, h.timestamp())
	if err != nil {
		// Nothing is appended, so nothing confirms that the caller is still authorized.
		if refused := cmd.Admission.Confirm(ctx, h.directory); refused != nil {
			return ActivityRecorded{}, refused
		}
		return ActivityRecorded{}, err
	}
	if err := cmd.Admission.admit(ctx, h.directory); err != nil {
		return ActivityRecorded{}, err
	}
	stream := h.claims.Visitor(cmd.Admission.Caller.Account, cmd.VisitorID)
	a := &activity{Admission: cmd.Admission, parsed: parsed, checked: fmt.Sprint(cmd.Admission.checks())}
	h.activities.add(stream, a)
	err = h.transact.Do(ctx, []string{stream}, func(ctx context.Context) error {
		if all := h.activities.take(stream, a); len(all) > 0 {
			return h.appendActivities(ctx, stream, all)
		}
		return a.err // another caller has appended it
	})
	if h.activities.leave(stream, a) && err != nil && ctx.Err() != nil {
		return ActivityRecorded{}, fmt.Errorf("%w: %w: the append was in progress", eventstore.ErrUnavailable, err)
	}
	if err != nil {
		return ActivityRecorded{}, err
	}
	countAppended(ctx, a.bytes)
	return a.recorded, nil
}

// activity is an activity to be recorded, and then the result.
type activity struct {
	Admission
	parsed  event.VisitorActed
	checked string // what its append checks

	// Guarded by the mutex of activityQueues.
	taken bool // by another caller
	left  bool // its caller waits no longer

	recorded ActivityRecorded
	bytes    int64 // that it appended
	err      error
}

// Bounds of an append of several activities, so that every engine takes it.
const (
	maxActivities     = 32
	maxActivitiesSize = 512 << 10 // bytes; seals add a third
)

// activityQueues has the activities that wait for their turn on a stream. The first whose turn it is takes the others:
// a web site may name all its visitors alike, and one append after the other would cost six times as much.
type activityQueues struct {
	mu sync.Mutex
	of map[string][]*activity // by stream
}

func (q *activityQueues) add(stream string, a *activity) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.of[stream] = append(q.of[stream], a)
}

// take takes an activity whose turn it is, and others whose appends have the same checks, so that all are refused or
// none. It returns none if another caller took it.
func (q *activityQueues) take(stream string, a *activity) []*activity {
	q.mu.Lock()
	defer q.mu.Unlock()
	if a.taken {
		return nil
	}
	a.checked = fmt.Sprint(a.checks()) // may have changed after a conflict
	all := []*activity{a}
	q.of[stream] = slices.DeleteFunc(q.of[stream], func(other *activity) bool {
		if other == a {
			return true
		}
		if len(all) == maxActivities || other.checked != a.checked {
			return false
		}
		other.taken, other.err = true, fmt.Errorf("%w: the append was in progress", eventstore.ErrUnavailable)
		all = append(all, other)
		return true
	})
	return all
}

// giveBack lets activities that were taken, and are not on the log, have turns of their own.
func (q *activityQueues) giveBack(stream string, all []*activity) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var waiting []*activity
	for _, a := range all {
		if a.taken, a.err = false, nil; !a.left {
			waiting = append(waiting, a)
		}
	}
	q.of[stream] = append(waiting, q.of[stream]...)
}

// leave ends the waiting of an activity, and reports whether another caller has taken it.
func (q *activityQueues) leave(stream string, a *activity) (taken bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	a.left = true
	waiting := slices.DeleteFunc(q.of[stream], func(other *activity) bool { return other == a })
	if q.of[stream] = waiting; len(waiting) == 0 {
		delete(q.of, stream)
	}
	return a.taken
}

// appendActivities appends activities whose appends have the same checks to a visitor's stream, and sets their results.
// It gives back those that it has not appended. The error is that of the first.
//
// No decision depends on what the visitor did before. The append expects the last revision all the same: when the
// visitor is forgotten at this moment, the activities are either covered by that fact or appended after it, under a new
// key.
func (h *Handlers) appendActivities(ctx context.Context, stream string, all []*activity) error {
	write, fit, err := h.stampActivities(ctx, stream, all)
	h.activities.giveBack(stream, all[fit:])
	all = all[:fit]
	var position eventstore.Position
	if err == nil {
		position, err = h.store.Append(uncounted(ctx), append(all[0].checks(), write)...)
	}
	if err == nil || errors.Is(err, eventstore.ErrUnavailable) {
		for _, a := range all {
			a.recorded.Position, a.err = position, err
		}
		return err
	}
	h.activities.giveBack(stream, all[1:])
	if conflict := eventstore.Conflict(err); conflict != nil {
		if _, refused := all[0].confirmAfter(ctx, h.directory, conflict); refused != nil {
			return refused
		}
	}
	return err
}

// stampActivities makes the events of as many activities as fit into an append, and sets their results.
func (h *Handlers) stampActivities(
	ctx context.Context, stream string, all []*activity,
) (write eventstore.Write, fit int, err error) {
	last, err := h.store.Last(ctx, stream)
	if err != nil {
		return write, len(all), err
	}
	write = eventstore.Write{Stream: stream, Expect: eventstore.After(last)}
	at, size := last.At, int64(0)
	for i, a := range all {
		at = h.after(at)
		acted := a.parsed
		if acted.At.IsZero() {
			acted.At = at
		}
		stamped, err := h.stamp(a.Caller, at, acted)
		if err != nil {
			return write, len(all), err
		}
		a.bytes = bytesOf([]eventstore.Write{{Events: []eventstore.Event{stamped}}})
		if size += a.bytes; i > 0 && size > maxActivitiesSize {
			return write, i, nil
		}
		a.recorded = ActivityRecorded{ID: stamped.ID.String(), Activity: acted, At: at}
		write.Events = append(write.Events, stamped)
	}
	return write, len(all), nil
}
