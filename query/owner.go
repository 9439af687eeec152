package query

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/eventstore"
)

// WithClaims lets the Reader find a lead by phone or email on the log, where a claim names its owner. Without it, every row of the
// account is read: the view has no index on phones and emails, because maintaining an index of random keys would be the most
// expensive part of a capture.
func WithClaims(names claim.Names) Option { return func(r *Reader) { r.claims = &names } }

// owning adds the condition that a lead is the one which the claims on the filter's phone and email name. A lead keeps the
// claims on values that it had before, so the filter's own conditions on phone and email stay.
func (r *Reader) owning(ctx context.Context, s *selection, account string, filter LeadFilter) error {
	if r.claims == nil {
		return nil
	}
	for kind, value := range map[claim.Kind]string{claim.Phone: filter.Phone, claim.Email: filter.Email} {
		if value == "" {
			continue
		}
		held, _, err := eventstore.Load(ctx, r.store, r.claims.Stream(account, kind, value), claim.Evolve)
		if err != nil {
			return err
		}
		owner, err := r.heir(ctx, held.Holder)
		if err != nil {
			return err
		}
		s.and(`lead_id = ?`, owner)
	}
	return nil
}

// heir returns the lead that a claim's holder is part of, mostly the holder itself. On a store without transactions a claim may
// still name a departed lead, if the process that joined it into another was killed before it moved the claim.
func (r *Reader) heir(ctx context.Context, holder string) (string, error) {
	for range longestWay {
		there, err := one(ctx, r, pgx.RowTo[bool], `SELECT EXISTS (SELECT FROM views.lead WHERE lead_id = $1)`, holder)
		if err != nil || there || holder == "" {
			return holder, err
		}
		state, err := r.foldLead(ctx, holder, time.Time{})
		if err != nil || state.JoinedInto == "" {
			return holder, err
		}
		holder = state.JoinedInto
	}
	return holder, nil
}
