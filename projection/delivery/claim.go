package delivery

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leadlog/leadlog/projection/schema"
)

// session is a courier's connection. The rows that it claims are its own until it ends, as its lease does.
type session struct {
	conn     *pgx.Conn
	id       int32
	notified bool      // since the last claim after a notification
	claimed  time.Time // when the last claim began
}

// errTaken says that a courier of this number is at work: the numbers have come round.
var errTaken = errors.New("another courier has this number")

// open takes the lease of a new number, and claims under it the rows that this process has from an earlier session.
func (c *Courier) open(ctx context.Context) (*session, error) {
	s := &session{}
	config := c.config.Copy()
	config.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) { s.notified = true } // and keep no payload, which is not ours
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	s.conn = conn
	err = conn.QueryRow(ctx, `SELECT nextval('delivery.courier')::integer`).Scan(&s.id)
	if err == nil {
		var mine bool
		if mine, err = schema.TakeLease(ctx, conn, schema.CourierLease(s.id)); err == nil && !mine {
			err = errTaken
		}
	}
	if err == nil {
		_, err = conn.Exec(ctx, `LISTEN `+channel)
	}
	if err == nil {
		// A row without a lease may have been put back a moment ago, and no courier works on it any more.
		_, err = conn.Exec(ctx, `UPDATE delivery.queue SET lease = $1 WHERE delivery_id = ANY ($2) AND lease IS NOT NULL`, s.id, c.lanes.held())
	}
	if err != nil {
		s.close(ctx)
		return nil, err
	}
	return s, nil
}

// Couriers returns how many couriers have a session in this database.
func Couriers(ctx context.Context, tx pgx.Tx) (n int, err error) {
	if _, err = tx.Exec(ctx, `SELECT pg_stat_clear_snapshot()`); err != nil { // the transaction may have read the list of sessions before
		return 0, err
	}
	err = tx.QueryRow(ctx, `SELECT count(*) FROM lease.held WHERE name LIKE $1`, schema.CourierLeases).Scan(&n)
	return n, err
}

func (s *session) close(ctx context.Context) {
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = s.conn.Close(ctx) // whatever it says, the connection is gone
}

// reclaim frees the rows of couriers that are gone. It searches the queue only if one is gone.
func (s *session) reclaim(ctx context.Context) error {
	_, err := s.conn.Exec(ctx, `
		WITH gone AS (
		    DELETE FROM lease.session WHERE name LIKE $1 AND NOT lease.alive(pid, role, started)
		    RETURNING substr(name, length($1))::integer AS id
		)
		UPDATE delivery.queue SET lease = NULL WHERE lease IN (SELECT id FROM gone)`, schema.CourierLeases)
	return err
}

// endpointsKnown is whether the fan-out has read as far as where deliveries begin. While it reads the log anew, for example after a
// restore, it knows endpoints as they once were: with earlier URLs, or not yet disabled.
const endpointsKnown = `EXISTS (SELECT FROM delivery.checkpoint c JOIN delivery.origin o USING (epoch)
                        WHERE c.projector = '` + schema.FanOut + `' AND c.position >= o.position)`

// claim claims rows that are due, for each endpoint as many as its lane has room for, in the order of the log. It goes from
// endpoint to endpoint in the index, so that a long backlog of one does not slow down the others. The version of an endpoint's
// secrets is the transaction that wrote the current one: Rotate writes it anew. It goes back to the rows by their places, where
// no plan can think of reading the whole queue instead.
func (s *session) claim(ctx context.Context, l *lanes) ([]row, error) {
	s.claimed = time.Now()
	total, ids, room, other := l.quota()
	if total == 0 {
		return nil, nil
	}
	asked := time.Now() // before the look: what is found may be that old
	rows, err := s.conn.Query(ctx, `
		WITH RECURSIVE waiting (id) AS (
		    (SELECT webhook_id FROM delivery.queue WHERE `+endpointsKnown+` ORDER BY webhook_id LIMIT 1)
		    UNION ALL
		    SELECT (SELECT q.webhook_id FROM delivery.queue q WHERE q.webhook_id > w.id ORDER BY q.webhook_id LIMIT 1)
		      FROM waiting w WHERE w.id IS NOT NULL
		), due AS (
		    SELECT d.at
		      FROM waiting w
		      LEFT JOIN unnest($3::text[], $4::int[]) AS b (id, room) ON b.id = w.id
		     CROSS JOIN LATERAL (
		           SELECT ctid AS at FROM delivery.queue
		            WHERE webhook_id = w.id AND due_at <= now() AND lease IS NULL
		            ORDER BY due_at, position LIMIT coalesce(b.room, $5) FOR UPDATE SKIP LOCKED) d
		     WHERE w.id IS NOT NULL
		     LIMIT $2
		)
		UPDATE delivery.queue q SET lease = $1
		  FROM delivery.endpoint e
		 WHERE q.ctid = ANY (ARRAY(SELECT at FROM due)) AND e.webhook_id = q.webhook_id
		RETURNING q.delivery_id, q.webhook_id, q.event_id, q.type, q.stream, q.revision, q.position, q.renderer, q.attempts, q.retried, e.url, e.deleted OR e.disabled,
		          coalesce((SELECT s.xmin::text FROM secret.webhook s WHERE s.webhook_id = q.webhook_id), '')`,
		s.id, total, ids, room, other)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(r pgx.CollectableRow) (c row, err error) {
		c.claimed = asked
		err = r.Scan(&c.id, &c.webhookID, &c.eventID, &c.kind, &c.stream, &c.revision, &c.position, &c.renderer, &c.attempts, &c.retried, &c.url, &c.dead, &c.secret)
		return c, err
	})
}
