package projection

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore"
)

// session is one connection's time with a projector: it waits for the lock, then applies events until something fails.
// The lock goes with the connection, so that two sessions never write one view.
type session struct {
	*worker
	conn        *pgx.Conn
	checkpoint  checkpoint
	chosen      func(Event) bool // nil: all are
	maintenance maintenance      // nil: there is none
	maintainAt  time.Time        // not before
}

// serve runs one session to its end, which is always an error.
func (w *worker) serve(ctx context.Context) error {
	conn, err := pgx.ConnectConfig(ctx, w.config)
	if err != nil {
		return err
	}
	defer closeConn(ctx, conn)
	s := session{worker: w, conn: conn}
	if p, maintains := w.projector.(maintainer); maintains {
		s.maintenance = p.maintenance()
	}
	if err := s.lock(ctx); err != nil {
		return err
	}
	var head eventstore.Position
	if s.checkpoint, head, err = openCheckpoint(ctx, conn, w.projector, w.store); err != nil {
		return err
	}
	if p, chooses := w.projector.(chooser); chooses {
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

// lock waits for the projector's lock. Meanwhile it reports how far the session that has it has come.
func (s *session) lock(ctx context.Context) error {
	for {
		var mine bool
		err := s.conn.QueryRow(ctx, `SELECT pg_try_advisory_lock(hashtextextended($1, 0))`, lockName(s.schema, s.projector.Name())).Scan(&mine)
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

func lockName(schema, projector string) string {
	return "leadlog projector " + schema + "." + projector
}

// TryLock takes the lock of a projector of a schema until the transaction ends, so that it cannot run. Mine is false when it is
// running somewhere.
func TryLock(ctx context.Context, tx pgx.Tx, schema, projector string) (mine bool, err error) {
	return tryLock(ctx, tx, lockName(schema, projector))
}

// TryLockReplay takes the lock that replays of a projector's live view need, until the transaction ends. Mine is false when a
// replay is running.
func TryLockReplay(ctx context.Context, tx pgx.Tx, projector string) (mine bool, err error) {
	return tryLock(ctx, tx, replayLockName(replaying+"_"+projector, projector))
}

func tryLock(ctx context.Context, tx pgx.Tx, name string) (mine bool, err error) {
	err = tx.QueryRow(ctx, `SELECT pg_try_advisory_xact_lock(hashtextextended($1, 0))`, name).Scan(&mine)
	return mine, err
}

// follow applies what the log has, and then what comes.
func (s *session) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	feed := openFeed(ctx, s.tail, s.checkpoint.position, s.projector.Filter(), s.pace.batch)
	feed.chosen = s.chosen
	defer feed.drain()
	defer cancel()
	var written time.Time
	for behind := false; ; {
		if err := s.maintain(ctx, feed, behind); err != nil {
			return err
		}
		batch, err := feed.collect(ctx, s.limit, written.Add(s.pace.marks), s.wake())
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
			s.maintenance.note(batch.events)
		}
		if behind = len(batch.events) >= s.limit; !behind {
			if err := eventstore.Sleep(ctx, time.Until(began.Add(crowded(s.pace.rest, len(batch.events))))); err != nil {
				return err
			}
		}
	}
}

// crowded returns how long to rest after so many events: up to five times rest. A read or a transaction costs about the same
// however many events it has, so a few events are handled soon, and many are handled together, later.
func crowded(rest time.Duration, events int) time.Duration {
	const crowd = 20
	return rest * time.Duration(min(1+events/crowd, 5))
}
