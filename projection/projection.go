// Package projection keeps the read models: tables that are folds of the log, in the order of the log.
//
// A [Projector] turns events into rows. A [Runner] brings it the events in batches and writes, in the transaction that
// writes the rows, how far it has come. So every event has its effect once, whatever is killed when; and a view that
// is dropped comes back the same.
//
// One process at a time runs a projector: whoever has its advisory lock. The session that holds the lock is the one
// that writes, so lock and transaction end together, and another process goes on where the checkpoint is.
package projection

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// Event is an event of the log, decoded.
type Event struct {
	*eventstore.Recorded // which all projectors share: nobody changes it
	Data                 event.Data
}

// Fact is the event as deciders fold it.
func (e Event) Fact() event.Fact {
	return event.Fact{ID: e.ID, Stream: e.Stream, At: e.At, Metadata: e.Metadata, Data: e.Data, Erased: e.Erased}
}

// Projector builds a view out of events.
//
// It names its tables without their schema: the session it is given has a search path.
type Projector interface {
	// Name goes with the checkpoint. It never changes.
	Name() string
	// Version grows whenever the same events would give other rows: what stands in the tables must then be built anew.
	Version() int
	// Tables are those that it writes, and nobody else does.
	Tables() []string
	// Filter selects the events. By stream rather than by type: a projector that folds must not pass over events of
	// a type that it does not know.
	Filter() eventstore.Filter
	// Apply writes what a batch of events means. The batch is in the order of the log and follows what was applied
	// before; the transaction is that of the checkpoint, and the runner ends it. The session commits without waiting
	// for the disk, which rows that are derived can afford; a projector whose rows set off something outside the
	// database sets synchronous_commit for its transaction.
	Apply(ctx context.Context, tx pgx.Tx, batch []Event) error
}

// write is the rest of Apply.
type write func(ctx context.Context, tx pgx.Tx) error

// preparer is a Projector that can start on a batch before earlier ones are written: prepare does all that needs no
// look at the tables.
type preparer interface {
	prepare(batch []Event) write
}

func prepare(p Projector, batch []Event) write {
	if p, ok := p.(preparer); ok {
		return p.prepare(batch)
	}
	return func(ctx context.Context, tx pgx.Tx) error { return p.Apply(ctx, tx, batch) }
}

// chooser is a Projector to which most of the events that it selects mean nothing, as its rows tell. The checkpoint passes
// over them without a transaction for each batch.
type chooser interface {
	// Choose looks at the rows, which nobody but the session writes while it lasts. What it returns is given each event
	// once, in the order of the log.
	Choose(ctx context.Context, conn *pgx.Conn) (chosen func(Event) bool, err error)
}

// upgrader is a Projector that can go on with the tables of an earlier version, once it has added what they lack: nobody
// has to build them anew.
type upgrader interface {
	// upgrade is not ok when the tables are of a version that it cannot go on from.
	upgrade(ctx context.Context, tx pgx.Tx, from int) (ok bool, err error)
}

// union selects what any of the projectors wants, and perhaps more.
func union(projectors []Projector) (all eventstore.Filter) {
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

// All returns every projector that a service runs.
func All() []Projector {
	return []Projector{
		LeadView{}, SourceHistory{}, SourceDay{}, TokenView{}, TokenAudit{}, AccountView{}, EndpointView{},
		VisitorActivity{}, RefusedArrivals{}, Reveals{},
	}
}
