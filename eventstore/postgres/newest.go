package postgres

import (
	"context"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/eventstore"
)

// newest is the newest event that this process has read or written, or that was the head when it began. Each new connection is
// asked for it before it is used for anything else: a standby that took over before it had received everything lacks this event,
// or has another one at its position.
type newest struct {
	mu       sync.Mutex
	position eventstore.Position
	id       ulid.ULID

	once sync.Once
	lost chan struct{} // closed when a database lacks it
}

// see takes note of an event.
func (n *newest) see(position eventstore.Position, id ulid.ULID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if position > n.position {
		n.position, n.id = position, id
	}
}

// wrote takes note of what this process has put on the log.
func (n *newest) wrote(w written) {
	if len(w.runs) > 0 {
		last := w.runs[len(w.runs)-1]
		n.see(w.end, last.events[len(last.events)-1].ID)
	}
}

// check looks for the event over a new connection. The error is eventstore.ErrDiverged when it is not there.
func (n *newest) check(ctx context.Context, conn *pgx.Conn) error {
	n.mu.Lock()
	position, id := n.position, n.id
	n.mu.Unlock()
	if position == 0 {
		return nil
	}
	var there bool
	err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM log.event WHERE position = $1 AND event_id = $2)`, int64(position), [16]byte(id)).Scan(&there)
	if err == nil && !there {
		n.once.Do(func() { close(n.lost) })
		err = fmt.Errorf("%w: event %s at position %d", eventstore.ErrDiverged, id, position)
	}
	return err
}

// Diverged returns a channel that is closed when the database turns out to lack events that this process has seen. From then on,
// calls that need a new connection fail with ErrDiverged, and the Store should be closed.
func (s *Store) Diverged() <-chan struct{} { return s.newest.lost }
