package command

import (
	"context"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// DiscardArrival calls destroy, which destroys the key of an arrival of the account, and appends that its owner
// discarded it. One that was discarded before is not appended again. The errors are arrival.ErrNotFound,
// arrival.ErrExpired and those of the store.
func (e Erasure) DiscardArrival(
	ctx context.Context, id string, destroy func(context.Context) error,
) (eventstore.Position, error) {
	return e.endArrival(ctx, id, destroy, func(of loadedArrival) (event.Data, bool, error) {
		fact, done, err := of.Discard(e.Account())
		return fact, done, err
	})
}

// ExpireArrival does so when an arrival's time is over. It has no effect before, or when the content was deleted
// before.
func (e Erasure) ExpireArrival(
	ctx context.Context, id string, destroy func(context.Context) error,
) (eventstore.Position, error) {
	return e.endArrival(ctx, id, destroy, func(of loadedArrival) (event.Data, bool, error) {
		fact, due := of.Expire(e.h.now())
		return fact, !due, of.Of(e.Account())
	})
}

// EraseArrival does so when the person was forgotten whose lead the arrival was captured into.
func (e Erasure) EraseArrival(
	ctx context.Context, id string, destroy func(context.Context) error,
) (eventstore.Position, error) {
	return e.endArrival(ctx, id, destroy, func(of loadedArrival) (event.Data, bool, error) {
		fact, due := of.Erase()
		return fact, !due, of.Of(e.Account())
	})
}

// endArrival destroys the key of an arrival and then appends the fact. In this order, because an arrival without the
// fact is still due in the view, and the next run appends it.
func (e Erasure) endArrival(
	ctx context.Context, id string, destroy func(context.Context) error,
	decide func(loadedArrival) (fact event.Data, done bool, err error),
) (at eventstore.Position, err error) {
	err = e.h.changeArrival(ctx, id, func(ctx context.Context, of loadedArrival) error {
		fact, done, err := decide(of)
		if err != nil {
			return err
		}
		if of.Deleted || !done {
			if err := destroy(ctx); err != nil { // again, if it came back from a backup
				return err
			}
		}
		if done {
			return nil
		}
		write, err := e.h.write(e.caller.withoutOrigin(), of.stream, of.expect, e.h.after(of.UpdatedAt), fact)
		if err != nil {
			return err
		}
		at, err = e.h.store.Append(ctx, write)
		return err
	})
	return at, err
}
