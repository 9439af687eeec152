package command

import (
	"context"
	"fmt"
	"slices"

	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// Heal finishes what a killed process may have left of one claim. If the holder does not have the claimed value, Heal closes the
// holder's stream to it and releases the claim. If the holder has become part of another lead, the claim moves to that lead. It
// returns what it did, without personal data, or "" when there was nothing to do.
//
// It may run beside a live service: a command that was not killed but is still running meets a conflict and decides again.
func (h *Handlers) Heal(ctx context.Context, claimStream string) (did string, err error) {
	err = h.transact.Do(ctx, []string{claimStream}, func(ctx context.Context) (err error) {
		did, err = h.heal(ctx, claimStream)
		return err
	})
	return did, err
}

func (h *Handlers) heal(ctx context.Context, stream string) (did string, err error) {
	held, expect, err := eventstore.Load(ctx, h.store, stream, claim.Evolve)
	if err != nil || held.Holder == "" && held.Bound.EventID == "" {
		return "", err
	}
	found, err := h.leftover(ctx, stream, held)
	if err != nil || found.why == "" {
		return "", err
	}
	var finished event.Data = event.ClaimReleased{Kind: string(held.Kind), Holder: held.Holder}
	if found.heir != "" {
		finished = event.ClaimTaken{Kind: string(held.Kind), Holder: found.heir}
	}
	last, err := h.write(claimKeeper(held.Account), stream, expect, h.after(held.UpdatedAt), finished)
	if err != nil {
		return "", err
	}
	if _, err := h.store.Append(ctx, append(found.closed, last)...); err != nil {
		return "", err
	}
	if held.Kind == claim.WebhookSlot {
		h.destroySecret(ctx, held.Holder)
	}
	if found.heir != "" {
		return fmt.Sprintf("%s: moved the %s claimed for %s to %s, which it was joined into", stream, held.Kind, found.holder, event.LeadStream(found.heir)), nil
	}
	return fmt.Sprintf("%s: released the %s claimed for %s, which %s", stream, held.Kind, found.holder, found.why), nil
}

// leftover is a claim whose holder does not have what was claimed for it.
type leftover struct {
	holder string             // the holder's stream
	why    string             // why the holder does not have it; empty when it does
	closed []eventstore.Write // the writes after which the holder can never get it
	heir   string             // the lead that has it instead; empty when none does
}

func (h *Handlers) leftover(ctx context.Context, stream string, held claim.State) (leftover, error) {
	switch held.Kind {
	case claim.Phone, claim.Email:
		holder, err := h.holderOf(ctx, event.LeadStream(held.Holder))
		named := func(value string) bool { return h.claims.Stream(held.Account, held.Kind, value) == stream }
		if err == nil && holder.lead.Phase == lead.Departed {
			return h.leftByDeparted(ctx, holder, held, named)
		}
		if err != nil || holder.lead.Phase == lead.Live && slices.ContainsFunc(values(holder.lead, held.Kind), named) {
			return leftover{}, err
		}
		return h.leftBy(holder, stream, held, "does not have it")
	case claim.Idempotency:
		outcome, err := h.outcomeOf(ctx, held.Bound)
		if err != nil || outcome.there {
			return leftover{}, err
		}
		return h.leftBy(outcome.holder, stream, held, "does not hold the outcome")
	case claim.TokenSlot:
		return h.leftInSlot(ctx, h.tokenSlots(), held)
	case claim.WebhookSlot:
		return h.leftInSlot(ctx, h.webhookSlots(), held)
	}
	return leftover{}, nil
}

func (h *Handlers) leftBy(found holder, stream string, held claim.State, lacks string) (leftover, error) {
	left := leftover{holder: found.stream, why: "was abandoned"}
	switch {
	case found.expect == eventstore.NoStream:
		left.why = "was never born"
	case found.lead.Phase == lead.Live:
		left.why = lacks
	case found.lead.Phase == lead.Erased:
		left.why = "was erased"
	}
	var err error
	left.closed, err = h.closing(held.Account, found, stream)
	return left, err
}

// leftByDeparted is for a claim whose holder has departed. The claim moves to the heir, in one append with whatever is still
// missing from the heir.
func (h *Handlers) leftByDeparted(ctx context.Context, departed holder, held claim.State, named func(value string) bool) (leftover, error) {
	last, err := h.heirOf(ctx, held.Account, departed)
	left := leftover{holder: departed.stream, why: "departed without it", closed: last.complete()}
	if err == nil && last.lead.Phase == lead.Live && slices.ContainsFunc(values(last.lead, held.Kind), named) {
		left.heir = last.lead.ID
	}
	return left, err
}

func (h *Handlers) leftInSlot(ctx context.Context, s slots, held claim.State) (leftover, error) {
	holds, unborn, _, err := s.holder(ctx, held.Holder)
	if err != nil || holds {
		return leftover{}, err
	}
	left := leftover{holder: s.stream(held.Holder), why: "is gone"}
	if unborn {
		left.why = "was never born"
		closed, err := h.abandonment(held.Account, left.holder, s.abandoned)
		left.closed = []eventstore.Write{closed}
		return left, err
	}
	return left, nil
}
