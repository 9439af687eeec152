package command

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// RecordConsents is the command that records consents, or their withdrawal, without an arrival.
type RecordConsents struct {
	Caller   Caller
	LeadID   string
	Consents jsontext.Value // one object, or a list of them
}

// RecordConsents appends the consents, and returns them. When the lead has all of them, nothing is appended.
//
// The errors are lead.ErrNotFound, *lead.JoinedError, field.Errors and those of the store.
func (h *Handlers) RecordConsents(
	ctx context.Context, cmd RecordConsents,
) (given []lead.GivenConsent, at eventstore.Position, err error) {
	updated, err := h.changeLead(ctx, cmd.Caller, cmd.LeadID, func(state lead.State, _ lead.Rules) (event.Data, error) {
		var fact event.LeadConsented
		fact, given, err = state.RecordConsents(cmd.Caller.Account, cmd.Consents)
		if err != nil || len(fact.ChangedConsents) == 0 {
			return nil, err
		}
		return fact, nil
	}, func(ctx context.Context, account, fact eventstore.Write) (eventstore.Position, error) {
		return h.store.Append(ctx, account, fact)
	})
	return given, updated.Position, err
}
