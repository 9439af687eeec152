package command

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// ReleaseContact is the command that takes a phone or email from a lead, so that the next arrival with it is a new
// lead: the number has been assigned to another person, or the wrong person was matched.
type ReleaseContact struct {
	Caller Caller
	LeadID string
	Body   map[string]jsontext.Value // members of the request's body: phone or email
}

// ReleaseContact takes a phone or email from a lead of the caller's account and releases its claim, in one append.
//
// The errors are lead.ErrNotFound, *lead.JoinedError, lead.ErrLastContact, field.Errors and those of the store.
func (h *Handlers) ReleaseContact(ctx context.Context, cmd ReleaseContact) (LeadUpdated, error) {
	var claimed string // the stream of the claim
	released, err := h.changeLead(ctx, cmd.Caller, cmd.LeadID, func(
		state lead.State, rules lead.Rules,
	) (event.Data, error) {
		released, err := state.Release(cmd.Caller.Account, cmd.Body, rules)
		kind, value := claim.Phone, released.Phone
		if value == "" {
			kind, value = claim.Email, released.Email
		}
		claimed = h.claims.Stream(cmd.Caller.Account, kind, value)
		return released, err
	}, func(ctx context.Context, account, fact eventstore.Write) (eventstore.Position, error) {
		release, err := h.releaseClaim(ctx, cmd.Caller, claimed, cmd.LeadID)
		if err != nil {
			return 0, err
		}
		return h.store.Append(ctx, append(append(release, account), fact)...)
	})
	return released.shownTo(cmd.Caller, nil), err
}
