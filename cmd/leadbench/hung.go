package main

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// besideHung measures healthy endpoints while others hang, which a backlog waits for.
func (r *webhookRun) besideHung(ctx context.Context) (load, error) {
	const accounts, healthy = 10, 9
	say("filling a backlog of %d", r.Backlog)
	var targets []target
	for n := range accounts {
		name := account + strconv.Itoa(n)
		jwt, err := r.account(ctx, name)
		if err != nil {
			return load{}, err
		}
		for range healthy {
			if _, err := r.register(ctx, jwt, "/take"); err != nil {
				return load{}, err
			}
		}
		id, err := r.register(ctx, jwt, "/hang")
		if err != nil {
			return load{}, err
		}
		if err := r.fill(ctx, id, r.Backlog/accounts); err != nil {
			return load{}, err
		}
		targets = append(targets, target{jwt, healthy})
	}
	if err := r.checkpoint(ctx); err != nil { // the backlog is said to have grown over days
		return load{}, err
	}
	if _, err := r.pool.Exec(ctx, `NOTIFY leadlog_delivery`); err != nil {
		return load{}, err
	}
	return r.steady(ctx, targets, 100/healthy)
}

// account provisions another account and returns a JWT of it.
func (r *webhookRun) account(ctx context.Context, name string) (string, error) {
	if _, err := r.leadlog(ctx, r.service.env, "account", "set", name, "--feature", "crm_api"); err != nil {
		return "", err
	}
	jwt, err := r.leadlog(ctx, r.service.env, "jwt", "--account", name, "--ttl", "24h")
	return strings.TrimSpace(jwt), err
}

// fill queues deliveries of one event to an endpoint, as if it had come again and again.
func (r *webhookRun) fill(ctx context.Context, webhookID string, n int) error {
	lead := newLead("Asha Rao")
	position, err := r.store.Append(ctx, lead)
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT delivery.open_day((now() AT TIME ZONE 'UTC')::date)`); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `
			WITH made AS (
			    INSERT INTO delivery.delivery (delivery_id, webhook_id, event_id, generation, type, stream, revision, position, renderer)
			    SELECT left($2, 10) || lpad(to_hex(n), 6, '0') || right($1, 10), $1, $2, n, 'lead.created', $3, 0, $4, 1
			      FROM generate_series(1, $5::integer) AS n
			    RETURNING *
			)
			INSERT INTO delivery.queue (delivery_id, webhook_id, type, stream, revision, position, renderer)
			SELECT delivery_id, webhook_id, type, stream, revision, position, renderer FROM made`,
			webhookID, lead.Events[0].ID.String(), lead.Stream, int64(position), n)
		return err
	})
}

// killed kills the service in the midst of a burst, starts it again, and says how long it took until deliveries went
// on, and how many of them came twice.
func (r *webhookRun) killed(ctx context.Context) (resumed time.Duration, twice int, err error) {
	r.receiver.reset()
	if _, err := r.register(ctx, r.service.jwt, "/take"); err != nil {
		return 0, 0, err
	}
	if err := r.put(ctx, r.Burst); err != nil {
		return 0, 0, err
	}
	if _, err := r.receiver.await(ctx, r.Burst/10); err != nil {
		return 0, 0, err
	}
	_ = r.service.cmd.Process.Kill() // it may have ended, which the next step shows
	<-r.service.ended
	before, _ := r.receiver.count()
	began := time.Now()
	if r.service.process, err = launch(r.program, r.service.env, "serve"); err != nil {
		return 0, 0, err
	}
	first, err := r.receiver.await(ctx, min(before+1, r.Burst))
	if err != nil {
		return 0, 0, err
	}
	if _, err := r.receiver.await(ctx, r.Burst); err != nil {
		return 0, 0, err
	}
	_, twice = r.receiver.count()
	return first.Sub(began), twice, nil
}
