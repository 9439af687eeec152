// Package forget erases persons: leads, and visitors of a web site.
//
// A person's data are on the log, sealed with keys of their own; in the views and in copies of them; and in the record of webhook
// deliveries. [Eraser.EraseLead] and [Eraser.ForgetVisitor] have the steps of an erasure in order. Every step is idempotent. Repeating the
// request finishes an interrupted erasure, because the fact that the first step appends names everything that the other steps delete.
//
// The views and the fan-out of webhooks follow the log, and delete the rows of an erased person themselves. This package waits for them,
// and deletes the data that no event reaches. Backups of the log need no step: without the key they reveal no more than the log.
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
	// EraseLead appends lead.erased, with the hashes that Keys.Commitments returns, and releases the lead's claims, in one append. Again means
	// that the returned fact was appended by an earlier call.
	EraseLead(ctx context.Context, leadID string, keys eventstore.KeyCommitments) (erased event.LeadErased, at eventstore.Position, again bool, err error)
	// MoreVisitors returns, in pages, the streams of the visitors of an erased lead beyond the number that the fact names. It reads them from
	// the lead's events while their key exists.
	MoreVisitors(ctx context.Context, leadID string, erased event.LeadErased) iter.Seq2[[]string, error]
	// ForgetUnlinked calls destroy, which destroys a visitor's key, and appends visitor.forgotten. It repeats both if the visitor was active
	// in between, so that no activity before the fact can be read.
	ForgetUnlinked(ctx context.Context, stream string, destroy func(context.Context) error) (at eventstore.Position, err error)

	// DiscardArrival, ExpireArrival and EraseArrival call destroy, which destroys the key of an arrival, and append the reason. Position is 0
	// when there is nothing to append.
	DiscardArrival(ctx context.Context, id string, destroy func(context.Context) error) (at eventstore.Position, err error)
	ExpireArrival(ctx context.Context, id string, destroy func(context.Context) error) (at eventstore.Position, err error)
	EraseArrival(ctx context.Context, id string, destroy func(context.Context) error) (at eventstore.Position, err error)

	// VisitorStream returns the stream of a visitor of the account.
	VisitorStream(visitorID string) string
	// Visitor reads the stream of a visitor. It returns the time of the last activity, whether any activity that was not forgotten can be
	// read, and the positions of those that cannot be read.
	Visitor(ctx context.Context, stream string) (last time.Time, readable bool, lost []eventstore.Position, err error)
	// ForgetLost appends visitor.forgotten about the activities that cannot be read, if no earlier fact covers them. It returns the position
	// of the latest fact, 0 without one. With finish it appends nothing.
	ForgetLost(ctx context.Context, stream string, finish bool) (at eventstore.Position, again, rest bool, err error)
}

// Keys are the keys that seal personal data on the log. sealed.Store implements it.
type Keys interface {
	// Commitments returns the hashes of the keys of streams, by stream.
	Commitments(ctx context.Context, streams ...string) (map[string][]string, error)
	// Destroy deletes the keys of streams. Their personal data cannot be read without them.
	Destroy(ctx context.Context, streams ...string) error
	// DestroyReturned deletes keys that were restored, for example from a backup, and that open events from before the streams were forgotten.
	// Returned reports whether such keys exist.
	DestroyReturned(ctx context.Context, streams ...string) error
	Returned(ctx context.Context, streams ...string) (bool, error)
	// HasKeys reports whether any of the streams has a key.
	HasKeys(ctx context.Context, streams ...string) (bool, error)
}

// Views is the data derived from the log. Database implements it.
type Views interface {
	// Await returns when the views and the fan-out of webhooks have reached a position.
	Await(ctx context.Context, position eventstore.Position) error
	// Arrivals returns the arrivals of leads whose content is still kept, at most some hundred.
	Arrivals(ctx context.Context, account string, leads []string) (ids []string, err error)
	// Linked returns, for each visitor with shown activity from before a position, whether a lead is linked with the visitor.
	Linked(ctx context.Context, account string, visitors []string, before eventstore.Position) (map[string]bool, error)
	// DeleteFromCopies deletes leads and visitors from copies of the views. HasCopies reports whether copies have such rows.
	DeleteFromCopies(ctx context.Context, gone Forgotten) error
	HasCopies(ctx context.Context, gone Forgotten) (bool, error)
	// DeleteActivities deletes activities of a visitor, by their positions, from the views and their copies.
	DeleteActivities(ctx context.Context, visitor string, at []eventstore.Position) error
}

// Forgotten names the rows to delete: those of leads by their ids, and those of visitors by their streams. Only the activity of a visitor
// before the position is deleted, because the visitor may return.
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
	Again    bool     // the lead was erased before; this call finished the erasure
	Leads    []string // the lead, and the leads that were joined into it
	Claims   int      // phones and emails that were released
	Visitors int      // visitors that were forgotten, since no other lead is linked with them
	Position eventstore.Position
}

// EraseLead erases a lead, the leads that were joined into it, and its visitors that no other lead is linked with. The errors are
// those of facts, of the keys and of the views.
func (e Eraser) EraseLead(ctx context.Context, facts Facts, leadID string) (done LeadErased, err error) {
	// 1. The fact, and the claims that it releases, in one append. It names the joined leads, a limited number of visitors, and the hashes of
	// the leads' keys.
	erased, at, again, err := facts.EraseLead(ctx, leadID, e.Keys.Commitments)
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

	// 3. The keys of the leads and, after a restore, the restored keys of visitors.
	if err := e.Keys.Destroy(ctx, leadStreams(leads)...); err != nil {
		return done, err
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
	return done, e.Views.DeleteFromCopies(ctx, Forgotten{Leads: leads})
}

// eraseArrivals erases the arrivals of leads, each with a key and a fact, until the view has none. It returns the position of the last
// fact, or the given one.
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

// DiscardArrival discards an arrival of the account: its content can no longer be read. The errors are those of facts and of the keys.
func (e Eraser) DiscardArrival(ctx context.Context, facts Facts, id string) (eventstore.Position, error) {
	return facts.DiscardArrival(ctx, id, e.destroyArrival(id))
}

// ExpireArrival deletes the content of an expired arrival. Concurrent calls for one arrival are safe.
func (e Eraser) ExpireArrival(ctx context.Context, facts Facts, id string) error {
	_, err := facts.ExpireArrival(ctx, id, e.destroyArrival(id))
	return err
}

// forgetUnlinked forgets the visitors of an erased lead that no other lead is linked with: a fact and a key for each, then the views, then
// their copies. Visitors that the views no longer show were forgotten by an earlier call, except in copies.
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
		// The key is destroyed before the fact is appended. Until then, the views show that the erasure is unfinished.
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
	return e.Views.DeleteFromCopies(ctx, Forgotten{Visitors: gone})
}

// ErrNotLost means that all activities of a visitor can be read, so that ForgetVisitor has nothing to forget.
var ErrNotLost = errors.New("nothing of the visitor is lost")

// VisitorForgotten is the result of ForgetVisitor.
type VisitorForgotten struct {
	Again     bool // the visitor was forgotten before; this call finished the erasure
	Remaining bool // other activities can be read, and are kept
	Position  eventstore.Position
}

// ForgetVisitor forgets the activities of a visitor that cannot be read because their key is lost. With finish it only finishes an earlier
// call. The errors are ErrNotLost and those of facts, of the keys and of the views.
func (e Eraser) ForgetVisitor(ctx context.Context, facts Facts, stream string, finish bool) (done VisitorForgotten, err error) {
	// 1. The fact. It names the lost keys, unless no activity can be read.
	done.Position, done.Again, done.Remaining, err = facts.ForgetLost(ctx, stream, finish)
	switch {
	case err != nil:
		return VisitorForgotten{}, err
	case done.Position == 0:
		return VisitorForgotten{}, ErrNotLost
	}
	// 2. Keys that were restored, for example from a backup.
	if err := e.Keys.DestroyReturned(ctx, stream); err != nil {
		return done, err
	}
	// 3. The views. They cannot tell the lost activities from others, since the fact names keys and rows have none.
	if err := e.Views.Await(ctx, done.Position); err != nil {
		return done, err
	}
	_, _, lost, err := facts.Visitor(ctx, stream)
	if err != nil {
		return done, err
	}
	return done, e.Views.DeleteActivities(ctx, stream, lost)
}

// DeleteVisitor forgets all activities of a visitor, whether or not a lead is linked with them. Later ones are sealed with a new key, and
// are kept.
func (e Eraser) DeleteVisitor(ctx context.Context, facts Facts, visitorID string) (VisitorForgotten, error) {
	stream := facts.VisitorStream(visitorID)
	_, readable, _, err := facts.Visitor(ctx, stream)
	if err != nil {
		return VisitorForgotten{}, err
	}
	return e.forgetAll(ctx, facts, stream, readable)
}

// ExpireVisitor does the same as DeleteVisitor if the visitor's last activity is older than a time. Concurrent calls for one visitor are
// safe.
func (e Eraser) ExpireVisitor(ctx context.Context, facts Facts, stream string, before time.Time) error {
	last, readable, _, err := facts.Visitor(ctx, stream)
	if err != nil || !last.Before(before) {
		return err
	}
	_, err = e.forgetAll(ctx, facts, stream, readable)
	if errors.Is(err, ErrNotLost) { // another process was faster, and the visitor has returned
		return nil
	}
	return err
}

// forgetAll destroys the key of the readable activities of a visitor, and forgets all that cannot be read then.
func (e Eraser) forgetAll(ctx context.Context, facts Facts, stream string, readable bool) (VisitorForgotten, error) {
	if readable {
		if err := e.Keys.Destroy(ctx, stream); err != nil {
			return VisitorForgotten{}, err
		}
	}
	return e.ForgetVisitor(ctx, facts, stream, false)
}

// Unfinished reports whether the erasure of leads and visitors at a position lacks a step.
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
	return e.Views.HasCopies(ctx, gone)
}

func leadStreams(ids []string) (streams []string) {
	for _, id := range ids {
		streams = append(streams, event.LeadStream(id))
	}
	return streams
}
