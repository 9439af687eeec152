package delivery

import (
	"log/slog"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/projection/projectiontest"
)

// A connection that is lost with the answer of a commit leaves it open whether results are written down.
func TestResultsThatAreWrittenDownTwiceCountOnce(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	courier := NewCourier(CourierOptions{Pool: w.Pool, Store: w.Store, Log: slog.New(slog.DiscardHandler)})
	id := ulid.Make()
	_, err := w.Pool.Exec(t.Context(), `
		INSERT INTO delivery.queue (delivery_id, webhook_id, type, stream, revision, position, renderer, attempts, lease)
		VALUES ($1, 'w', 'lead.created', 'lead-1', 0, 1, 1, 3, 1)`, id.String())
	require.NoError(t, err)
	_, err = w.Pool.Exec(t.Context(), `SELECT delivery.open_day($1)`, id.Timestamp().UTC())
	require.NoError(t, err)
	bad := result{row: row{id: id.String(), webhookID: "w", attempts: 3}, state: queued, attempted: true, wait: time.Hour,
		outcome: outcome{at: time.Now(), status: 500}}
	for range 2 {
		_, err := courier.settle(t.Context(), []result{bad})
		require.NoError(t, err)
	}
	var attempts int
	require.NoError(t, w.Pool.QueryRow(t.Context(), `SELECT attempts FROM delivery.queue`).Scan(&attempts))
	require.Equal(t, 4, attempts)
}
