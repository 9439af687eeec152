package command

import (
	"context"
	"crypto/hmac"
	"errors"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// ErrKeyReused says that an idempotency key was bound before, to another body.
var ErrKeyReused = errors.New("idempotency key was used for another request body")

// binding is an arrival's claim on its idempotency key. It goes into the append of the outcome, before it, so that one
// key has one outcome; an arrival that comes to none leaves the key free.
//
// On a store without transactions the claim can be there and the outcome not. Then the key is free still, but whoever
// decides anew gives the outcome the same event id, and closes the lead that was not born: whatever the first writer
// was about to append meets a conflict, or is found.
type binding struct {
	stream  string
	digest  []byte
	expect  eventstore.Expected
	since   time.Time // of the claim's latest fact
	eventID ulid.ULID // of the outcome as the claim fixed it; zero while nobody has
}

func (h *Handlers) newBinding(cmd CaptureLead) *binding {
	account := cmd.Admission.Caller.Account
	return &binding{
		stream: h.claims.Stream(account, claim.Idempotency, cmd.IdempotencyKey),
		digest: h.claims.Digest(account, cmd.Body),
		expect: eventstore.NoStream,
	}
}

// outcome is the event id that the outcome must have; otherwise is one to take when nothing fixed it.
func (b *binding) outcome(otherwise ulid.ULID) ulid.ULID {
	if b.eventID.IsZero() {
		return otherwise
	}
	return b.eventID
}

// bind is the write that claims the arrival's key for an outcome, and gives the outcome the event id that the claim
// has fixed. Without a key it is none.
func (c *capture) bind(outcome *eventstore.Write) ([]eventstore.Write, error) {
	if c.binding == nil {
		return nil, nil
	}
	fact := &outcome.Events[0]
	fact.ID = c.binding.outcome(fact.ID)
	bound, err := c.write(c.Admission.Caller, c.binding.stream, c.binding.expect, c.after(c.binding.since), event.ClaimBound{
		Kind: string(claim.Idempotency), Digest: c.binding.digest, Stream: outcome.Stream, EventID: fact.ID.String(),
	})
	if err != nil {
		return nil, err
	}
	bound.Events[0].Metadata.IP, bound.Events[0].Metadata.UserAgent = "", "" // nothing of the person
	return []eventstore.Write{bound}, nil
}

// recall gives the answer that the arrival's key had before; answered is false when it had none, or there is no key.
// The error may be that answer too, a *LeadRefused, or ErrKeyReused when it was for another body.
func (c *capture) recall(ctx context.Context) (answer LeadCaptured, answered bool, err error) {
	if c.binding == nil {
		return LeadCaptured{}, false, nil
	}
	held, expect, err := eventstore.Load(ctx, c.store, c.binding.stream, claim.Evolve)
	if err != nil || expect == eventstore.NoStream {
		return LeadCaptured{}, false, err
	}
	c.binding.expect, c.binding.since = expect, held.UpdatedAt
	if c.binding.eventID, err = ulid.ParseStrict(held.Bound.EventID); err != nil {
		return LeadCaptured{}, false, fmt.Errorf("stream %s: %w", c.binding.stream, err)
	}
	answer, answered, err = c.outcomeOf(ctx, held.Bound.Stream)
	if !answered {
		return LeadCaptured{}, false, err
	}
	// No append confirms the admission, and who is not let in any more learns nothing.
	if _, unconfirmed := c.Admission.confirm(ctx, c.directory); unconfirmed != nil {
		return LeadCaptured{}, false, unconfirmed
	}
	if !hmac.Equal(held.Bound.Digest, c.binding.digest) {
		return LeadCaptured{}, true, ErrKeyReused
	}
	return answer, true, err
}

// recallAlone is recall for an arrival that decides nothing after it.
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

// outcomeOf looks for the outcome on its stream, and folds the stream up to there: the answer is as it was then.
func (c *capture) outcomeOf(ctx context.Context, stream string) (_ LeadCaptured, there bool, err error) {
	var state lead.State
	empty := true
	for recorded, err := range c.store.Read(ctx, stream, 0) {
		if err != nil {
			return LeadCaptured{}, false, err
		}
		fact, err := recorded.Fact()
		if err != nil {
			return LeadCaptured{}, false, fmt.Errorf("stream %s at revision %d: %w", stream, recorded.Revision, err)
		}
		empty = false
		state = lead.Evolve(state, fact)
		if fact.ID != c.binding.eventID {
			continue
		}
		if refused, ok := fact.Data.(event.LeadRefused); ok {
			return LeadCaptured{}, true, &LeadRefused{
				Refusal: &lead.Refusal{Fact: refused}, Position: recorded.Position, Replayed: true,
			}
		}
		_, merged := fact.Data.(event.LeadMerged)
		return LeadCaptured{Lead: state, Merged: merged, Position: recorded.Position, Replayed: true}, true, nil
	}
	if empty && event.LeadID(stream) != stream {
		return LeadCaptured{}, false, c.abandon(ctx, c.Admission.Caller.Account, stream, event.LeadAbandoned{})
	}
	return LeadCaptured{}, false, nil
}
