package command

import (
	"context"
	"errors"
	"slices"

	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// Forgetting does away with what is known of a person outside the log. All of it may be done again.
type Forgetting interface {
	// Destroy forgets the keys of streams: what they tell of a person is not to be read any more, by anybody.
	Destroy(ctx context.Context, streams ...string) error
	// Expel forgets keys that have come back, as with a backup of them, of what streams told before they were forgotten.
	Expel(ctx context.Context, streams ...string) error
	// Await returns when everything that is derived from the log has come to a position.
	Await(ctx context.Context, position eventstore.Position) error
	// Visited gives those of visitors, by their streams, of whom anything that they did before an erasure is still shown, and
	// tells whether some lead is linked with them.
	Visited(ctx context.Context, account string, streams []string, erased eventstore.Position) (linked map[string]bool, err error)
	// Sweep removes leads from copies that no event reaches, and of visitors, by their streams, what comes before a position.
	Sweep(ctx context.Context, leads []string, visitors map[string]eventstore.Position) error
}

// EraseLead asks that a person be forgotten.
type EraseLead struct {
	Caller Caller
	LeadID string
}

// LeadErased is the answer. Again says that the lead was erased before, and that what was left undone then is done now.
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

// EraseLead forgets a lead of the caller's account: the fact comes first, then its key goes, then its claims, and last what
// was made of it elsewhere. If it is stopped anywhere, asking again finishes it, from what the fact names.
//
// The errors are lead.ErrNotFound, *lead.DepartedError and those of the store.
func (h *Handlers) EraseLead(ctx context.Context, cmd EraseLead) (LeadErased, error) {
	if !validID(cmd.LeadID) {
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
	last, unread := h.heirOf(ctx, account, held)
	if unread != nil || last.lead.Phase == lead.Erased {
		return unread
	}
	return err
}

// appendErasure puts the fact on the log, unless it is there.
func (h *Handlers) appendErasure(ctx context.Context, cmd EraseLead, stream string) (e erasing, again bool, err error) {
	held, err := h.holderOf(ctx, stream)
	if err != nil {
		return e, false, err
	}
	if held.lead.Phase == lead.Erased && held.lead.Account == cmd.Caller.Account {
		if e, again, err = h.erasure(ctx, held); again || err != nil {
			return e, again, err
		}
	}
	if err := h.erasable(ctx, cmd.Caller.Account, held); err != nil {
		return e, false, err
	}
	settled, err := h.settle(ctx, cmd.Caller.Account, held)
	if err != nil {
		return e, false, err
	}
	e.State, e.fact.Leads = settled.lead, settled.lead.Joined
	for kind, values := range map[claim.Kind][]string{claim.Phone: e.Phones, claim.Email: e.Emails} {
		for _, value := range values {
			e.fact.Claims = append(e.fact.Claims, h.claims.Stream(e.Account, kind, value))
		}
	}
	for _, id := range e.VisitorIDs {
		e.fact.Visitors = append(e.fact.Visitors, h.claims.Visitor(e.Account, id))
	}
	write, err := h.write(cmd.Caller.nobody(), stream, settled.expect, h.after(e.UpdatedAt), e.fact)
	if err != nil {
		return e, false, err
	}
	e.position, err = h.store.Append(ctx, write)
	return e, false, err
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
	for _, held := range e.fact.Claims {
		err := h.transact.Do(ctx, []string{held}, func(ctx context.Context) error { return h.letGo(ctx, held, leads) })
		if err != nil {
			return 0, err
		}
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

// letGo releases a claim that an erased lead still holds. Until then, whoever meets the claim treats it as free.
func (h *Handlers) letGo(ctx context.Context, stream string, leads []string) error {
	held, expect, err := eventstore.Load(ctx, h.store, stream, claim.Evolve)
	if err != nil || !slices.Contains(leads, held.Holder) {
		return err
	}
	release, err := h.write(claimKeeper(held.Account), stream, expect, h.after(held.UpdatedAt),
		event.ClaimReleased{Kind: string(held.Kind), Holder: held.Holder})
	if err != nil {
		return err
	}
	_, err = h.store.Append(ctx, release)
	return err
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
		write, err := h.write(claimKeeper(account), stream, end, h.timestamp(), event.VisitorForgotten{})
		if err != nil {
			return err
		}
		position, err = h.store.Append(ctx, write)
		return err
	})
	return position, err
}
