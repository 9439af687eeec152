// Package projection maintains the views, or read models: tables that are folds of the log, in the order of the log. It
// appends nothing to the log, and nothing that commands decide depends on it.
//
// A [Projector] turns events into rows. A [Runner] passes it the events in batches, and writes the checkpoint, which is
// the view's position, in the transaction that writes the rows. So each event is applied exactly once, whenever the
// process is killed, and a rebuilt view has the same rows. Views that keep up with the log share that transaction; one
// that fails or is behind has its own.
//
// A projector runs in one process at a time: the process that has its lease. If two processes run it, because one has
// not yet noticed that it lost the lease, each transaction still moves the checkpoint from the state that its process
// wrote last. So one of them fails, and its process reads the checkpoint again.
package projection

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/projection/schema"
)

// Event is an event of the log, decoded. It is shared by all projectors, and must not be changed.
type Event = eventstore.Decoded

// Projector builds a view out of events.
//
// Tables are named without a schema: the session that a projector gets has a search path.
type Projector interface {
	// Name is the key of the checkpoint. It never changes.
	Name() string
	// Version must be raised whenever the same events would produce other rows. The tables must then be rebuilt.
	Version() int
	// Tables are the tables that only this projector writes.
	Tables() []string
	// Filter selects the events. A projector that folds streams must select by stream and not by type, so that it does
	// not skip events of an unknown type.
	Filter() eventstore.Filter
	// Apply writes the rows of a batch of events. The batch is in log order and follows the last applied batch. The
	// runner writes the checkpoint in the same transaction, which other projectors may share, and commits it. The
	// session commits without waiting for the disk, since derived rows can be rebuilt. A projector whose rows cause
	// effects outside of the database must set synchronous_commit in its transaction.
	Apply(ctx context.Context, tx pgx.Tx, batch []Event) error
}

// Write writes the rows of a prepared batch, like Apply.
type Write func(ctx context.Context, tx pgx.Tx) error

// Preparer is a Projector that can start on a batch before earlier ones are written.
type Preparer interface {
	Projector
	// Prepare does all work that does not read the tables.
	Prepare(batch []Event) Write
}

func prepare(p Projector, batch []Event) Write {
	if p, ok := p.(Preparer); ok {
		return p.Prepare(batch)
	}
	return func(ctx context.Context, tx pgx.Tx) error { return p.Apply(ctx, tx, batch) }
}

// Chooser is a Projector that ignores most of the events that it selects, depending on its rows. The checkpoint moves
// past them without a transaction for each batch.
type Chooser interface {
	Projector
	// Choose reads the rows, which only this session writes, and returns a function that is called with each event
	// once, in the order of the log.
	Choose(ctx context.Context, db Rows) (chosen func(Event) bool, err error)
}

// Rows is a connection, a pool of them or a transaction.
type Rows interface {
	schema.Querier
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Maintainer is a Projector that maintains other tables, derived from its rows, such as a search index. It does so in
// the background, when there are no events to apply.
type Maintainer interface {
	Projector
	// DerivedTables are the names of those tables, which are among Tables, so that a replay replaces them. Their rows
	// are not a fold of the log.
	DerivedTables() []string
	// CompareDerived compares them in the live view's schema with the rows, and lists the differences.
	CompareDerived(ctx context.Context, tx pgx.Tx, live string, limit int) ([]Difference, error)
	// Maintenance starts for one session.
	Maintenance() Maintenance
}

// Maintenance is the state that one session keeps of the pending work on the derived tables.
type Maintenance interface {
	// Note gets events whose rows are committed.
	Note(events []Event)
	// Due reports whether there is work to do now, and Pending whether there will be soon.
	Due() bool
	Pending() bool
	// Run does some milliseconds of work. Its transaction blocks all other writes to the view.
	Run(ctx context.Context, tx pgx.Tx) error
}

// MaintenancePause is how long a session that has nothing to apply waits while maintenance is pending.
const MaintenancePause = time.Second

// Union returns a filter that selects at least the events that any of the projectors selects.
func Union(projectors []Projector) (all eventstore.Filter) {
	anyStream, anyType := false, false
	for _, p := range projectors {
		filter := p.Filter()
		anyStream, anyType = anyStream || len(filter.StreamPrefixes) == 0, anyType || len(filter.Types) == 0
		all.StreamPrefixes = append(all.StreamPrefixes, filter.StreamPrefixes...)
		all.Types = append(all.Types, filter.Types...)
	}
	if anyStream {
		all.StreamPrefixes = nil
	}
	if anyType {
		all.Types = nil
	}
	slices.Sort(all.StreamPrefixes)
	all.StreamPrefixes = slices.Compact(all.StreamPrefixes)
	return all
}
