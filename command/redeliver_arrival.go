package command

import (
	"bytes"
	"context"
	"errors"
	"maps"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/arrival"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// redeliver tries a quarantined arrival again whose sender has delivered it again, with its new content. The arrival
// stays the same one. Without new content and another outcome, nothing is appended.
func (h *Handlers) redeliver(
	ctx context.Context, cmd ReceiveArrival, settings *Cached[account.State], before ArrivalReceived,
) (answer ArrivalReceived, err error) {
	err = h.changeArrival(ctx, before.ID, func(ctx context.Context, of loadedArrival) (err error) {
		answer = ArrivalReceived{ID: before.ID, Repeated: true, Position: before.Position}
		if of.State != arrival.Quarantined || of.Deleted || of.Lost {
			return nil
		}
		c := &capture{Handlers: h, CaptureLead: CaptureLead{
			Admission: Admission{Caller: cmd.Caller, Account: settings}, Body: cmd.Mapped.Body, Source: cmd.Source,
		}}
		c.own = of.again(cmd.Caller)
		c.own.intake, c.own.askPerson, c.own.mapped = cmd.Intake, cmd.AskPerson, cmd.Mapped.Warnings
		if same, err := sameContent(of.Raw, cmd.Raw); err != nil {
			return err
		} else if c.own.renewed = !same; c.own.renewed {
			redelivered, err := h.stamp(cmd.Caller, h.after(of.UpdatedAt), event.ArrivalRedelivered{Raw: cmd.Raw})
			if err != nil {
				return err
			}
			c.own.before, c.own.since = []eventstore.Event{redelivered}, redelivered.At
		}
		tried := ArrivalReceived{ID: before.ID}
		if cmd.pending() {
			tried.State = arrival.Received
			tried.Position, err = c.appendUncaptured(ctx, event.ArrivalResubmitted{Fetch: true})
		} else {
			captured, failed := c.captureMapped(ctx, cmd.Mapped)
			err = c.finish(&tried, captured, failed)
		}
		if tried.Position > 0 { // something was appended
			answer = tried
		}
		if stale, is := errors.AsType[*staleError](err); is && stale.stream == cmd.Intake.Stream {
			err = ErrIntakeChanged
		}
		return err
	})
	return answer, err
}

// sameContent reports whether two posts are the same but for their headers.
func sameContent(a, b event.ArrivalRaw) (bool, error) {
	bodyA, err := a.Bytes()
	if err != nil {
		return false, err
	}
	bodyB, err := b.Bytes()
	return a.ContentType == b.ContentType && a.Item == b.Item && a.Post == b.Post && maps.Equal(a.Query, b.Query) &&
		bytes.Equal(bodyA, bodyB), err
}
