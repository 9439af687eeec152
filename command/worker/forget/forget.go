// Package forget erases persons: leads, and visitors of a web site.
//
// A person's data are on the log, sealed with keys of their own; in the views and in copies of them; and in the record
// of webhook deliveries. [Eraser.EraseLead] and [Eraser.ForgetVisitor] have the steps of an erasure in order. Every
// step is idempotent. Repeating the request finishes an interrupted erasure, because the fact that the first step
// appends names everything that the other steps delete.
//
// The views and the fan-out of webhooks follow the log, and delete the rows of an erased person themselves. This
// package waits for them, and deletes the data that no event reaches. Backups of the log need no step: without the key
// they reveal no more than the log.
package forget

import (
	"context"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/projection"
)

// Keys are the keys that seal personal data on the log. sealed.Store implements it.
type Keys interface {
	eventstore.KeyCommitments
	// Destroy deletes the keys of streams. Their personal data cannot be read without them.
	Destroy(ctx context.Context, streams ...string) error
	// DestroyReturned deletes keys that were restored, for example from a backup, and that open events from before the
	// streams were forgotten. Returned reports whether such keys exist.
	DestroyReturned(ctx context.Context, streams ...string) error
	Returned(ctx context.Context, streams ...string) (bool, error)
	// DestroyBefore deletes the keys of a stream that seal only events before a revision. HasKeysBefore reports whether
	// there are such keys.
	DestroyBefore(ctx context.Context, stream string, before eventstore.Revision) error
	HasKeysBefore(ctx context.Context, stream string, before eventstore.Revision) (bool, error)
	// HasKeys reports whether any of the streams has a key.
	HasKeys(ctx context.Context, streams ...string) (bool, error)
}

// Views is the data derived from the log. Database implements it.
type Views interface {
	// Await returns when the views and the fan-out of webhooks have reached a position.
	Await(ctx context.Context, position eventstore.Position) error
	// Arrivals returns the arrivals of leads whose content is still kept, at most some hundred.
	Arrivals(ctx context.Context, account string, leads []string) (ids []string, err error)
	// Linked returns, for each visitor with shown activity from before a position, whether a lead is linked with the
	// visitor.
	Linked(ctx context.Context, account string, visitors []string, before eventstore.Position) (map[string]bool, error)
	// DeleteFromCopies deletes leads and visitors from copies of the views. HasCopies reports whether copies have such
	// rows.
	DeleteFromCopies(ctx context.Context, gone projection.Forgotten) error
	HasCopies(ctx context.Context, gone projection.Forgotten) (bool, error)
}

// Eraser erases persons.
type Eraser struct {
	Keys  Keys
	Views Views
}
