package delivery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/projection/schema"
)

// attempt makes one attempt at a row and returns its result.
func (c *Courier) attempt(ctx context.Context, r row) result {
	if err := c.lookAgain(ctx, &r); err != nil {
		return c.unprepared(ctx, r, err)
	}
	if r.dead {
		return result{row: r, state: cancelled}
	}
	said, signing, err := c.prepare(ctx, r)
	if err != nil || ctx.Err() != nil {
		return c.unprepared(ctx, r, err)
	}
	sending, traceParent, traced := c.watcher.begin(ctx, r, said.trace)
	outcome := send(sending, c.client, r, said.body, signing, traceParent, time.Now)
	traced(outcome.status, outcome.err)
	if ctx.Err() != nil && !outcome.success() { // cut off: it does not count as a failure
		return result{row: r, state: queued, outcome: outcome}
	}
	c.watcher.attempted(outcome)
	return c.judge(ctx, result{row: r, attempted: true, outcome: outcome})
}

// lookAgain reads the endpoint of a claimed row again, because its owner may have disabled it or changed its URL since. It is an
// error while the fan-out has not read the log far enough to know endpoints as they are.
func (c *Courier) lookAgain(ctx context.Context, r *row) error {
	if time.Since(r.claimed) < believed {
		return nil
	}
	err := c.pool.QueryRow(ctx, `SELECT url, deleted OR disabled FROM delivery.endpoint WHERE webhook_id = $1 AND `+endpointsKnown, r.webhookID).
		Scan(&r.url, &r.dead)
	if err != nil {
		return fmt.Errorf("read an endpoint: %w", err)
	}
	return nil
}

// prepare renders what an attempt sends and gets the secrets that sign it. The secrets come last: they are destroyed when the
// endpoint is deleted, and then nothing more is sent.
func (c *Courier) prepare(ctx context.Context, r row) (said rendered, signing []string, err error) {
	if said, err = c.body(ctx, r); err == nil {
		signing, err = c.secrets.get(ctx, secretVersion{r.webhookID, r.secret})
	}
	return said, signing, err
}

// unprepared returns the result of a row that could not be prepared.
func (c *Courier) unprepared(ctx context.Context, r row, err error) result {
	if errors.Is(err, ErrNoSecret) {
		if err = c.unsigned(ctx, r); err == nil { // the endpoint is deleted, which the fan-out has not read yet
			return result{row: r, state: cancelled}
		}
	}
	switch {
	case errors.Is(err, errForgotten):
		return result{row: r, state: cancelled, forgotten: true}
	case errors.Is(err, errSecretLost):
		return c.later(result{row: r, attempted: true, outcome: outcome{at: time.Now(), err: errSecretLost}})
	case errors.Is(err, errNotOnLog) && c.sameLog(ctx): // nor will it be again: the fan-out has seen it there
		c.log.Error("delivery of an event that the log has lost", slog.String("deliveryId", r.id))
		return result{row: r, state: failed, told: true, outcome: outcome{at: time.Now(), err: errNotOnLog}}
	case ctx.Err() != nil: // the courier ends
		return result{row: r, state: queued}
	}
	// The fault is ours, not the endpoint's: it costs no attempt.
	c.log.Error("delivery not made ready", slog.String("deliveryId", r.id), slog.Any("error", err))
	return result{row: r, state: queued, wait: c.schedule[0]}
}

// judge completes the result of a row after an attempt.
func (c *Courier) judge(ctx context.Context, done result) result {
	r := done.row
	if done.outcome.success() {
		done.state = delivered
		return done
	}
	if done.outcome.status == http.StatusGone && !c.switchOff(ctx, Verdict{r.webhookID, r.url, webhook.Gone, done.outcome.at}) {
		done.state, done.wait = queued, c.schedule[0] // it will say so again
		return done
	}
	return c.later(done)
}

// sameLog reports whether this is the log that deliveries are made from, even if it has lost events, and not another that was
// configured by mistake.
func (c *Courier) sameLog(ctx context.Context) bool {
	epoch, err := c.store.Epoch(ctx)
	if err != nil {
		return false
	}
	var same bool
	err = c.pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM delivery.checkpoint WHERE projector = $1 AND epoch = $2)`, schema.FanOut, epoch).Scan(&same)
	return err == nil && same
}

// body returns the body of a delivery.
func (c *Courier) body(ctx context.Context, r row) (rendered, error) {
	if known, ok := c.bodies.get(r); ok {
		return known, nil
	}
	return render(ctx, c.store, c.folds, r)
}
