package command

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// ReleaseContact asks that a phone or email of a lead be freed, so that the next to arrive with it is somebody new: a
// number that was given to somebody else, or a wrong person that was matched.
type ReleaseContact struct {
	Caller Caller
	LeadID string
	Body   map[string]jsontext.Value // members of the request's body: phone or email
}

// ReleaseContact takes a phone or email from a lead of the caller's account and then releases its claim. A process that is
// killed between the two leaves a claim whose holder does not have the value, which counts as free.
//
// The errors are lead.ErrNotFound, *lead.DepartedError, lead.ErrLastContact, field.Errors and those of the store.
func (h *Handlers) ReleaseContact(ctx context.Context, cmd ReleaseContact) (updated LeadUpdated, err error) {
	if !validID(cmd.LeadID) {
		return LeadUpdated{}, lead.ErrNotFound
	}
	stream := event.LeadStream(cmd.LeadID)
	err = h.transact.Do(ctx, []string{stream}, func(ctx context.Context) (err error) {
		updated, err = h.releaseContact(ctx, cmd, stream)
		return err
	})
	return updated, err
}

func (h *Handlers) releaseContact(ctx context.Context, cmd ReleaseContact, stream string) (LeadUpdated, error) {
	state, expect, err := eventstore.Load(ctx, h.store, stream, lead.Fold)
	if err != nil {
		return LeadUpdated{}, err
	}
	account, err := h.directory.ConfirmAccount(ctx, cmd.Caller.Account)
	if err != nil {
		return LeadUpdated{}, err
	}
	released, err := state.Release(cmd.Caller.Account, cmd.Body, lead.Rules{Region: account.State.Region})
	if err != nil {
		return LeadUpdated{}, h.toHeir(ctx, err)
	}
	write, err := h.write(cmd.Caller, stream, expect, h.after(state.UpdatedAt), released)
	if err != nil {
		return LeadUpdated{}, err
	}
	left := leaving{kind: claim.Phone, holder: cmd.LeadID}
	value := released.Phone
	if value == "" {
		left.kind, value = claim.Email, released.Email
	}
	left.stream = h.claims.Stream(cmd.Caller.Account, left.kind, value)
	position, err := h.vacate(ctx, cmd.Caller, left, write, account.Check())
	if err != nil {
		return LeadUpdated{}, err
	}
	return LeadUpdated{Lead: evolved(state, stream, write, released), Position: position}, nil
}

// evolved is a lead after a fact that was written to its stream.
func evolved(state lead.State, stream string, write eventstore.Write, data event.Data) lead.State {
	fact := write.Events[0]
	return lead.Evolve(state, event.Fact{ID: fact.ID, Stream: stream, At: fact.At, Metadata: fact.Metadata, Data: data})
}
