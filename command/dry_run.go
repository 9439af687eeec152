package command

import (
	"context"
	"errors"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore/event"
)

// dryRun returns what decide would return, and appends nothing. Another arrival may
// come before the real one and change its outcome.
//
// No append confirms the admission, so it is read from the log first.
func (c *capture) dryRun(ctx context.Context) (LeadCaptured, error) {
	if _, err := c.Admission.confirm(ctx, c.directory); err != nil {
		return LeadCaptured{}, err
	}
	wrong := c.parse()
	if answer, answered, err := c.recall(ctx); answered || err != nil {
		return answer, err
	}
	if wrong != nil {
		return LeadCaptured{}, wrong
	}
	phone, email, err := c.owners(ctx)
	if err != nil {
		return LeadCaptured{}, err
	}
	decision, err := lead.Decide(c.arrival, c.rules(), phone.lead, email.lead, lead.NewIDs{})
	if refusal, refused := errors.AsType[*lead.Refusal](err); refused {
		return LeadCaptured{}, &LeadRefused{Refusal: refusal}
	}
	if err != nil {
		return LeadCaptured{}, err
	}
	before := target(decision, phone, email)
	after := lead.Evolve(before, event.Fact{
		Stream: event.LeadStream(decision.LeadID), At: c.after(before.UpdatedAt), Metadata: c.Admission.Caller.metadata(), Data: decision.Fact,
	})
	return LeadCaptured{Lead: after, Merged: decision.Merged, fact: decision.Fact}, nil
}
