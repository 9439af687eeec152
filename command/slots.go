package command

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// slots are an account's numbered places for tokens or endpoints, from 1 to count. Each is a claim, so that there are never more
// holders than slots, however many are created at once by however many processes.
type slots struct {
	kind  claim.Kind
	count int
	full  error // returned when all are taken
	// holder looks at the token or endpoint that a slot names: whether it still holds its slot, whether its stream is still
	// empty, and the revision of that stream.
	holder func(ctx context.Context, id string) (holds, unborn bool, expect eventstore.Expected, err error)
	// stream and abandoned are for closing the stream of a holder that is not there yet.
	stream    func(id string) string
	abandoned event.Data
}

// slot is a free place and the revision of its claim to expect when taking it.
type slot struct {
	number int
	stream string
	expect eventstore.Expected
	since  time.Time // of the claim's latest fact
}

// free finds the first free slot of an account. The error is s.full when there is none. Since the slots are read one after the
// other, an append of checks only then confirms that all were taken at the same moment; otherwise the error is its conflict.
func (h *Handlers) free(ctx context.Context, s slots, account string) (slot, error) {
	var seen []eventstore.Write
	for first := 1; first <= s.count; first += slotsAtOnce {
		places, err := h.look(ctx, s, account, first, min(slotsAtOnce, s.count+1-first))
		if err != nil {
			return slot{}, err
		}
		for _, p := range places {
			if p.unborn {
				if err := h.abandon(ctx, s, account, p.holder); err != nil {
					return slot{}, err
				}
			}
			if !p.held {
				return p.slot, nil
			}
			seen = append(seen, eventstore.Check(p.stream, p.expect), eventstore.Check(s.stream(p.holder), p.alive))
		}
	}
	if _, err := h.store.Append(ctx, seen...); err != nil {
		return slot{}, err
	}
	return slot{}, s.full
}

// slotsAtOnce is how many slots are read at a time, since everybody else who asks for a slot of the account waits meanwhile.
const slotsAtOnce = 5

// foundSlot is a slot as it was found.
type foundSlot struct {
	slot
	holder string              // that the claim names
	held   bool                // the holder still holds the slot
	unborn bool                // the holder's stream is empty
	alive  eventstore.Expected // the holder's stream
}

// look reads n slots at the same time.
func (h *Handlers) look(ctx context.Context, s slots, account string, first, n int) ([]foundSlot, error) {
	places := make([]foundSlot, n)
	looking, ctx := errgroup.WithContext(ctx)
	for i := range places {
		looking.Go(func() (err error) {
			places[i], err = h.lookAt(ctx, s, account, first+i)
			return err
		})
	}
	return places, looking.Wait()
}

func (h *Handlers) lookAt(ctx context.Context, s slots, account string, number int) (foundSlot, error) {
	stream := h.claims.Slot(account, s.kind, number)
	claimed, expect, err := eventstore.Load(ctx, h.store, stream, claim.Evolve)
	found := foundSlot{slot: slot{number, stream, expect, claimed.UpdatedAt}, holder: claimed.Holder}
	if err != nil || claimed.Holder == "" {
		return found, err
	}
	found.held, found.unborn, found.alive, err = s.holder(ctx, claimed.Holder)
	return found, err
}

// abandon closes the empty stream of a holder.
func (h *Handlers) abandon(ctx context.Context, s slots, account, holder string) error {
	closed, err := h.abandonment(account, s.stream(holder), s.abandoned)
	if err == nil {
		_, err = h.store.Append(ctx, closed)
	}
	return err
}

// take returns the write that gives a free slot to a holder.
func (h *Handlers) take(caller Caller, s slots, free slot, holder string) (eventstore.Write, error) {
	return h.write(caller.withoutOrigin(), free.stream, free.expect, h.after(free.since), event.ClaimTaken{Kind: string(s.kind), Holder: holder})
}

// leaving is a claim that its holder is giving up.
type leaving struct {
	kind           claim.Kind
	stream, holder string
}

func (h *Handlers) leavingSlot(account string, s slots, number int, holder string) leaving {
	return leaving{s.kind, h.claims.Slot(account, s.kind, number), holder}
}

// vacate appends checks, then the fact by which a holder gives up its claim, then the release of the claim. As soon as the fact
// is on the log, somebody else may take the claim; then there is nothing to release.
func (h *Handlers) vacate(ctx context.Context, caller Caller, left leaving, fact eventstore.Write, checks ...eventstore.Write) (eventstore.Position, error) {
	writes := append(slices.Clone(checks), fact)
	held, expect, err := eventstore.Load(ctx, h.store, left.stream, claim.Evolve)
	if err != nil {
		return 0, err
	}
	if held.Holder != left.holder {
		return h.store.Append(ctx, writes...)
	}
	release, err := h.write(caller.withoutOrigin(), left.stream, expect, h.after(held.UpdatedAt), event.ClaimReleased{Kind: string(left.kind), Holder: left.holder})
	if err != nil {
		return 0, err
	}
	position, err := h.store.Append(ctx, append(writes, release)...)
	if conflict := eventstore.Conflict(err); conflict != nil && conflict.Stream == left.stream {
		return h.store.Append(ctx, fact) // without the checks, which have held
	}
	return position, err
}
