package courier_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/worker/courier"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/delivery/deliverytest"
	"github.com/leadlog/leadlog/projection/projectiontest"
)

// A restored log lacks one event, and has another event at the position of a second one.
func TestCourier_EventNotOnLog(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	r := receive(t, good)
	id := target(t, w, r.URL)
	w.Append(t, "acme", event.LeadStream(w.NewID()), deliverytest.NewLead("Ann"))
	w.Append(t, "acme", event.LeadStream(w.NewID()), deliverytest.NewLead("Ben"))
	deliverytest.CatchUp(t, w)
	for _, lost := range []string{
		`UPDATE delivery.queue SET revision = 7 WHERE position = (SELECT min(position) FROM delivery.queue)`,
		`UPDATE delivery.queue SET event_id = '01M7YGZVZWE6S8RYN49QGMF6BH'
			WHERE position = (SELECT max(position) FROM delivery.queue)`,
	} {
		pgtest.Exec(t, w.Pool, lost)
	}
	send(t, w)
	require.Equal(t, map[string]int{"failed": 2}, states(t, w, id, 2))
	var attempts, failing int
	require.NoError(t, w.Pool.QueryRow(t.Context(), `
		SELECT (SELECT count(*) FROM delivery.attempt WHERE status = 0 AND error LIKE '%is not on the log any more%'),
		       (SELECT count(*) FROM delivery.health WHERE webhook_id = $1)`, id).Scan(&attempts, &failing))
	require.Equal(t, 2, attempts)
	require.Zero(t, failing, "it is no fault of the endpoint")
	w.Append(t, "acme", event.LeadStream(w.NewID()), deliverytest.NewLead("Cem"))
	require.Equal(t, map[string]int{"failed": 2, "delivered": 1}, states(t, w, id, 3))
	require.Len(t, r.ids(), 1)
}

func TestCourier_OtherLog(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	id := target(t, w, receive(t, good).URL)
	w.Append(t, "acme", event.LeadStream(w.NewID()), deliverytest.NewLead("Ann"))
	deliverytest.CatchUp(t, w)
	pgtest.Exec(t, w.Pool,
		`UPDATE delivery.queue SET revision = 7; UPDATE delivery.checkpoint
			SET epoch = 'another'; UPDATE delivery.origin SET epoch = 'another'`)
	var log projectiontest.Output
	send(t, w, func(o *courier.Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	require.Eventually(t, func() bool {
		return strings.Contains(log.String(), "delivery not prepared")
	}, projectiontest.Soon, 5*time.Millisecond)
	pgtest.Exec(t, w.Pool, `UPDATE delivery.queue SET revision = 0`)
	require.Equal(t, map[string]int{"delivered": 1}, states(t, w, id, 1))
}
