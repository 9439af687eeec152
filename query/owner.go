package query

import (
	"context"

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
		s.and(`lead_id = ?`, held.Holder)
	}
	return nil
}
