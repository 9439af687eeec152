package delivery

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/schema"
)

const (
	keptDays     = schema.DeliveryDays
	openDays     = 3 // today and the next days, so that no batch has to create partitions at midnight
	daysInterval = time.Hour
	daysRetry    = time.Minute
	lockTimeout  = `2s` // for dropping partitions, which blocks other sessions
)

// Days maintains the partitions of the delivery records: it creates those of the next days and drops expired ones. Any
// number of Days may run on one database.
type Days struct {
	Pool *pgxpool.Pool
	Log  *slog.Logger
}

// Run calls RunOnce every hour until the context is done.
func (d Days) Run(ctx context.Context) {
	work := eventstore.Background{
		Work: "maintain the partitions of deliveries", Interval: daysInterval, Retry: daysRetry, Log: d.Log,
	}
	work.Run(ctx, func(ctx context.Context) (bool, error) { return false, d.RunOnce(ctx) })
}

// RunOnce creates and drops the partitions that are due.
func (d Days) RunOnce(ctx context.Context) error {
	_, err := d.Pool.Exec(ctx, `
		SELECT delivery.open_day((now() AT TIME ZONE 'UTC')::date + ahead)
		FROM generate_series(0, $1::integer - 1) AS ahead`, openDays)
	if err != nil {
		return err
	}
	expired, err := d.expired(ctx)
	if err != nil {
		return err
	}
	for _, day := range expired {
		dropped, err := d.drop(ctx, day)
		if err != nil {
			return fmt.Errorf("deliveries of %s: %w", day.Format(time.DateOnly), err)
		}
		if dropped {
			d.Log.Info("deliveries dropped", slog.String("day", day.Format(time.DateOnly)))
		}
	}
	return nil
}

// expired lists the days to drop: more than 30 days old, with nothing queued. A delivery that was queued again may
// finish long after its event: its day is kept for 30 days after that.
func (d Days) expired(ctx context.Context) ([]time.Time, error) {
	rows, err := d.Pool.Query(ctx, `
		SELECT day
		  FROM pg_inherits
		  JOIN pg_class c ON c.oid = inhrelid
		 CROSS JOIN LATERAL to_date(right(c.relname, 8), 'YYYYMMDD') AS day
		 WHERE inhparent = 'delivery.delivery'::regclass AND day < (now() AT TIME ZONE 'UTC')::date - $1::integer
		 ORDER BY day`, keptDays)
	if err != nil {
		return nil, err
	}
	old, err := pgx.CollectRows(rows, pgx.RowTo[time.Time])
	if err != nil {
		return nil, err
	}
	var expired []time.Time
	for _, day := range old {
		var kept bool
		err := d.Pool.QueryRow(ctx, `
			SELECT `+pending+` OR EXISTS (SELECT FROM `+partition("delivery", day)+`
			        WHERE finished_at >= now() - $2::integer * interval '1 day')`, day, keptDays).Scan(&kept)
		if err != nil && !schema.Missing(err) { // another process has dropped it
			return nil, err
		}
		if err == nil && !kept {
			expired = append(expired, day)
		}
	}
	return expired, nil
}

// pending is whether a delivery of day $1 is queued.
const pending = `EXISTS (SELECT FROM delivery.queue WHERE delivery_id >= delivery.first_id($1::date)
	AND delivery_id < delivery.first_id($1::date + 1))`

// drop drops the partitions of a day, unless one of its deliveries was queued again in the meantime. It advances the
// origin of deliveries: if the log is read from its start again, the fan-out must not queue the dropped deliveries a
// second time.
func (d Days) drop(ctx context.Context, day time.Time) (dropped bool, err error) {
	err = pgx.BeginFunc(ctx, d.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '`+lockTimeout+`'`); err != nil {
			return err
		}
		// Parents are locked first, as elsewhere, to avoid deadlocks.
		if _, err := tx.Exec(ctx,
			`LOCK TABLE delivery.delivery, delivery.attempt IN ACCESS EXCLUSIVE MODE`); err != nil {
			return err
		}
		var kept bool
		if err := tx.QueryRow(ctx, `SELECT `+pending, day).Scan(&kept); err != nil || kept {
			return err
		}
		_, err := tx.Exec(ctx, `
			UPDATE delivery.origin o SET position = c.position FROM delivery.checkpoint c
			 WHERE c.projector = $1 AND c.epoch = o.epoch AND c.position > o.position`, FanOut{}.Name())
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM delivery.account_day WHERE day = $1`, day); err != nil {
			return err
		}
		if err := saveErasures(ctx, tx, day); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `DROP TABLE `+partition("delivery", day)+`, `+partition("attempt", day))
		dropped = err == nil
		return err
	})
	if schema.Missing(err) {
		return false, nil
	}
	return dropped, err
}

// saveErasures saves the outcome of lead.erased at each endpoint, for certificates. A successful delivery counts even
// if a later replay failed.
func saveErasures(ctx context.Context, tx pgx.Tx, day time.Time) error {
	_, err := tx.Exec(ctx, `
		INSERT INTO delivery.erasure AS kept (event_id, webhook_id, state, finished_at, attempts, status)
		SELECT DISTINCT ON (d.event_id, d.webhook_id) d.event_id, d.webhook_id, d.state, d.finished_at,
		  coalesce(a.made, 0), coalesce(a.status, 0)
		  FROM `+partition("delivery", day)+` d
		  LEFT JOIN LATERAL (SELECT count(*) AS made, (array_agg(status ORDER BY at DESC))[1] AS status
		                       FROM `+partition("attempt", day)+` WHERE delivery_id = d.delivery_id) AS a ON true
		 WHERE d.type = $1
		 ORDER BY d.event_id, d.webhook_id, d.state = 'delivered' DESC, d.delivery_id DESC
		ON CONFLICT (event_id, webhook_id) DO UPDATE SET state = EXCLUDED.state, finished_at = EXCLUDED.finished_at,
		       attempts = EXCLUDED.attempts, status = EXCLUDED.status
		 WHERE kept.state <> 'delivered'`, event.PublicName(event.LeadErased{}.EventType()))
	return err
}

func partition(of string, day time.Time) string {
	return pgx.Identifier{"delivery", of + "_" + day.Format("20060102")}.Sanitize()
}
