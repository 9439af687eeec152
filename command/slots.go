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
}

// slot is a free place and the revision of its claim to expect when taking it.
type slot struct {
	number int
	stream string
	expect eventstore.Expected
	since  time.Time // of the claim's latest fact
	taken  bool
}

// free finds the first free slot of an account. The error is s.full when there is none. Since the slots are read one after the
// other, an append of checks only then confirms that all were taken at the same moment; otherwise the error is its conflict.
func (h *Handlers) free(ctx context.Context, s slots, account string) (slot, error) {
	var checks []eventstore.Write
	for first := 1; first <= s.count; first += slotsAtOnce {
		places, err := h.look(ctx, s, account, first, min(slotsAtOnce, s.count+1-first))
		if err != nil {
			return slot{}, err
		}
		for _, p := range places {
			if !p.taken {
				return p, nil
			}
			checks = append(checks, eventstore.Check(p.stream, p.expect))
		}
	}
	if _, err := h.store.Append(ctx, checks...); err != nil {
		return slot{}, err
	}
	return slot{}, s.full
}

// slotsAtOnce is how many slots are read at a time, since everybody else who asks for a slot of the account waits meanwhile.
const slotsAtOnce = 5

// look reads n slots at the same time.
func (h *Handlers) look(ctx context.Context, s slots, account string, first, n int) ([]slot, error) {
	places := make([]slot, n)
	looking, ctx := errgroup.WithContext(ctx)
	for i := range places {
		looking.Go(func() error {
			stream := h.claims.Slot(account, s.kind, first+i)
			claimed, expect, err := eventstore.Load(ctx, h.store, stream, claim.Evolve)
			places[i] = slot{first + i, stream, expect, claimed.UpdatedAt, claimed.Holder != ""}
			return err
		})
	}
	return places, looking.Wait()
}

// take returns the write that gives a free slot to a holder.
func (h *Handlers) take(caller Caller, s slots, free slot, holder string) (eventstore.Write, error) {
	return h.write(caller.withoutOrigin(), free.stream, free.expect, h.after(free.since), event.ClaimTaken{Kind: string(s.kind), Holder: holder})
}

// releaseSlot returns the write that frees the slot of a holder.
func (h *Handlers) releaseSlot(ctx context.Context, caller Caller, s slots, number int, holder string) ([]eventstore.Write, error) {
	return h.releaseClaim(ctx, caller, h.claims.Slot(caller.Account, s.kind, number), holder)
}

// releaseClaim returns the write that frees a claim, if it is one of these holders'.
func (h *Handlers) releaseClaim(ctx context.Context, caller Caller, stream string, holders ...string) ([]eventstore.Write, error) {
	held, expect, err := eventstore.Load(ctx, h.store, stream, claim.Evolve)
	if err != nil || !slices.Contains(holders, held.Holder) {
		return nil, err
	}
	release, err := h.write(caller.withoutOrigin(), stream, expect, h.after(held.UpdatedAt), event.ClaimReleased{Kind: string(held.Kind), Holder: held.Holder})
	return []eventstore.Write{release}, err
}
