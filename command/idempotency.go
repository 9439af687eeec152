package command

import (
	"context"
	"crypto/hmac"
	"errors"
	"fmt"
	"time"

	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// ErrKeyReused says that an idempotency key was bound before, to another body.
var ErrKeyReused = errors.New("idempotency key was used for another request body")

// ErrErased says that an idempotency key was bound to an arrival whose lead has been erased since, and its answer with it.
var ErrErased = errors.New("the lead of this idempotency key was erased")

// binding is an arrival's claim on its idempotency key. It is appended together with the outcome, before it, so that a key has
// one outcome. An arrival without an outcome, such as one with bad fields, leaves the key free.
//
// On a store without transactions the claim may be there without the outcome. Then the key is still free, but whoever uses it
// next first closes the stream that the claim names, at the revision where the outcome is missing: either the first writer
// meets a conflict when it appends the outcome after all, or the outcome is found.
type binding struct {
	stream string
	digest []byte
	expect eventstore.Expected
	since  time.Time // of the claim's latest fact
	own    string    // event id of the outcome that this arrival last tried to append
}

func (h *Handlers) newBinding(cmd CaptureLead) *binding {
	account := cmd.Admission.Caller.Account
	return &binding{
		stream: h.claims.Stream(account, claim.Idempotency, cmd.IdempotencyKey),
		digest: h.claims.Digest(account, cmd.Body),
		expect: eventstore.NoStream,
	}
}

// bind returns the write that claims the arrival's key for an outcome, or none when there is no key.
func (c *capture) bind(outcome eventstore.Write) ([]eventstore.Write, error) {
	if c.binding == nil {
		return nil, nil
	}
	c.binding.own = outcome.Events[0].ID.String()
	bound, err := c.write(c.Admission.Caller.withoutOrigin(), c.binding.stream, c.binding.expect, c.after(c.binding.since), event.ClaimBound{
		Kind: string(claim.Idempotency), Digest: c.binding.digest, Stream: outcome.Stream, EventID: c.binding.own,
		Revision: int64(outcome.Expect) + 1,
	})
	if err != nil {
		return nil, err
	}
	return []eventstore.Write{bound}, nil
}

// recall returns the earlier answer of the arrival's key. Answered is false when it has none, or there is no key. With answered,
// the error is part of the answer: a *LeadRefused, ErrErased, or ErrKeyReused when the key was used for another body.
func (c *capture) recall(ctx context.Context) (answer LeadCaptured, answered bool, err error) {
	if c.binding == nil {
		return LeadCaptured{}, false, nil
	}
	held, expect, err := eventstore.Load(ctx, c.store, c.binding.stream, claim.Evolve)
	if err != nil || expect == eventstore.NoStream {
		return LeadCaptured{}, false, err
	}
	c.binding.expect, c.binding.since = expect, held.UpdatedAt
	if held.Bound.EventID == "" || held.Bound.EventID == c.binding.own {
		return LeadCaptured{}, false, nil // the key is free, or bound to this arrival's own last attempt, which met a conflict
	}
	if c.EnterStream != nil && held.Bound.Revision >= int64(leadFolds.Long) {
		leave, err := c.EnterStream()
		if err != nil {
			return LeadCaptured{}, false, err
		}
		defer leave()
	}
	outcome, err := c.outcomeOf(ctx, held.Bound)
	if err == nil && !outcome.there && !c.DryRun {
		err = c.close(ctx, c.Admission.Caller.Account, outcome.holder, c.binding.stream)
	}
	if !outcome.there {
		return LeadCaptured{}, false, err
	}
	// No append confirms the admission, and a caller who is no longer let in must not learn the answer.
	if _, unconfirmed := c.Admission.confirm(ctx, c.directory); unconfirmed != nil {
		return LeadCaptured{}, false, unconfirmed
	}
	if !hmac.Equal(held.Bound.Digest, c.binding.digest) {
		return LeadCaptured{}, true, ErrKeyReused
	}
	if outcome.refused != nil {
		return LeadCaptured{}, true, outcome.refused
	}
	if outcome.erased {
		return LeadCaptured{}, true, ErrErased
	}
	return outcome.captured, true, nil
}

// recallAlone is recall outside of decide's transaction, for an arrival whose fields are bad.
func (c *capture) recallAlone(ctx context.Context) (answer LeadCaptured, answered bool, err error) {
	if c.binding == nil {
		return LeadCaptured{}, false, nil
	}
	err = c.transact.Do(ctx, []string{c.binding.stream}, func(ctx context.Context) (err error) {
		answer, answered, err = c.recall(ctx)
		return err
	})
	return answer, answered, err
}

// outcome is what the stream that an idempotency key is bound to says about the arrival.
type outcome struct {
	there    bool
	captured LeadCaptured
	refused  *LeadRefused // set instead of captured when the arrival was refused
	erased   bool         // the lead was erased since
	holder   holder       // the stream as it is now, when the outcome is not there
}

// outcomeOf looks for the outcome at its place on its stream. The answer is the lead as it was right after the outcome, folded from
// where an earlier fold came to. The lead may have been erased since, which the stream's last event shows.
func (h *Handlers) outcomeOf(ctx context.Context, bound event.ClaimBound) (found outcome, err error) {
	revision := eventstore.Revision(bound.Revision)
	folded, at, err := h.leads.LoadTo(ctx, h.store, bound.Stream, revision)
	if err == nil && at.ID.String() != bound.EventID {
		// The holder is read before the outcome is looked for again: if it comes in between, closing the holder meets a conflict.
		if found.holder, err = h.holderOf(ctx, bound.Stream); err == nil {
			folded, at, err = h.leads.LoadTo(ctx, h.store, bound.Stream, revision)
		}
	}
	if err != nil || at.ID.String() != bound.EventID {
		return found, err
	}
	fact, err := at.Fact()
	if err != nil {
		return outcome{}, fmt.Errorf("stream %s at revision %d: %w", bound.Stream, at.Revision, err)
	}
	found.there = true
	if refused, ok := fact.Data.(event.LeadRefused); ok {
		found.refused = &LeadRefused{Refusal: &lead.Refusal{Fact: refused}, Position: at.Position, Replayed: true}
		return found, nil
	}
	last, err := h.store.Last(ctx, bound.Stream)
	if err != nil {
		return outcome{}, err
	}
	_, merged := fact.Data.(event.LeadMerged)
	found.captured = LeadCaptured{Lead: folded.Lead, Merged: merged, Position: at.Position, Replayed: true, fact: fact.Data}
	found.erased = last.Erased || last.Type == event.LeadErased{}.EventType()
	return found, nil
}
