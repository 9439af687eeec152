package command

import (
	"context"
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
	At       time.Time // when it was recorded
	Position eventstore.Position
}

// RecordActivity appends an activity to its visitor's stream. One without a time happened when it is recorded.
//
// The errors are field.Errors, ErrUnauthorized, ErrFeatureDisabled and those of the store.
func (h *Handlers) RecordActivity(ctx context.Context, cmd RecordActivity) (recorded ActivityRecorded, err error) {
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
	// No decision depends on what the visitor did before. The append expects the last revision all the same: when the
	// visitor is forgotten at this moment, the activity is either covered by that fact or appended after it, under a
	// new key.
	err = h.transact.Do(ctx, []string{stream}, func(ctx context.Context) error {
		last, err := h.store.Last(ctx, stream)
		if err != nil {
			return err
		}
		acted, at := parsed, h.after(last.At)
		if acted.At.IsZero() {
			acted.At = at
		}
		write, err := h.write(cmd.Admission.Caller, stream, eventstore.After(last), at, acted)
		if err != nil {
			return err
		}
		position, err := h.store.Append(ctx, append(cmd.Admission.checks(), write)...)
		recorded = ActivityRecorded{write.Events[0].ID.String(), acted, at, position}
		if conflict := eventstore.Conflict(err); conflict != nil {
			if _, refused := cmd.Admission.confirmAfter(ctx, h.directory, conflict); refused != nil {
				return refused
			}
		}
		return err
	})
	if err != nil {
		return ActivityRecorded{}, err
	}
	return recorded, nil
}
