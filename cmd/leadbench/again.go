package main

import (
	"context"
	"fmt"
	"time"
)

// replayed puts leads on the log which no endpoint wants, has one ask for all of them again, and says how long it took
// until their deliveries were queued. Meanwhile they are sent.
func (r *webhookRun) replayed(ctx context.Context) (time.Duration, error) {
	say("putting %d leads on the log", r.Replayed)
	since := time.Now().Truncate(time.Millisecond) // as events have it
	if err := r.put(ctx, r.Replayed); err != nil {
		return 0, err
	}
	if err := r.settled(ctx); err != nil {
		return 0, err
	}
	until := time.Now()
	id, err := r.register(ctx, r.service.jwt, "/take")
	if err != nil {
		return 0, err
	}
	if err := r.checkpoint(ctx); err != nil {
		return 0, err
	}
	began := time.Now()
	body := fmt.Sprintf(`{"since":%q,"until":%q}`, since.Format(time.RFC3339Nano), until.Format(time.RFC3339Nano))
	if err := r.service.call(ctx, "POST", "/webhooks/endpoints/"+id+"/replay", body, &struct{}{}); err != nil {
		return 0, err
	}
	queued, err := r.queued(ctx, id)
	took := time.Since(began)
	if err == nil && queued < r.Replayed {
		err = fmt.Errorf("%d deliveries were queued, and %d asked for", queued, r.Replayed)
	}
	if err != nil {
		return 0, err
	}
	if err := r.service.call(ctx, "DELETE", "/webhooks/endpoints/"+id, "", &struct{}{}); err != nil {
		return 0, err
	}
	return took, r.settled(ctx)
}

// queued waits until an endpoint's replay has read all it asked for, and says how many deliveries that gave.
func (r *webhookRun) queued(ctx context.Context, webhookID string) (deliveries int, err error) {
	err = until(ctx, func() (finished bool, err error) {
		err = r.pool.QueryRow(ctx, `SELECT coalesce(bool_and(finished_at IS NOT NULL), false), coalesce(sum(queued), 0)::bigint
			FROM delivery.replay WHERE webhook_id = $1`, webhookID).Scan(&finished, &deliveries)
		return finished, err
	})
	return deliveries, err
}
