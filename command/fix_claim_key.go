package command

import (
	"bytes"
	"context"
	"errors"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// ErrOtherClaimKey means that the claims of this log were named with another key. With this key no person would be
// found again.
var ErrOtherClaimKey = errors.New("the claim key differs from the one that this log was started with")

// FixClaimKey makes the first claim key that a log is served with its only one. The error is ErrOtherClaimKey when
// the log has another.
func (h *Handlers) FixClaimKey(ctx context.Context) error {
	fingerprint := h.claims.Fingerprint()
	return h.transact.Do(ctx, []string{event.ClaimKeyStream}, func(ctx context.Context) error {
		fixed, expect, err := eventstore.Load(ctx, h.store,
			event.ClaimKeyStream, func(_ []byte, fact event.Fact) []byte {
				return fact.Data.(event.ClaimKeyFixed).Fingerprint
			})
		if err != nil {
			return err
		}
		if fixed == nil {
			write, err := h.write(Caller{Actor: "system:serve"}, event.ClaimKeyStream, expect, h.timestamp(),
				event.ClaimKeyFixed{Fingerprint: fingerprint})
			if err == nil {
				_, err = h.store.Append(ctx, write)
			}
			return err
		}
		if !bytes.Equal(fixed, fingerprint) {
			return ErrOtherClaimKey
		}
		return nil
	})
}
