package command

import (
	"context"
	"errors"

	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// Forgetting removes what is known of a person outside the log. Each of its steps may be repeated.
type Forgetting interface {
	// Destroy deletes the keys of streams. From then on nobody can read what these streams tell of a person.
	Destroy(ctx context.Context, streams ...string) error
	// Expel deletes keys that came back, for example from a backup, and that open events from before the streams were
	// forgotten.
	Expel(ctx context.Context, streams ...string) error
	// Await returns when everything derived from the log has reached a position.
	Await(ctx context.Context, position eventstore.Position) error
	// Visited returns, by stream, the visitors whose activity from before an erasure is still shown. The value tells whether a
	// live lead is linked with the visitor.
	Visited(ctx context.Context, account string, streams []string, erased eventstore.Position) (linked map[string]bool, err error)
	// Sweep removes leads from copies that no event reaches, and the activity of visitors from before a position, by stream.
	Sweep(ctx context.Context, leads []string, visitors map[string]eventstore.Position) error
	// Withdraw removes a visitor's activities at some positions, which cannot be read any more, from the view and all copies.
	Withdraw(ctx context.Context, visitor string, at []eventstore.Position) error
}

// EraseLead asks that a person be forgotten.
type EraseLead struct {
	Caller Caller
	LeadID string
}

// LeadErased is the answer. Again is true if the lead was erased before and this call finished what was left undone then.
type LeadErased struct {
	Again    bool
	Claims   int // on phones and emails, which are free
	Visitors int // whose activity is forgotten with the last lead that they were linked with
	Position eventstore.Position
}

// erasing is a lead that is being erased.
type erasing struct {
	lead.State
	fact     event.LeadErased // once it is on the log
	position eventstore.Position
}

// EraseLead forgets a lead of the caller's account. First it appends the fact and releases the claims, in one append, then it
// destroys the key, and last it removes what was derived from the lead. If it is interrupted, asking again finishes it: the fact
// names what there is to do.
//
// The errors are lead.ErrNotFound, *lead.DepartedError and those of the store.
func (h *Handlers) EraseLead(ctx context.Context, cmd EraseLead) (LeadErased, error) {
	if !event.ValidID(cmd.LeadID) {
		return LeadErased{}, lead.ErrNotFound
	}
	stream := event.LeadStream(cmd.LeadID)
	var e erasing
	again := false
	err := h.transact.Do(ctx, []string{stream}, func(ctx context.Context) (err error) {
		e, again, err = h.appendErasure(ctx, cmd, stream)
		return err
	})
	if err != nil {
		return LeadErased{}, err
	}
	done := LeadErased{Again: again, Claims: len(e.fact.Claims), Position: e.position}
	if again {
		if err := h.forgetting.Expel(ctx, e.fact.Visitors...); err != nil {
			return done, err
		}
	}
	done.Visitors, err = h.forget(ctx, cmd, stream, e)
	return done, err
}

// erasable refuses what is not a live lead, except one that has departed into an erased lead.
func (h *Handlers) erasable(ctx context.Context, account string, held holder) error {
	err := held.lead.Present(account)
	if _, departed := errors.AsType[*lead.DepartedError](err); !departed {
		return err
	}
	survivor, unread := h.survivorOf(ctx, held)
	if unread != nil || survivor.lead.Phase == lead.Erased {
		return unread
	}
	return err
}

// appendErasure appends the fact, unless it is on the log already.
func (h *Handlers) appendErasure(ctx context.Context, cmd EraseLead, stream string) (e erasing, again bool, err error) {
	held, err := h.holderOf(ctx, stream)
	if err != nil {
		return e, false, err
	}
	if held.lead.Phase == lead.Erased && held.lead.Account == cmd.Caller.Account {
		if e, again, err = h.erasure(ctx, held); again || err != nil {
			return e, again, err
		}
		e, err = h.appendErasureOfLost(ctx, cmd, held)
		return e, false, err
	}
	if err := h.erasable(ctx, cmd.Caller.Account, held); err != nil {
		return e, false, err
	}
	e.State, e.fact.Leads = held.lead, held.lead.Joined
	for _, kind := range []claim.Kind{claim.Phone, claim.Email} {
		for _, value := range values(e.State, kind) {
			e.fact.Claims = append(e.fact.Claims, h.claims.Stream(e.Account, kind, value))
		}
	}
	for _, id := range e.VisitorIDs {
		e.fact.Visitors = append(e.fact.Visitors, h.claims.Visitor(e.Account, id))
	}
	var writes []eventstore.Write
	for _, claimed := range e.fact.Claims {
		release, err := h.releaseClaim(ctx, systemCaller(e.Account), claimed, cmd.LeadID)
		if err != nil {
			return e, false, err
		}
		writes = append(writes, release...)
	}
	write, err := h.write(cmd.Caller.withoutOrigin(), stream, held.expect, h.after(e.UpdatedAt), e.fact)
	if err != nil {
		return e, false, err
	}
	e.position, err = h.store.Append(ctx, append(writes, write)...)
	return e, false, err
}

// appendErasureOfLost appends the fact to a lead that cannot be read although nothing on the log erased it, as where the log of a
// backup from before the erasure was restored. Which leads are part of it can still be read, but not its values: its claims go on
// naming it, and count as free.
func (h *Handlers) appendErasureOfLost(ctx context.Context, cmd EraseLead, held holder) (e erasing, err error) {
	e.State = held.lead
	for recorded, err := range h.store.Read(ctx, held.stream, 0) {
		if err != nil {
			return e, err
		}
		fact, err := recorded.Fact()
		if err != nil {
			return e, err
		}
		switch data := fact.Data.(type) {
		case event.LeadJoined:
			e.fact.Leads = append(append(e.fact.Leads, data.From), data.Joined...)
		case event.LeadDeparted: // it is forgotten with the lead that it is part of
			return e, lead.ErrNotFound
		}
	}
	write, err := h.write(cmd.Caller.withoutOrigin(), held.stream, held.expect, h.after(e.UpdatedAt), e.fact)
	if err != nil {
		return e, err
	}
	e.position, err = h.store.Append(ctx, write)
	return e, err
}

// erasure finds the fact on the log, which ends its stream.
func (h *Handlers) erasure(ctx context.Context, held holder) (e erasing, found bool, err error) {
	e.State = held.lead
	for recorded, err := range h.store.Read(ctx, held.stream, eventstore.Revision(held.expect)) {
		if err != nil {
			return e, false, err
		}
		fact, err := recorded.Fact()
		if err != nil {
			return e, false, err
		}
		if data, ok := fact.Data.(event.LeadErased); ok {
			e.fact, e.position, found = data, recorded.Position, true
		}
	}
	return e, found, nil
}

// forget does all that follows the fact.
func (h *Handlers) forget(ctx context.Context, cmd EraseLead, stream string, e erasing) (visitors int, err error) {
	leads, streams := append([]string{cmd.LeadID}, e.fact.Leads...), []string{stream}
	for _, id := range e.fact.Leads {
		streams = append(streams, event.LeadStream(id))
	}
	if err := h.forgetting.Destroy(ctx, streams...); err != nil {
		return 0, err
	}
	for _, claimed := range e.fact.Claims {
		h.holders.forget(claimed)
	}
	if err := h.forgetting.Await(ctx, e.position); err != nil {
		return 0, err
	}
	position := e.position
	unlinked := map[string]eventstore.Position{}
	visited, err := h.forgetting.Visited(ctx, e.Account, e.fact.Visitors, e.position)
	if err != nil {
		return 0, err
	}
	for _, visitor := range e.fact.Visitors {
		linked, shown := visited[visitor]
		if linked { // what it did is another lead's too
			continue
		}
		unlinked[visitor] = e.position
		if !shown {
			continue
		}
		last, err := h.forgetVisitor(ctx, e.Account, visitor)
		if err != nil {
			return 0, err
		}
		unlinked[visitor] = last
		visitors, position = visitors+1, max(position, last)
	}
	if position > e.position {
		if err := h.forgetting.Await(ctx, position); err != nil {
			return 0, err
		}
	}
	return visitors, h.forgetting.Sweep(ctx, leads, unlinked)
}

// forgetVisitor forgets a visitor that no lead is linked with any more. The key goes first: as long as the fact is not on
// the log, what the visitor did is still shown, and shows that there is something left to do. What the visitor does
// meanwhile has a new key, which goes too.
func (h *Handlers) forgetVisitor(ctx context.Context, account, stream string) (position eventstore.Position, err error) {
	err = h.transact.Do(ctx, []string{stream}, func(ctx context.Context) error {
		_, end, err := eventstore.Load(ctx, h.store, stream, func(struct{}, event.Fact) struct{} { return struct{}{} })
		if err != nil {
			return err
		}
		if err := h.forgetting.Destroy(ctx, stream); err != nil {
			return err
		}
		write, err := h.write(systemCaller(account), stream, end, h.timestamp(), event.VisitorForgotten{})
		if err != nil {
			return err
		}
		position, err = h.store.Append(ctx, write)
		return err
	})
	return position, err
}
