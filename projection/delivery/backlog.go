package delivery

import (
	"context"
	"time"

	"github.com/leadlog/leadlog/projection/schema"
)

// Backlog is what waits to be sent by any process.
type Backlog struct {
	Queued    int64         // deliveries, due or not
	OldestDue time.Duration // how long the oldest delivery that is due has been due; 0 when none is
}

// backlogAge is how old a Backlog may be: to count a long queue takes a while, and everybody who watches asks.
const backlogAge = 10 * time.Second

// Backlog returns the backlog as of at most ten seconds ago.
func (c *Courier) Backlog(ctx context.Context) (Backlog, error) {
	c.counting.Lock()
	defer c.counting.Unlock()
	if time.Since(c.counted) < backlogAge {
		return c.backlog, nil
	}
	var b Backlog
	var seconds float64
	err := c.pool.QueryRow(ctx, `
		WITH RECURSIVE waiting (id) AS (
		    (SELECT webhook_id FROM delivery.queue ORDER BY webhook_id LIMIT 1)
		    UNION ALL
		    SELECT (SELECT q.webhook_id FROM delivery.queue q WHERE q.webhook_id > w.id ORDER BY q.webhook_id LIMIT 1)
		      FROM waiting w WHERE w.id IS NOT NULL
		)
		SELECT (SELECT count(*) FROM delivery.queue), coalesce(extract(epoch FROM now() - min(first.due_at)), 0)::float8
		  FROM waiting w
		 CROSS JOIN LATERAL (
		       SELECT due_at FROM delivery.queue
		        WHERE webhook_id = w.id AND due_at <= now() AND lease IS NULL ORDER BY due_at LIMIT 1) first`).
		Scan(&b.Queued, &seconds)
	if err != nil {
		return b, schema.Unavailable(err)
	}
	b.OldestDue = time.Duration(seconds * float64(time.Second))
	c.backlog, c.counted = b, time.Now()
	return b, nil
}

// InFlight returns how many attempts this process is making at the moment.
func (c *Courier) InFlight() int { return c.lanes.attempting() }

// Watcher has functions that a courier calls. They must return at once.
type Watcher struct {
	Attempted func(took time.Duration, success bool)
	Finished  func(state string) // delivered, failed or cancelled, once it is written down
	// Begin follows an attempt: it returns a context for it, the traceparent that is sent along, if any, and what to
	// call when it has ended.
	Begin func(context.Context, Attempt) (_ context.Context, traceParent string, end func(status int, err error))
}

// Attempt is what a trace may hold of one.
type Attempt struct {
	Type, WebhookID, DeliveryID string
	Number                      int    // from 1
	TraceParent                 string // of what the event came from; may be none
}

func (w Watcher) begin(ctx context.Context, r row, trace string) (_ context.Context, traceParent string, end func(status int, err error)) {
	if w.Begin == nil {
		return ctx, "", func(int, error) {}
	}
	return w.Begin(ctx, Attempt{r.kind, r.webhookID, r.id, r.attempts + 1, trace})
}

func (w Watcher) attempted(o outcome) {
	if w.Attempted != nil {
		w.Attempted(o.took, o.success())
	}
}

func (w Watcher) finished(results []result) {
	for _, r := range results {
		if w.Finished != nil && r.state != queued {
			w.Finished(r.state)
		}
	}
}
