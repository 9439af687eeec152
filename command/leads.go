package command

import (
	"context"
	"errors"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// leadFolds are the rules by which leads are folded and cached. Streams are long of leads that arrive or are changed
// again and again. Live and joined leads are cacheable: their events become unreadable when the person is forgotten, as
// Cacheable requires.
var leadFolds = eventstore.FoldRules[lead.State]{
	Evolve:    lead.Fold,
	Cacheable: func(s lead.State) bool { return s.Phase == lead.Live || s.Phase == lead.Joined },
	Long:      128, Memory: 8 << 20,
}

// NewLeads returns an empty cache of folded leads, which the commands and queries of a process share.
func NewLeads() *eventstore.Folds[lead.State] { return eventstore.NewFolds(leadFolds) }

// loadedLead is a lead and the revision that it was read at.
type loadedLead struct {
	stream string
	expect eventstore.Expected
	lead   lead.State
}

func (h *Handlers) loadLead(ctx context.Context, stream string) (loadedLead, error) {
	state, expect, err := h.leads.Load(ctx, h.store, stream)
	return loadedLead{stream, expect, state}, err
}

// survivingLead follows a lead that was joined into another to the lead that it is part of now. It returns any other
// lead itself.
func (h *Handlers) survivingLead(ctx context.Context, at loadedLead) (_ loadedLead, err error) {
	for at.lead.Phase == lead.Joined && err == nil {
		at, err = h.loadLead(ctx, event.LeadStream(at.lead.JoinedInto))
	}
	return at, err
}

// nameSurvivingLead completes a *JoinedError: it names the live lead that the lead is part of now. If that lead was
// erased, the error is lead.ErrNotFound.
func (h *Handlers) nameSurvivingLead(ctx context.Context, err error) error {
	joined, ok := errors.AsType[*lead.JoinedError](err)
	if !ok {
		return err
	}
	survivor, unread := h.loadLead(ctx, event.LeadStream(joined.Into))
	if unread == nil {
		survivor, unread = h.survivingLead(ctx, survivor)
	}
	if unread != nil {
		return unread
	}
	if survivor.lead.Phase != lead.Live {
		return lead.ErrNotFound
	}
	return &lead.JoinedError{LeadID: joined.LeadID, Into: survivor.lead.ID}
}
