package logtree

import (
	"context"
	"errors"

	"github.com/go-json-experiment/json"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/audit"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/merkle"
	"github.com/leadlog/leadlog/query"
)

var (
	// ErrNotFound means that the account has no such lead, or the lead no such event.
	ErrNotFound = errors.New("no such event of a lead")
	// ErrErased means that the personal data of an event were erased.
	ErrErased = errors.New("the person of the event is erased")
)

// LeadEvent finds an event of a lead of an account, as it is stored. It finds those of erased leads too. The error is
// ErrNotFound.
func (r Reader) LeadEvent(
	ctx context.Context, account, leadID string, is func(eventstore.Recorded) bool,
) (eventstore.Recorded, error) {
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

// Receipt returns the receipt of an event: a C2SP transparency log proof (c2sp.org/tlog-proof) with the newest
// published checkpoint. The error is ErrNotCovered.
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

// Evidence returns the evidence of an event of a lead, given in stored form: its content with the receipt. The errors
// are ErrErased and ErrNotCovered.
func (r Reader) Evidence(ctx context.Context, stored eventstore.Recorded) (audit.Evidence, error) {
	last, err := r.Log.Last(ctx, stored.Stream)
	if err != nil {
		return audit.Evidence{}, err
	}
	opened, nonce, err := r.Open(ctx, stored)
	if err != nil {
		return audit.Evidence{}, err
	}
	if opened.Erased || last.Type == (event.LeadErased{}).EventType() {
		return audit.Evidence{}, ErrErased
	}
	receipt, err := r.Receipt(ctx, stored.Position)
	if err != nil {
		return audit.Evidence{}, err
	}
	shown, err := json.Marshal(query.NewEvent(opened))
	if err != nil {
		return audit.Evidence{}, err
	}
	return audit.NewEvidence(stored, shown, nonce, receipt)
}
