package command

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leadlog/leadlog/command/visitor"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

var (
	// ErrNoVisitor says that the account has no such visitor.
	ErrNoVisitor = errors.New("the account has no such visitor")
	// ErrNotLost says that whatever a visitor did can be read.
	ErrNotLost = errors.New("nothing of the visitor is lost")
)

// ForgetVisitor asks that what cannot be read of a visitor, since the key is lost, stays so. Who can be read is forgotten by
// DeleteVisitor, or with the last lead that is linked with them: see EraseLead.
type ForgetVisitor struct {
	Caller Caller
	Stream string
	Finish bool // only what was said before: what else is lost may still be found
}

// VisitorForgotten is the answer. Again is true if that was said before, and this call finished what was left undone then.
type VisitorForgotten struct {
	Again    bool
	Rest     bool // what else the visitor did can be read, and stays
	Position eventstore.Position
}

// forgettable is a visitor's stream as far as it matters here.
type forgettable struct {
	visitor.Loss
	end   eventstore.Expected
	acted time.Time             // the last activity, of those that were forgotten too
	said  eventstore.Position   // the last that was said of this
	gone  []eventstore.Position // of what that was about
}

// ForgetVisitor appends the fact, and does away with what the fact is about: keys that came back, and what views and copies of
// them have of it. If it is interrupted, asking again finishes it.
//
// The errors are ErrNoVisitor, ErrNotLost and those of the store.
func (h *Handlers) ForgetVisitor(ctx context.Context, cmd ForgetVisitor) (done VisitorForgotten, err error) {
	var found forgettable
	err = h.transact.Do(ctx, []string{cmd.Stream}, func(ctx context.Context) error {
		if found, err = h.forgettable(ctx, cmd); err != nil {
			return err
		}
		done = VisitorForgotten{Again: cmd.Finish || len(found.Keys) == 0, Rest: found.Rest, Position: found.said}
		switch {
		case done.Again && found.said == 0:
			return ErrNotLost
		case done.Again:
			return nil
		}
		// What the visitor does meanwhile can be read: it is a conflict, and then it is not what the fact is about.
		write, err := h.write(cmd.Caller.withoutOrigin(), cmd.Stream, found.end, h.timestamp(), found.Fact())
		if err != nil {
			return err
		}
		done.Position, err = h.store.Append(ctx, write)
		return err
	})
	if err != nil {
		return VisitorForgotten{}, err
	}
	if err := h.forgetting.Expel(ctx, cmd.Stream); err != nil {
		return done, err
	}
	if err := h.forgetting.Await(ctx, done.Position); err != nil {
		return done, err
	}
	if found, err = h.forgettable(ctx, cmd); err != nil { // again: without the keys that came back
		return done, err
	}
	return done, h.forgetting.Withdraw(ctx, cmd.Stream, found.gone)
}

func (h *Handlers) forgettable(ctx context.Context, cmd ForgetVisitor) (f forgettable, err error) {
	if !strings.HasPrefix(cmd.Stream, event.VisitorPrefix) {
		return f, ErrNoVisitor
	}
	f.end = eventstore.NoStream
	unread := map[int64][]eventstore.Position{} // by key
	for recorded, err := range h.store.Read(ctx, cmd.Stream, 0) {
		if err != nil {
			return f, err
		}
		fact, err := recorded.Fact()
		if err != nil {
			return f, err
		}
		if recorded.Metadata.Account != cmd.Caller.Account {
			return f, ErrNoVisitor
		}
		f.end = eventstore.At(recorded.Revision)
		if _, is := fact.Data.(event.VisitorActed); is {
			f.acted = recorded.At
		}
		switch forgotten, is := fact.Data.(event.VisitorForgotten); {
		case is:
			f.Forgotten(forgotten)
			f.said = recorded.Position
		case recorded.Erased:
			f.Unread(recorded.LostKey)
			unread[recorded.LostKey] = append(unread[recorded.LostKey], recorded.Position)
		default:
			f.Rest = true
		}
	}
	if f.end == eventstore.NoStream {
		return f, ErrNoVisitor
	}
	for key, at := range unread {
		if !slices.Contains(f.Keys, strconv.FormatInt(key, 10)) {
			f.gone = append(f.gone, at...)
		}
	}
	return f, nil
}
