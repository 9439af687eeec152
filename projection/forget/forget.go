// Package forget erases persons: leads, and visitors of a web site.
//
// A person's data are on the log, sealed with keys of their own; in the views and in copies of them; and in the record of webhook
// deliveries. [Eraser.EraseLead] and [Eraser.ForgetVisitor] have the steps of an erasure in order. Every step may be repeated: an
// erasure that was interrupted is finished by asking again, because the fact that the first step appends names what the others
// remove.
//
// The views and the fan-out of webhooks follow the log, and remove the rows of an erased person themselves. This package waits for
// them, and removes what no event reaches. Backups of the log need no step: without the key, they open no more than the log does.
package forget

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// Facts decides and appends the facts of erasures for a caller. command.Erasure implements it.
type Facts interface {
	// Account returns the account of the caller.
	Account() string
	// EraseLead appends lead.erased, with the hashes that Keys.Commitments returns, and releases the lead's claims, in one append.
	// Again means that an earlier call has appended the fact that is returned.
	EraseLead(ctx context.Context, leadID string, keys eventstore.KeyCommitments) (erased event.LeadErased, at eventstore.Position, again bool, err error)
	// MoreVisitors returns, in pages, the streams of the visitors of an erased lead that exceed the number that the fact names. It
	// reads them from the lead's events, as long as their key exists.
	MoreVisitors(ctx context.Context, leadID string, erased event.LeadErased) iter.Seq2[[]string, error]
	// ForgetUnlinked calls destroy, which destroys a visitor's key, and appends visitor.forgotten. It repeats both if the visitor
	// has acted in between, so that no activity before the fact can be read.
	ForgetUnlinked(ctx context.Context, stream string, destroy func(context.Context) error) (at eventstore.Position, err error)

	// DiscardArrival, ExpireArrival and EraseArrival call destroy, which destroys the key of an arrival, and append why. Position is 0
	// when there is nothing to append.
	DiscardArrival(ctx context.Context, id string, destroy func(context.Context) error) (at eventstore.Position, err error)
	ExpireArrival(ctx context.Context, id string, destroy func(context.Context) error) (at eventstore.Position, err error)
	EraseArrival(ctx context.Context, id string, destroy func(context.Context) error) (at eventstore.Position, err error)

	// VisitorStream returns the stream of a visitor of the account.
	VisitorStream(visitorID string) string
	// Visitor reads the stream of a visitor: the time of the last activity, whether one can be read that was not forgotten, and the
	// positions of those that cannot be read.
	Visitor(ctx context.Context, stream string) (last time.Time, readable bool, lost []eventstore.Position, err error)
	// ForgetLost appends visitor.forgotten about the activities that cannot be read, if no earlier fact is about them. It returns
	// the position of the latest fact, 0 without one. Finish means to append nothing.
	ForgetLost(ctx context.Context, stream string, finish bool) (at eventstore.Position, again, rest bool, err error)
}

// Keys are the keys that seal personal data on the log. sealed.Store implements it.
type Keys interface {
	// Commitments returns the hashes of the keys of streams, by stream.
	Commitments(ctx context.Context, streams ...string) (map[string][]string, error)
	// Destroy deletes the keys of streams, whose personal data cannot be read from then on.
	Destroy(ctx context.Context, streams ...string) error
	// Expel deletes keys that came back, for example from a backup, and open events from before the streams were forgotten.
	// Returned reports whether there are such keys.
	Expel(ctx context.Context, streams ...string) error
	Returned(ctx context.Context, streams ...string) (bool, error)
	// HasKeys reports whether there is a key of any of the streams.
	HasKeys(ctx context.Context, streams ...string) (bool, error)
}

// Views are what is derived from the log. Database implements it.
type Views interface {
	// Await returns when the views and the fan-out of webhooks have reached a position.
	Await(ctx context.Context, position eventstore.Position) error
	// Arrivals returns the arrivals that came to leads and are still kept, at most some hundred.
	Arrivals(ctx context.Context, account string, leads []string) (ids []string, err error)
	// Linked returns, of the visitors whose activity from before a position is shown, whether a lead is linked with them.
	Linked(ctx context.Context, account string, visitors []string, before eventstore.Position) (map[string]bool, error)
	// Sweep removes leads and visitors from copies of the views. Copied reports whether there is something to remove.
	Sweep(ctx context.Context, gone Forgotten) error
	Copied(ctx context.Context, gone Forgotten) (bool, error)
	// Withdraw removes activities of a visitor, by their positions, from the views and from copies of them.
	Withdraw(ctx context.Context, visitor string, at []eventstore.Position) error
}

// Forgotten names the rows to remove: those of leads by their ids, and those of visitors by their streams. Of a visitor, who may
// come again, only the activity before the position is removed.
type Forgotten struct {
	Leads    []string
	Visitors map[string]eventstore.Position
}

// Eraser erases persons.
type Eraser struct {
	Keys  Keys
	Views Views
}

// LeadErased is the result of EraseLead.
type LeadErased struct {
	Again    bool     // the lead was erased before; this call finished what was left
	Leads    []string // the lead, and those that were joined into it
	Claims   int      // phones and emails that are free now
	Visitors int      // that were forgotten, since no other lead is linked with them
	Position eventstore.Position
}

// EraseLead erases a lead, the leads that were joined into it, and its visitors that no other lead is linked with. The errors are
// those of facts, of the keys and of the views.
func (e Eraser) EraseLead(ctx context.Context, facts Facts, leadID string) (done LeadErased, err error) {
	// 1. The fact, and the claims that it frees, in one append. It names the joined leads, a limited number of visitors, and the
	// hashes of the leads' keys.
	erased, at, again, err := facts.EraseLead(ctx, leadID, e.Keys.Commitments)
	if err != nil {
		return LeadErased{}, err
	}
	leads := append([]string{leadID}, erased.Leads...)
	done = LeadErased{Again: again, Leads: leads, Claims: len(erased.Claims), Position: at}

	// 2. The visitors that the fact does not name: they are found in the lead's events, while these can be read.
	for page, err := range facts.MoreVisitors(ctx, leadID, erased) {
		if err != nil {
			return done, err
		}
		if err := e.forgetUnlinked(ctx, facts, page, &done); err != nil {
			return done, err
		}
	}

	// 3. The keys of the leads; and, after a restore, those of visitors that came back.
	if err := e.Keys.Destroy(ctx, leadStreams(leads)...); err != nil {
		return done, err
	}
	if again {
		if err := e.Keys.Expel(ctx, erased.Visitors...); err != nil {
			return done, err
		}
	}

	// 4. The views and the fan-out of webhooks remove the leads themselves.
	if err := e.Views.Await(ctx, at); err != nil {
		return done, err
	}

	// 5. What was posted when the leads were captured. The arrivals are found in a view, which has all that came before the fact.
	last, err := e.eraseArrivals(ctx, facts, leads, at)
	if err != nil {
		return done, err
	}

	// 6. The visitors that the fact names.
	if err := e.forgetUnlinked(ctx, facts, erased.Visitors, &done); err != nil {
		return done, err
	}

	// 7. Copies of the views, which follow no log.
	done.Position = last
	return done, e.Views.Sweep(ctx, Forgotten{Leads: leads})
}

// eraseArrivals erases the arrivals of leads, each with a key and a fact, until the view has none. It returns the position of the last
// fact, or the one given.
func (e Eraser) eraseArrivals(ctx context.Context, facts Facts, leads []string, last eventstore.Position) (eventstore.Position, error) {
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

func (e Eraser) destroyArrival(id string) func(context.Context) error {
	return func(ctx context.Context) error { return e.Keys.Destroy(ctx, event.ArrivalStream(id)) }
}

// DiscardArrival discards an arrival of the account: nothing can read its content any more. The errors are those of facts and of the
// keys.
func (e Eraser) DiscardArrival(ctx context.Context, facts Facts, id string) (eventstore.Position, error) {
	return facts.DiscardArrival(ctx, id, e.destroyArrival(id))
}

// ExpireArrival deletes the content of an expired arrival. It may be called concurrently for one arrival.
func (e Eraser) ExpireArrival(ctx context.Context, facts Facts, id string) error {
	_, err := facts.ExpireArrival(ctx, id, e.destroyArrival(id))
	return err
}

// forgetUnlinked forgets visitors of an erased lead, unless another lead is linked with them: a fact and a key for each, then the
// views, then copies of these. Visitors that are not shown any more were forgotten by an earlier call, except in copies.
func (e Eraser) forgetUnlinked(ctx context.Context, facts Facts, visitors []string, done *LeadErased) error {
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
		// The key goes before the fact. Until the fact is on the log, the views show that there is something left to do.
		at, err := facts.ForgetUnlinked(ctx, stream, func(ctx context.Context) error { return e.Keys.Destroy(ctx, stream) })
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
	return e.Views.Sweep(ctx, Forgotten{Visitors: gone})
}

// ErrNotLost means that all activities of a visitor can be read, so ForgetVisitor has nothing to forget.
var ErrNotLost = errors.New("nothing of the visitor is lost")

// VisitorForgotten is the result of ForgetVisitor.
type VisitorForgotten struct {
	Again    bool // the visitor was forgotten before; this call finished what was left
	Rest     bool // other activities can be read, and stay
	Position eventstore.Position
}

// ForgetVisitor forgets the activities of a visitor that cannot be read because their key is lost. Finish means to finish an
// earlier call, and to forget nothing else. The errors are ErrNotLost and those of facts, of the keys and of the views.
func (e Eraser) ForgetVisitor(ctx context.Context, facts Facts, stream string, finish bool) (done VisitorForgotten, err error) {
	// 1. The fact. It names the lost keys, unless all is lost.
	done.Position, done.Again, done.Rest, err = facts.ForgetLost(ctx, stream, finish)
	switch {
	case err != nil:
		return VisitorForgotten{}, err
	case done.Position == 0:
		return VisitorForgotten{}, ErrNotLost
	}
	// 2. Keys that came back, for example from a backup.
	if err := e.Keys.Expel(ctx, stream); err != nil {
		return done, err
	}
	// 3. The views, and the activities that they cannot tell from others: the fact names keys, and no row has one.
	if err := e.Views.Await(ctx, done.Position); err != nil {
		return done, err
	}
	_, _, lost, err := facts.Visitor(ctx, stream)
	if err != nil {
		return done, err
	}
	return done, e.Views.Withdraw(ctx, stream, lost)
}

// DeleteVisitor forgets all activities of a visitor, whether or not a lead is linked with them. Later ones are sealed with a new
// key, and stay.
func (e Eraser) DeleteVisitor(ctx context.Context, facts Facts, visitorID string) (VisitorForgotten, error) {
	stream := facts.VisitorStream(visitorID)
	_, readable, _, err := facts.Visitor(ctx, stream)
	if err != nil {
		return VisitorForgotten{}, err
	}
	return e.forgetAll(ctx, facts, stream, readable)
}

// ExpireVisitor does what DeleteVisitor does if the visitor's last activity is older than a time. Any number of processes may call
// it for one visitor.
func (e Eraser) ExpireVisitor(ctx context.Context, facts Facts, stream string, before time.Time) error {
	last, readable, _, err := facts.Visitor(ctx, stream)
	if err != nil || !last.Before(before) {
		return err
	}
	_, err = e.forgetAll(ctx, facts, stream, readable)
	if errors.Is(err, ErrNotLost) { // another process was faster, and the visitor has come again
		return nil
	}
	return err
}

// forgetAll destroys the key of what can be read of a visitor, and forgets what cannot be read from then on.
func (e Eraser) forgetAll(ctx context.Context, facts Facts, stream string, readable bool) (VisitorForgotten, error) {
	if readable {
		if err := e.Keys.Destroy(ctx, stream); err != nil {
			return VisitorForgotten{}, err
		}
	}
	return e.ForgetVisitor(ctx, facts, stream, false)
}

// Unfinished reports whether a step is left of the erasure of leads and visitors at a position.
func (e Eraser) Unfinished(ctx context.Context, account string, leads, visitors []string, erased eventstore.Position) (bool, error) {
	if held, err := e.Keys.HasKeys(ctx, leadStreams(leads)...); held || err != nil {
		return held, err
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
	gone := Forgotten{Leads: leads, Visitors: map[string]eventstore.Position{}}
	for _, stream := range visitors {
		isLinked, shown := linked[stream]
		if shown && !isLinked {
			return true, nil
		}
		if !isLinked {
			gone.Visitors[stream] = erased
		}
	}
	return e.Views.Copied(ctx, gone)
}

func leadStreams(ids []string) (streams []string) {
	for _, id := range ids {
		streams = append(streams, event.LeadStream(id))
	}
	return streams
}
