package command

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/command/visitor"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// ErrNoVisitor means that the account has no such visitor.
var ErrNoVisitor = errors.New("the account has no such visitor")

// Erasure decides and appends the facts of erasures for one caller. Package command/worker/forget has the steps of an
// erasure in order, and does the rest: it destroys keys and deletes derived data.
type Erasure struct {
	h         *Handlers
	caller    Caller
	retention *lead.Retention // nil: leads are erased whatever their age
}

// Erasure returns the part of erasures that is appended to the log.
func (h *Handlers) Erasure(caller Caller) Erasure { return Erasure{h: h, caller: caller} }

// RetentionErasure is the Erasure of an account's leads that are due. For others, EraseLead returns lead.ErrNotDue.
func (h *Handlers) RetentionErasure(account string, due lead.Retention) Erasure {
	return Erasure{h, Caller{Account: account, Actor: RetentionActor}, &due}
}

// RetentionActor erases leads whose retention has ended.
const RetentionActor = "system:retention"

// Account returns the account of the caller.
func (e Erasure) Account() string { return e.caller.Account }

// EraseLead appends lead.erased, with the hashes of the keys that will be destroyed, and releases the lead's claims, in
// one append. Again means that an earlier call has appended the fact that is returned. The errors are lead.ErrNotFound,
// *lead.JoinedError and those of the store and of keys.
func (e Erasure) EraseLead(
	ctx context.Context, leadID string, keys eventstore.KeyCommitments,
) (fact event.LeadErased, at eventstore.Position, again bool, err error) {
	if !event.ValidID(leadID) {
		return fact, 0, false, lead.ErrNotFound
	}
	stream := event.LeadStream(leadID)
	err = e.h.transact.Do(ctx, []string{stream}, func(ctx context.Context) (err error) {
		fact, at, again, err = e.eraseLead(ctx, leadID, keys)
		return err
	})
	if err != nil {
		return event.LeadErased{}, 0, false, err
	}
	for _, claimed := range fact.Claims {
		e.h.holders.Remove(claimed)
	}
	return fact, at, again, nil
}

func (e Erasure) eraseLead(
	ctx context.Context, leadID string, keys eventstore.KeyCommitments,
) (fact event.LeadErased, at eventstore.Position, again bool, err error) {
	stream := event.LeadStream(leadID)
	held, err := e.h.loadLead(ctx, stream)
	if err != nil {
		return fact, 0, false, err
	}
	var writes []eventstore.Write
	if held.lead.Phase == lead.Erased && held.lead.Account == e.Account() {
		if fact, at, err = e.h.erasureOf(ctx, held); at > 0 || err != nil {
			return fact, at, at > 0, err
		}
		fact, err = e.h.erasureOfLost(ctx, held)
	} else if e.retention != nil && !e.retention.Due(held.lead) {
		err = lead.ErrNotDue
	} else {
		fact, writes, err = e.erasureOfLive(ctx, leadID, held)
	}
	if err != nil {
		return fact, 0, false, err
	}
	if fact.KeyCommitments, err = commitments(ctx, keys, append([]string{leadID}, fact.Leads...),
		fact.Origins); err != nil {
		return fact, 0, false, err
	}
	write, err := e.h.write(e.caller.withoutOrigin(), stream, held.expect, e.h.after(held.lead.UpdatedAt), fact)
	if err != nil {
		return fact, 0, false, err
	}
	at, err = e.h.store.Append(ctx, append(writes, write)...)
	return fact, at, false, err
}

// commitments returns the hashes of the keys of leads, in the order of the leads, and of the keys of parts of other
// leads.
func commitments(
	ctx context.Context, keys eventstore.KeyCommitments, leads []string, origins []event.SplitOrigin,
) (all []event.KeyCommitment, err error) {
	streams := make([]string, len(leads))
	for i, id := range leads {
		streams[i] = event.LeadStream(id)
	}
	found, err := keys.Commitments(ctx, streams...)
	for i, id := range leads {
		for _, commitment := range found[streams[i]] {
			all = append(all, event.KeyCommitment{LeadID: id, Commitment: commitment})
		}
	}
	for _, origin := range origins {
		if err != nil {
			return nil, err
		}
		if slices.Contains(leads, origin.LeadID) {
			continue
		}
		var destroyed []string
		destroyed, err = keys.CommitmentsBefore(ctx, event.LeadStream(origin.LeadID),
			eventstore.Revision(origin.Before))
		for _, commitment := range destroyed {
			all = append(all, event.KeyCommitment{LeadID: origin.LeadID, Commitment: commitment})
		}
	}
	return all, err
}

// erasureOf finds the fact on the log, which ends its stream. The position is 0 without one.
func (h *Handlers) erasureOf(
	ctx context.Context, held loadedLead,
) (erased event.LeadErased, at eventstore.Position, err error) {
	for recorded, err := range h.store.Read(ctx, held.stream, eventstore.Revision(held.expect)) {
		if err != nil {
			return erased, 0, err
		}
		fact, err := recorded.Fact()
		if err != nil {
			return erased, 0, err
		}
		if data, ok := fact.Data.(event.LeadErased); ok {
			erased, at = data, recorded.Position
		}
	}
	return erased, at, nil
}

// erasureOfLive decides the fact of a live lead, and the writes that release its claims. A lead that was joined into an
// erased one may be erased too.
func (e Erasure) erasureOfLive(
	ctx context.Context, leadID string, held loadedLead,
) (fact event.LeadErased, releases []eventstore.Write, err error) {
	err = held.lead.Present(e.Account())
	if _, joined := errors.AsType[*lead.JoinedError](err); joined {
		survivor, unread := e.h.survivingLead(ctx, held)
		if unread != nil || survivor.lead.Phase == lead.Erased {
			err = unread
		}
	}
	if err != nil {
		return fact, nil, err
	}
	fact.Leads, fact.Origins = held.lead.Joined, held.lead.Origins
	for _, kind := range []claim.Kind{claim.Phone, claim.Email} {
		for _, value := range values(held.lead, kind) {
			fact.Claims = append(fact.Claims, e.h.claims.Stream(e.Account(), kind, value))
		}
	}
	for _, id := range held.lead.VisitorIDs {
		fact.Visitors = append(fact.Visitors, e.h.claims.Visitor(e.Account(), id))
	}
	for _, claimed := range fact.Claims {
		release, err := e.h.releaseClaim(ctx, systemCaller(e.Account()), claimed, leadID)
		if err != nil {
			return fact, nil, err
		}
		releases = append(releases, release...)
	}
	return fact, releases, nil
}

// erasureOfLost decides the fact of a lead that cannot be read although no fact on the log erased it, because the log
// was restored from a backup that is older than the erasure. The ids of joined leads can still be read, but not the
// lead's values. So its claims keep naming it, and count as free.
func (h *Handlers) erasureOfLost(ctx context.Context, held loadedLead) (erased event.LeadErased, err error) {
	for recorded, err := range h.store.Read(ctx, held.stream, 0) {
		if err != nil {
			return erased, err
		}
		fact, err := recorded.Fact()
		if err != nil {
			return erased, err
		}
		switch data := fact.Data.(type) {
		case event.LeadJoined:
			erased.Leads = append(append(erased.Leads, data.From), data.Joined...)
			erased.Origins = append(erased.Origins, data.Origins...)
		case event.LeadSplit:
			erased.Leads, erased.Origins = data.Joined, data.Origins
		case event.LeadJoinedInto: // it is erased with the lead that it was joined into
			return erased, lead.ErrNotFound
		}
	}
	return erased, nil
}

// MoreVisitors returns, in pages of at most lead.MaxVisitors, the streams of the visitors of an erased lead that exceed
// the number that the fact names. A visitor may be in several pages. They are read from the events of the lead and of
// those that were joined into it, so there are none once the keys of these are destroyed.
func (e Erasure) MoreVisitors(ctx context.Context, leadID string, erased event.LeadErased) iter.Seq2[[]string, error] {
	return func(yield func([]string, error) bool) {
		if len(erased.Visitors) < lead.MaxVisitors {
			return
		}
		named, page := map[string]bool{}, map[string]struct{}{}
		for _, stream := range erased.Visitors {
			named[stream] = true
		}
		for _, id := range append([]string{leadID}, erased.Leads...) {
			for recorded, err := range e.h.store.Read(ctx, event.LeadStream(id), 0) {
				if err != nil {
					yield(nil, err)
					return
				}
				visitorID, err := visitorOf(recorded)
				if err != nil {
					yield(nil, err)
					return
				}
				if visitorID == "" {
					continue
				}
				stream := e.h.claims.Visitor(e.Account(), visitorID)
				if named[stream] {
					continue
				}
				if page[stream] = struct{}{}; len(page) < lead.MaxVisitors {
					continue
				}
				if !yield(slices.Sorted(maps.Keys(page)), nil) {
					return
				}
				clear(page)
			}
		}
		if len(page) > 0 {
			yield(slices.Sorted(maps.Keys(page)), nil)
		}
	}
}

// visitorOf returns the visitor that an event links with its lead; empty without one.
func visitorOf(recorded eventstore.Recorded) (string, error) {
	fact, err := recorded.Fact()
	if err != nil {
		return "", err
	}
	switch data := fact.Data.(type) {
	case event.LeadCreated:
		return data.VisitorID, nil
	case event.LeadMerged:
		return data.VisitorID, nil
	}
	return "", nil
}

// ForgetUnlinked calls destroy, which destroys the key of a visitor that no lead is linked with any more, and appends
// visitor.forgotten. It repeats both if the visitor has acted in between, under a new key.
func (e Erasure) ForgetUnlinked(
	ctx context.Context, stream string, destroy func(context.Context) error,
) (at eventstore.Position, err error) {
	err = e.h.transact.Do(ctx, []string{stream}, func(ctx context.Context) error {
		_, end, err := eventstore.Load(ctx, e.h.store, stream, func(struct{}, event.Fact) struct{} {
			return struct{}{}
		})
		if err != nil {
			return err
		}
		if err := destroy(ctx); err != nil {
			return err
		}
		write, err := e.h.write(systemCaller(e.Account()), stream, end, e.h.timestamp(), event.VisitorForgotten{})
		if err != nil {
			return err
		}
		at, err = e.h.store.Append(ctx, write)
		return err
	})
	return at, err
}

// VisitorStream returns the stream of a visitor of the account. The id is as given.
func (e Erasure) VisitorStream(visitorID string) string {
	return e.h.claims.Visitor(e.Account(), visitorID)
}

// Visitor reads the stream of a visitor: the time of the last activity, whether one can be read that was not forgotten,
// and the keys of those that are forgotten and cannot be read. The errors are ErrNoVisitor and those of the store.
func (e Erasure) Visitor(ctx context.Context, stream string) (last time.Time, readable bool, lost []int64, err error) {
	found, err := e.visitor(ctx, stream)
	return found.last, found.Remaining, found.lost, err
}

// ForgetLost appends visitor.forgotten for activities of a visitor that cannot be read because their key is lost,
// unless an earlier fact covers them. It returns the position of the latest fact, or 0. Again reports that it appended
// none, remaining that other activities can be read. With finish it never appends. The errors are ErrNoVisitor and
// those of the store.
func (e Erasure) ForgetLost(
	ctx context.Context, stream string, finish bool,
) (at eventstore.Position, again, remaining bool, err error) {
	err = e.h.transact.Do(ctx, []string{stream}, func(ctx context.Context) error {
		found, err := e.visitor(ctx, stream)
		if err != nil {
			return err
		}
		at, again, remaining = found.forgotten, finish || len(found.Keys) == 0, found.Remaining
		if again {
			return nil
		}
		// An activity that is recorded concurrently can be read. It causes a conflict, and the next decision leaves it
		// out.
		write, err := e.h.write(e.caller.withoutOrigin(), stream, found.end, e.h.timestamp(), found.Fact())
		if err != nil {
			return err
		}
		at, err = e.h.store.Append(ctx, write)
		return err
	})
	return at, again, remaining, err
}

// visitorState is a visitor's stream as far as forgetting the visitor needs it.
type visitorState struct {
	visitor.Loss
	end       eventstore.Expected
	last      time.Time           // of the last activity, of those that were forgotten too
	forgotten eventstore.Position // of the latest visitor.forgotten; 0 without one
	lost      []int64             // keys of the activities that are forgotten and cannot be read
}

func (e Erasure) visitor(ctx context.Context, stream string) (s visitorState, err error) {
	if !strings.HasPrefix(stream, event.VisitorPrefix) {
		return s, ErrNoVisitor
	}
	s.end = eventstore.NoStream
	for recorded, err := range e.h.store.Read(ctx, stream, 0) {
		if err != nil {
			return s, err
		}
		fact, err := recorded.Fact()
		if err != nil {
			return s, err
		}
		if recorded.Metadata.Account != e.Account() {
			return s, ErrNoVisitor
		}
		s.end = eventstore.At(recorded.Revision)
		if _, is := fact.Data.(event.VisitorActed); is {
			s.last = recorded.At
		}
		switch forgotten, is := fact.Data.(event.VisitorForgotten); {
		case is:
			s.Forgotten(forgotten)
			s.forgotten = recorded.Position
		case recorded.Erased:
			s.Unread(recorded.KeyID)
			if !slices.Contains(s.lost, recorded.KeyID) {
				s.lost = append(s.lost, recorded.KeyID)
			}
		default:
			s.Remaining = true
		}
	}
	if s.end == eventstore.NoStream {
		return s, ErrNoVisitor
	}
	s.lost = slices.DeleteFunc(s.lost, func(key int64) bool {
		return slices.Contains(s.Keys, strconv.FormatInt(key, 10))
	})
	return s, nil
}
