package delivery

import (
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/projection/projectiontest"
)

// A session that is lost is opened again while results are written down. What is back in the queue by then, and not noted
// so yet, is nobody's: under the new session's lease it would wait for as long as the process lives.
func TestASessionThatIsOpenedAgainLeavesAloneWhatIsBackInTheQueue(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	courier := NewCourier(CourierOptions{Pool: w.Pool, Store: w.Store, Log: slog.New(slog.DiscardHandler)})
	for _, id := range []string{"back", "in hand"} {
		pgtest.Exec(t, w.Pool, `
			INSERT INTO delivery.queue (delivery_id, webhook_id, type, stream, revision, position, renderer, lease)
			VALUES ($1, 'w', 'lead.created', 'lead-1', 0, 1, 1, -1)`, id)
	}
	back := row{id: "back", webhookID: "w"}
	require.Len(t, courier.lanes.take([]row{back, {id: "in hand", webhookID: "w"}}), 2)
	given := result{row: back, state: queued, wait: time.Hour}
	courier.lanes.done(given)
	_, err := courier.settle(t.Context(), []result{given})
	require.NoError(t, err)
	s, err := courier.open(t.Context())
	require.NoError(t, err)
	defer s.close(t.Context())
	again, _ := courier.lanes.settled([]result{given})
	require.Empty(t, again)
	leases := map[string]*int32{}
	var id string
	var lease *int32
	rows, err := w.Pool.Query(t.Context(), `SELECT delivery_id, lease FROM delivery.queue`)
	require.NoError(t, err)
	_, err = pgx.ForEachRow(rows, []any{&id, &lease}, func() error {
		leases[id] = lease
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, map[string]*int32{"back": nil, "in hand": &s.id}, leases)
}

// After a restore the fan-out reads the log anew. Meanwhile it knows an endpoint at the URL from which it has moved.
func TestNothingIsSentBeforeTheFanOutHasReadAsFarAsDeliveriesBegin(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	courier := NewCourier(CourierOptions{Pool: w.Pool, Store: w.Store, Log: slog.New(slog.DiscardHandler)})
	s, err := courier.open(t.Context())
	require.NoError(t, err)
	defer s.close(t.Context())
	claimed := func(after string) int {
		pgtest.Exec(t, w.Pool, after)
		rows, err := s.claim(t.Context(), courier.lanes)
		require.NoError(t, err)
		return len(rows)
	}
	require.Zero(t, claimed(`
		INSERT INTO delivery.endpoint (webhook_id, account, url, events, deleted, disabled) VALUES ('w', 'acme', 'https://old.example', '{*}', false, false);
		INSERT INTO delivery.queue (delivery_id, webhook_id, type, stream, revision, position, renderer)
		VALUES ('d', 'w', 'lead.created', 'lead-1', 0, 1, 1);
		INSERT INTO delivery.origin (epoch, position) VALUES ('other', 1), ('log', 5)`))
	require.Zero(t, claimed(`INSERT INTO delivery.checkpoint (projector, version, epoch, position, updated_at) VALUES ('fanout', 1, 'log', 4, now())`))
	require.Equal(t, 1, claimed(`UPDATE delivery.checkpoint SET position = 5`))
}
