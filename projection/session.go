package projection

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/projection/schema"
)

// session is one connection's time with a projector: it waits for the lease, then applies events until something fails.
// The lease ends with the connection. Should two sessions have it after all, they still write one after the other: see
// checkpoint.advance.
type session struct {
	*worker
	conn        *pgx.Conn
	checkpoint  checkpoint
	chosen      func(Event) bool // nil: all are
	maintenance Maintenance      // nil: there is none
	maintainAt  time.Time        // not before
	events      []Event          // of the latest batch; the next one uses the same memory
}

// serve runs one session to its end, which is always an error.
func (w *worker) serve(ctx context.Context) error {
	conn, err := pgx.ConnectConfig(ctx, w.config)
	if err != nil {
		return err
	}
	defer closeConn(ctx, conn)
	s := session{worker: w, conn: conn}
	if p, maintains := w.projector.(Maintainer); maintains {
		s.maintenance = p.Maintenance()
	}
	if err := s.lease(ctx); err != nil {
		return err
	}
	var head eventstore.Position
	if s.checkpoint, head, err = openCheckpoint(ctx, conn, w.projector, w.store); err != nil {
		return err
	}
	if p, chooses := w.projector.(Chooser); chooses {
		if s.chosen, err = p.Choose(ctx, conn); err != nil {
			return err
		}
	}
	w.opened(s.checkpoint.position, head)
	return s.follow(ctx)
}

func closeConn(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // whatever it says, the connection is gone
}

// lease waits for the projector's lease. Meanwhile it reports how far the session that has it has come.
func (s *session) lease(ctx context.Context) error {
	for {
		mine, err := schema.TakeLease(ctx, s.conn, schema.ProjectorLease(s.schema, s.projector.Name()))
		if err != nil || mine {
			return err
		}
		seen, _, err := findCheckpoint(ctx, s.conn, s.projector.Name())
		if err != nil {
			return err
		}
		s.standby(seen.position)
		if err := eventstore.Sleep(ctx, s.pace.takeover); err != nil {
			return err
		}
	}
}

// follow applies what the log has, and then what comes.
func (s *session) follow(ctx context.Context) error {
	f, err := s.tail.follow(ctx, s.checkpoint.position, s.projector.Filter())
	if err != nil {
		return err
	}
	defer f.close()
	var written time.Time
	for behind := false; ; {
		if err := s.maintain(ctx, f, behind); err != nil {
			return err
		}
		batch, err := s.collect(ctx, f, written.Add(s.pace.marks))
		if err != nil {
			return err
		}
		if batch.position <= s.checkpoint.position {
			continue
		}
		began := time.Now()
		if s.checkpoint, err = s.checkpoint.apply(ctx, s.conn, batch, prepare(s.projector, batch.events)); err != nil {
			return err
		}
		written = time.Now()
		if s.watch != nil && len(batch.events) > 0 {
			s.watch(Applied{s.projector.Name(), batch.events, began, written})
		}
		s.applied(batch.position)
		if s.maintenance != nil {
			s.maintenance.Note(batch.events)
		}
		if behind = len(batch.events) >= s.limit; !behind {
			if err := eventstore.Sleep(ctx, time.Until(began.Add(crowded(s.pace.rest, len(batch.events))))); err != nil {
				return err
			}
		}
	}
}

// collect waits for events and returns those that the log has by then, at most limit. When only positions come, or events that are not
// chosen, it returns the latest position once the time quiet has passed. When nothing comes, it returns an empty batch in time for
// maintenance. A batch may be used until the next call.
func (s *session) collect(ctx context.Context, f *follower, quiet time.Time) (b batch, err error) {
	clear(s.events) // so that nothing is kept while nothing comes
	due, moved := s.wake(), false
	for {
		next, err := f.next(ctx, s.events[:0], s.limit, due)
		if err != nil || next.position == 0 {
			return b, err
		}
		if b = next; s.chosen != nil {
			b.events = slices.DeleteFunc(b.events, func(e Event) bool { return !s.chosen(e) })
		}
		s.events = b.events
		if len(b.events) > 0 {
			return b, nil
		}
		if !moved {
			due, moved = time.After(time.Until(quiet)), true
		}
	}
}

// crowded returns how long to rest after so many events: up to five times rest. A read or a transaction costs about the same
// however many events it has, so a few events are handled soon, and many are handled together, later.
func crowded(rest time.Duration, events int) time.Duration {
	const crowd = 20
	return rest * time.Duration(min(1+events/crowd, 5))
}
