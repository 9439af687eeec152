package command

import (
	"context"
	"errors"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// leadFolds says how leads are folded and which folds stay in memory. Streams are long of leads that arrive or are changed again
// and again. Only live leads are kept: their events become unreadable when the person is forgotten, as Keep requires.
var leadFolds = eventstore.FoldRules[lead.State]{
	Evolve: lead.Fold,
	Keep:   func(s lead.State) bool { return s.Phase == lead.Live },
	Long:   128, Memory: 8 << 20,
}

// holder is a lead as it was read.
type holder struct {
	stream string
	expect eventstore.Expected
	lead   lead.State
}

func (h *Handlers) holderOf(ctx context.Context, stream string) (holder, error) {
	state, expect, err := h.leads.Load(ctx, h.store, stream)
	return holder{stream, expect, state}, err
}

// survivorOf follows a lead that has departed to the one that it is part of now. A lead that has not departed is its own survivor.
func (h *Handlers) survivorOf(ctx context.Context, at holder) (_ holder, err error) {
	for at.lead.Phase == lead.Departed && err == nil {
		at, err = h.holderOf(ctx, event.LeadStream(at.lead.JoinedInto))
	}
	return at, err
}

// nameSurvivor completes the error for a departed lead: it names the live lead that it is part of now. If that lead was erased, the
// error is lead.ErrNotFound.
func (h *Handlers) nameSurvivor(ctx context.Context, err error) error {
	departed, ok := errors.AsType[*lead.DepartedError](err)
	if !ok {
		return err
	}
	survivor, unread := h.holderOf(ctx, event.LeadStream(departed.Into))
	if unread == nil {
		survivor, unread = h.survivorOf(ctx, survivor)
	}
	if unread != nil {
		return unread
	}
	if survivor.lead.Phase != lead.Live {
		return lead.ErrNotFound
	}
	return &lead.DepartedError{LeadID: departed.LeadID, Into: survivor.lead.ID}
}
