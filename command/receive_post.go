package command

import (
	"context"
	"errors"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/draft"
	"github.com/leadlog/leadlog/eventstore/event"
)

// ReceivePost is ReceiveArrival for all arrivals of a post to an intake, in order and in one append: all are on the log,
// or none is. ErrArrivalTooLarge says that one append cannot have all.
//
// Most are new, so they are first decided on without looking up their streams. After a conflict, all are decided on
// again with what the log has.
func (h *Handlers) ReceivePost(ctx context.Context, post []ReceiveArrival) (answers []ArrivalReceived, err error) {
	if len(post) == 1 {
		answer, err := h.ReceiveArrival(ctx, post[0])
		return []ArrivalReceived{answer}, err
	}
	log := draft.Presuming(h.store)
	err = eventstore.Retry(ctx, func(ctx context.Context) error {
		onDraft := h.on(log)
		answers = make([]ArrivalReceived, len(post))
		for i, cmd := range post {
			if answers[i], err = onDraft.ReceiveArrival(ctx, cmd); err != nil {
				return err
			}
		}
		writes := log.Writes()
		log = draft.On(h.store)
		if len(writes) == 0 { // all are repeated
			return nil
		}
		position, err := h.store.Append(ctx, writes...)
		conflict := eventstore.Conflict(err)
		switch {
		case err == nil:
			for i := range answers {
				if !answers[i].Repeated {
					answers[i].Position = position
				}
			}
		case errors.Is(err, eventstore.ErrInvalid):
			return ErrArrivalTooLarge
		case conflict != nil && conflict.Stream == post[0].Intake.Stream:
			return ErrIntakeChanged
		case conflict != nil && conflict.Stream == event.AccountStream(post[0].Caller.Account):
			if _, err := h.directory.ConfirmAccount(ctx, post[0].Caller.Account); err != nil {
				return err
			}
		}
		return err
	})
	return answers, err
}

// on returns the handlers of captures on a draft of the log. Leads that are cached stay apart from it; which lead has a
// phone or email is only presumed.
func (h *Handlers) on(log *draft.Store) *Handlers {
	return &Handlers{
		store: log, claims: h.claims, directory: h.directory, leads: NewLeads(), holders: h.holders, log: h.log,
		now: h.now, entropy: h.entropy, turns: h.turns, mappings: h.mappings,
	}
}
