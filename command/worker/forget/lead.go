package forget

import (
	"context"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
)

// LeadErased is the result of EraseLead.
type LeadErased struct {
	Again    bool     // the lead was erased before; this call finished the erasure
	Leads    []string // the lead, and the leads that were joined into it
	Claims   int      // phones and emails that were released
	Visitors int      // visitors that were forgotten, since no other lead is linked with them
	Position eventstore.Position
}

// EraseLead erases a lead, the leads that were joined into it, and its visitors that no other lead is linked with. The
// errors are those of facts, of the keys and of the views.
func (e Eraser) EraseLead(ctx context.Context, facts command.Erasure, leadID string) (done LeadErased, err error) {
	// 1. The fact, and the claims that it releases, in one append. It names the joined leads, a limited number of
	//    visitors, and the hashes of
	// the keys that step 3 destroys.
	erased, at, again, err := facts.EraseLead(ctx, leadID, e.Keys)
	if err != nil {
		return LeadErased{}, err
	}
	leads := append([]string{leadID}, erased.Leads...)
	done = LeadErased{Again: again, Leads: leads, Claims: len(erased.Claims), Position: at}

	// 2. The visitors that the fact does not name. They are read from the lead's events before their key is destroyed.
	for page, err := range facts.MoreVisitors(ctx, leadID, erased) {
		if err != nil {
			return done, err
		}
		if err := e.forgetUnlinked(ctx, facts, page, &done); err != nil {
			return done, err
		}
	}

	// 3. The keys of the leads and, after a restore, the restored keys of visitors. If a lead left another one, the
	//    keys of the other's events
	// of before that split too: the split restates the other lead under a new key.
	if err := e.Keys.Destroy(ctx, leadStreams(leads)...); err != nil {
		return done, err
	}
	for _, origin := range erased.Origins {
		if err := e.Keys.DestroyBefore(ctx, event.LeadStream(origin.LeadID),
			eventstore.Revision(origin.Before)); err != nil {
			return done, err
		}
	}
	if again {
		if err := e.Keys.DestroyReturned(ctx, erased.Visitors...); err != nil {
			return done, err
		}
	}

	// 4. The views and the fan-out of webhooks delete the leads themselves.
	if err := e.Views.Await(ctx, at); err != nil {
		return done, err
	}

	// 5. The arrivals of the leads. A view lists them once it has reached the fact.
	last, err := e.eraseArrivals(ctx, facts, leads, at)
	if err != nil {
		return done, err
	}

	// 6. The visitors that the fact names.
	if err := e.forgetUnlinked(ctx, facts, erased.Visitors, &done); err != nil {
		return done, err
	}

	// 7. Copies of the views, which do not follow the log.
	done.Position = last
	return done, e.Views.DeleteFromCopies(ctx, projection.Forgotten{Leads: leads, Origins: erased.Origins})
}

// eraseArrivals erases the arrivals of leads, each with a key and a fact, until the view has none. It returns the
// position of the last fact, or the given one.
func (e Eraser) eraseArrivals(
	ctx context.Context, facts command.Erasure, leads []string, last eventstore.Position,
) (eventstore.Position, error) {
	for {
		arrivals, err := e.Views.Arrivals(ctx, facts.Account(), leads)
		if err != nil || len(arrivals) == 0 {
			return last, err
		}
		for _, id := range arrivals {
			at, err := facts.EraseArrival(ctx, id, e.destroyArrival(id))
			if err != nil {
				return last, err
			}
			last = max(last, at)
		}
		if err := e.Views.Await(ctx, last); err != nil {
			return last, err
		}
	}
}

// forgetUnlinked forgets the visitors of an erased lead that no other lead is linked with: a fact and a key for each,
// then the views, then their copies. Visitors that the views no longer show were forgotten by an earlier call, except
// in copies.
func (e Eraser) forgetUnlinked(ctx context.Context, facts command.Erasure, visitors []string, done *LeadErased) error {
	if len(visitors) == 0 {
		return nil
	}
	if err := e.Views.Await(ctx, done.Position); err != nil {
		return err
	}
	linked, err := e.Views.Linked(ctx, facts.Account(), visitors, done.Position)
	if err != nil {
		return err
	}
	gone, last := map[string]eventstore.Position{}, done.Position
	for _, stream := range visitors {
		isLinked, shown := linked[stream]
		if isLinked {
			continue
		}
		if gone[stream] = done.Position; !shown {
			continue
		}
		// The key is destroyed before the fact is appended. Until then, the views show that the erasure is unfinished.
		at, err := facts.ForgetUnlinked(ctx, stream, func(ctx context.Context) error {
			return e.Keys.Destroy(ctx, stream)
		})
		if err != nil {
			return err
		}
		gone[stream], last = at, max(last, at)
		done.Visitors++
	}
	if len(gone) == 0 {
		return nil
	}
	if last > done.Position {
		if err := e.Views.Await(ctx, last); err != nil {
			return err
		}
	}
	return e.Views.DeleteFromCopies(ctx, projection.Forgotten{Visitors: gone})
}

// Unfinished reports whether the erasure of leads and visitors at a position lacks a step.
func (e Eraser) Unfinished(
	ctx context.Context, account string, leads []string, origins []event.SplitOrigin, visitors []string,
	erased eventstore.Position,
) (bool, error) {
	if has, err := e.Keys.HasKeys(ctx, leadStreams(leads)...); has || err != nil {
		return has, err
	}
	for _, origin := range origins {
		has, err := e.Keys.HasKeysBefore(ctx, event.LeadStream(origin.LeadID), eventstore.Revision(origin.Before))
		if has || err != nil {
			return has, err
		}
	}
	if returned, err := e.Keys.Returned(ctx, visitors...); returned || err != nil {
		return returned, err
	}
	if arrivals, err := e.Views.Arrivals(ctx, account, leads); len(arrivals) > 0 || err != nil {
		return len(arrivals) > 0, err
	}
	linked, err := e.Views.Linked(ctx, account, visitors, erased)
	if err != nil {
		return false, err
	}
	gone := projection.Forgotten{Leads: leads, Origins: origins, Visitors: map[string]eventstore.Position{}}
	for _, stream := range visitors {
		isLinked, shown := linked[stream]
		if shown && !isLinked {
			return true, nil
		}
		if !isLinked {
			gone.Visitors[stream] = erased
		}
	}
	return e.Views.HasCopies(ctx, gone)
}

func leadStreams(ids []string) (streams []string) {
	for _, id := range ids {
		streams = append(streams, event.LeadStream(id))
	}
	return streams
}
