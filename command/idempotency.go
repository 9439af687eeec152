package command

import (
	"context"
	"crypto/hmac"
	"errors"
	"fmt"
	"time"

	"github.com/leadlog/leadlog/command/arrival"
	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// ErrKeyReused means that an idempotency key was bound before, to another body.
var ErrKeyReused = errors.New("idempotency key was used for another request body")

// ErrErased means that an idempotency key was bound to an arrival whose lead has been erased since, and its answer with
// it.
var ErrErased = errors.New("the lead of this idempotency key was erased")

// binding is an arrival's claim on its idempotency key or its delivery id. It is appended together with the outcome, so
// that a key has one outcome. An arrival without an outcome, such as one with bad fields, leaves the key free; if it is
// kept, for other bodies only.
type binding struct {
	kind   claim.Kind // Idempotency or Delivery
	stream string
	digest []byte
	expect eventstore.Expected
	since  time.Time // of the claim's latest fact
}

func (h *Handlers) newBinding(cmd CaptureLead) *binding {
	account, body := cmd.Admission.Caller.Account, cmd.Body
	if cmd.KeyAlone {
		body = nil
	}
	return &binding{
		kind:   claim.Idempotency,
		stream: h.claims.Stream(account, claim.Idempotency, cmd.IdempotencyKey),
		digest: h.claims.Digest(account, body),
		expect: eventstore.NoStream,
	}
}

// bind returns the write that claims the arrival's key for an outcome, or none when there is no key.
func (c *capture) bind(outcome eventstore.Write) ([]eventstore.Write, error) {
	if c.binding == nil {
		return nil, nil
	}
	bound, err := c.write(c.Admission.Caller.withoutOrigin(), c.binding.stream, c.binding.expect,
		c.after(c.binding.since), event.ClaimBound{
			Kind: string(c.binding.kind), Digest: c.binding.digest, Stream: outcome.Stream,
			EventID:  outcome.Events[0].ID.String(),
			Revision: int64(outcome.Expect) + 1,
		})
	if err != nil {
		return nil, err
	}
	return []eventstore.Write{bound}, nil
}

// recall returns the earlier answer of the arrival's key. Answered is false when it has none, or there is no key. With
// answered, the error is part of the answer: a *LeadRefused, ErrErased, or ErrKeyReused when the key was used for
// another body.
func (c *capture) recall(ctx context.Context) (answer LeadCaptured, answered bool, err error) {
	if c.binding == nil {
		return LeadCaptured{}, false, nil
	}
	claimed, expect, err := eventstore.Load(ctx, c.store, c.binding.stream, claim.Evolve)
	if err != nil || expect == eventstore.NoStream {
		return LeadCaptured{}, false, err
	}
	c.binding.expect, c.binding.since = expect, claimed.UpdatedAt
	if claimed.Bound.EventID == "" {
		return c.recallQuarantined(ctx, claimed.Quarantined)
	}
	if c.binding.kind == claim.Delivery {
		return LeadCaptured{}, true, c.repeated(ctx, claimed.Bound)
	}
	if c.EnterStream != nil && claimed.Bound.Revision >= int64(leadFolds.Long) {
		leave, err := c.EnterStream()
		if err != nil {
			return LeadCaptured{}, false, err
		}
		defer leave()
	}
	outcome, err := c.outcomeOf(ctx, claimed.Bound)
	if err != nil {
		return LeadCaptured{}, false, err
	}
	// No append confirms the admission, and a caller who is no longer authorized must not learn the answer.
	if refused := c.Admission.Confirm(ctx, c.directory); refused != nil {
		return LeadCaptured{}, false, refused
	}
	if !hmac.Equal(claimed.Bound.Digest, c.binding.digest) {
		return LeadCaptured{}, true, ErrKeyReused
	}
	if c.Import {
		again, err := c.importAgain(ctx, outcome)
		if again || err != nil {
			return LeadCaptured{}, false, err
		}
	}
	if outcome.refused != nil {
		return LeadCaptured{}, true, outcome.refused
	}
	if outcome.erased {
		return LeadCaptured{}, true, ErrErased
	}
	return outcome.captured, true, nil
}

// maxQuarantined bounds how many bodies an idempotency key remembers that were quarantined, and with it the claim's
// stream.
const maxQuarantined = 64

// recallQuarantined returns the earlier answer of an arrival that was quarantined with the same idempotency key and
// body, as recall does.
func (c *capture) recallQuarantined(
	ctx context.Context, quarantined []event.ClaimBound,
) (answer LeadCaptured, answered bool, err error) {
	for _, bound := range quarantined {
		if !hmac.Equal(bound.Digest, c.binding.digest) {
			continue
		}
		if refused := c.Admission.Confirm(ctx, c.directory); refused != nil {
			return LeadCaptured{}, false, refused
		}
		again := &Quarantined{ArrivalID: event.ArrivalID(bound.Stream), Replayed: true}
		for recorded, err := range c.store.Read(ctx, bound.Stream, eventstore.Revision(bound.Revision)) {
			if err != nil {
				return LeadCaptured{}, false, err
			}
			fact, err := recorded.Fact()
			if err != nil {
				return LeadCaptured{}, false, err
			}
			if quarantined, is := fact.Data.(event.ArrivalQuarantined); is {
				again.Errors, again.Position = arrival.Errors(quarantined.Reasons), recorded.Position
				break
			}
		}
		return LeadCaptured{}, true, again
	}
	return LeadCaptured{}, false, nil
}

// recallAlone is recall for an arrival whose fields are bad.
func (c *capture) recallAlone(ctx context.Context) (answer LeadCaptured, answered bool, err error) {
	if c.binding == nil {
		return LeadCaptured{}, false, nil
	}
	if err := c.enter(ctx); err != nil {
		return LeadCaptured{}, false, err
	}
	return c.recall(ctx)
}

// importAgain reports whether a row of a file is decided on again, although its key has an answer: its lead was taken
// back with the import that made it, or it was refused for a lead that is gone, or because duplicates were refused and
// now merge.
func (c *capture) importAgain(ctx context.Context, before outcome) (bool, error) {
	if before.refused == nil {
		return before.takenBack, nil
	}
	if c.MergeDuplicates {
		return true, nil
	}
	claimed, err := c.loadLead(ctx, event.LeadStream(before.refused.Fact.LeadID))
	return claimed.lead.Phase == lead.Erased, err
}

// outcome is the outcome of an arrival, read from the stream that its idempotency key is bound to.
type outcome struct {
	captured LeadCaptured
	refused  *LeadRefused // set instead of captured when the arrival was refused
	erased   bool         // the lead was erased since
	// takenBack says that it was erased because the import that made it was undone.
	takenBack bool
}

// outcomeOf reads the outcome at its revision of its stream. The answer is the lead as it was right after the outcome,
// folded from where an earlier fold came to. The lead may have been erased since, which the stream's last event shows.
func (h *Handlers) outcomeOf(ctx context.Context, bound event.ClaimBound) (found outcome, err error) {
	folded, at, err := h.leads.LoadTo(ctx, h.store, bound.Stream, eventstore.Revision(bound.Revision))
	if err != nil {
		return found, err
	}
	if at.ID.String() != bound.EventID {
		return found, fmt.Errorf("stream %s at revision %d: not the event that an idempotency key is bound to",
			bound.Stream, bound.Revision)
	}
	fact, err := at.Fact()
	if err != nil {
		return outcome{}, fmt.Errorf("stream %s at revision %d: %w", bound.Stream, at.Revision, err)
	}
	if refused, ok := fact.Data.(event.LeadRefused); ok {
		found.refused = &LeadRefused{Refusal: &lead.Refusal{Fact: refused}, Position: at.Position, Replayed: true}
		return found, nil
	}
	last, err := h.store.Last(ctx, bound.Stream)
	if err != nil {
		return outcome{}, err
	}
	_, merged := fact.Data.(event.LeadMerged)
	found.captured = LeadCaptured{
		Lead: folded, Merged: merged, Position: at.Position, EventID: bound.EventID, Replayed: true, fact: fact.Data,
	}
	found.erased = last.Erased || last.Type == event.LeadErased{}.EventType()
	found.takenBack = last.Type == event.LeadErased{}.EventType() && last.Metadata.Actor == UndoActor
	return found, nil
}
