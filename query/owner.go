package query

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/eventstore"
)

// WithClaims says how claims are named. With it a lead is found by its phone or email where the log keeps who owns each;
// without it every row of the account is looked at, for the view has no index on them: they are random, and an index of
// random keys is what a capture pays most for.
func WithClaims(names claim.Names) Option { return func(r *Reader) { r.claims = &names } }

// owning adds that leads own the phone and the email that a filter names, which they do when they have it. What they had
// before they own too, so it takes the place of no other condition.
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

// heir is the lead that a claim's holder is part of, which is mostly itself. On a store without transactions a claim may
// name a lead that has departed, for good: who joined it into another was killed before the claim moved.
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
