package logtree

import (
	"context"
	"errors"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/merkle"
)

// ErrNotFound means that the account has no such lead, or the lead no such event.
var ErrNotFound = errors.New("no such event of a lead")

// LeadEvent finds an event of a lead of an account, as it is stored. It finds those of erased leads too. The error is ErrNotFound.
func (r Reader) LeadEvent(ctx context.Context, account, leadID string, is func(eventstore.Recorded) bool) (eventstore.Recorded, error) {
	if !event.ValidID(leadID) {
		return eventstore.Recorded{}, ErrNotFound
	}
	for e, err := range r.Log.Read(ctx, event.LeadStream(leadID), 0) {
		if err != nil {
			return eventstore.Recorded{}, err
		}
		if e.Metadata.Account != account {
			break
		}
		if is(e) {
			return e, nil
		}
	}
	return eventstore.Recorded{}, ErrNotFound
}

// Receipt returns the receipt of an event: a C2SP transparency log proof (c2sp.org/tlog-proof) with the newest published checkpoint.
// The error is ErrNotCovered.
func (r Reader) Receipt(ctx context.Context, of eventstore.Position) ([]byte, error) {
	checkpoint, err := r.Checkpoint(ctx)
	if errors.Is(err, ErrNoCheckpoint) {
		return nil, ErrNotCovered
	}
	if err != nil {
		return nil, err
	}
	index, leaf, err := r.LeafIndex(ctx, of)
	if err == nil && index >= checkpoint.N {
		err = ErrNotCovered
	}
	if err != nil {
		return nil, err
	}
	path, err := tlog.ProveRecord(checkpoint.N, index, r.Hashes(ctx))
	if err != nil {
		return nil, err
	}
	return merkle.FormatProof(leaf, index, path, []byte(checkpoint.Note)), nil
}
