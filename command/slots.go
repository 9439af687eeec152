package command

import (
	"context"
	"slices"
	"time"

	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// slots are an account's numbered places for tokens or endpoints. Each is a claim, so that however many are asked for
// at once, and by however many processes, no more than these are ever taken.
type slots struct {
	kind  claim.Kind
	count int
	full  error // said when all are taken
	// holder tells of the one that a slot names: whether it still counts, whether it is not born yet, and the
	// revision of its stream that says so.
	holder func(ctx context.Context, id string) (holds, unborn bool, expect eventstore.Expected, err error)
	// stream and abandoned close the stream of a holder that is not born.
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

// free finds the first free place of an account. The error is s.full when there is none: the places are looked at
// one after the other, so that is said only when all of them were taken at one moment, and otherwise it is a conflict.
func (h *Handlers) free(ctx context.Context, s slots, account string) (slot, error) {
	var seen []eventstore.Write
	for number := 1; number <= s.count; number++ {
		stream := h.claims.Slot(account, s.kind, number)
		held, expect, err := eventstore.Load(ctx, h.store, stream, claim.Evolve)
		if err != nil {
			return slot{}, err
		}
		free := slot{number, stream, expect, held.UpdatedAt}
		if held.Holder == "" {
			return free, nil
		}
		holds, unborn, alive, err := s.holder(ctx, held.Holder)
		if err == nil && unborn {
			err = h.abandon(ctx, s, account, held.Holder)
		}
		if err != nil {
			return slot{}, err
		}
		if !holds {
			return free, nil
		}
		seen = append(seen, eventstore.Check(stream, expect), eventstore.Check(s.stream(held.Holder), alive))
	}
	if _, err := h.store.Append(ctx, seen...); err != nil {
		return slot{}, err
	}
	return slot{}, s.full
}

// abandon closes the stream of a holder that is not born.
func (h *Handlers) abandon(ctx context.Context, s slots, account, holder string) error {
	closed, err := h.abandonment(account, s.stream(holder), s.abandoned)
	if err == nil {
		_, err = h.store.Append(ctx, closed)
	}
	return err
}

// take is the write that makes a holder own a free place.
func (h *Handlers) take(caller Caller, s slots, free slot, holder string) (eventstore.Write, error) {
	return h.write(caller, free.stream, free.expect, h.after(free.since), event.ClaimTaken{Kind: string(s.kind), Holder: holder})
}

// leaving is a claim that its holder gives up.
type leaving struct {
	kind           claim.Kind
	stream, holder string
}

func (h *Handlers) leavingSlot(account string, s slots, number int, holder string) leaving {
	return leaving{s.kind, h.claims.Slot(account, s.kind, number), holder}
}

// vacate appends the fact that a holder does not have what it claimed any more, behind the checks, and then the release of
// the claim. One that has gone to somebody else meanwhile, as it may once the fact is on the log, is not released again.
func (h *Handlers) vacate(ctx context.Context, caller Caller, left leaving, fact eventstore.Write, checks ...eventstore.Write) (eventstore.Position, error) {
	writes := append(slices.Clone(checks), fact)
	held, expect, err := eventstore.Load(ctx, h.store, left.stream, claim.Evolve)
	if err != nil {
		return 0, err
	}
	if held.Holder != left.holder {
		return h.store.Append(ctx, writes...)
	}
	release, err := h.write(caller, left.stream, expect, h.after(held.UpdatedAt), event.ClaimReleased{Kind: string(left.kind), Holder: left.holder})
	if err != nil {
		return 0, err
	}
	position, err := h.store.Append(ctx, append(writes, release)...)
	if conflict := eventstore.Conflict(err); conflict != nil && conflict.Stream == left.stream {
		return h.store.Append(ctx, fact) // the checks have let it through
	}
	return position, err
}
