package view_test

import (
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/arrival"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/projectiontest"
)

func TestArrival_RowIsFoldOfStream(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	w.WriteHistory(t, 9, 3000)
	w.Project(t)
	rows, err := w.Pool.Query(t.Context(),
		`SELECT arrival_id, account, intake_id, token_id, received_at, expires_at, state, reasons, lead_id,
		other_lead_id, kept FROM views.arrival`)
	require.NoError(t, err)
	defer rows.Close()
	states := map[string]int{}
	for rows.Next() {
		var id string
		var row arrival.Arrival
		var reasons []byte
		var kept bool
		require.NoError(t,
			rows.Scan(&id, &row.Account, &row.IntakeID, &row.TokenID, &row.ReceivedAt, &row.ExpiresAt, &row.State,
				&reasons, &row.LeadID,
				&row.Other, &kept))
		fold, _, err := eventstore.Load(t.Context(), w.Store, event.ArrivalStream(id), arrival.Evolve)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(reasons, &row.Reasons))
		if len(row.Reasons) == 0 {
			row.Reasons = nil
		}
		want := arrival.Arrival{
			Account: fold.Account, IntakeID: fold.IntakeID, TokenID: fold.TokenID, ReceivedAt: fold.ReceivedAt,
			ExpiresAt: fold.ExpiresAt, State: fold.State, Reasons: fold.Reasons, LeadID: fold.LeadID, Other: fold.Other,
		}
		row.ReceivedAt, row.ExpiresAt = row.ReceivedAt.In(time.UTC), row.ExpiresAt.In(time.UTC)
		require.Equal(t, want, row, id)
		require.Equal(t, !fold.Deleted, kept, id)
		states[row.State]++
	}
	require.NoError(t, rows.Err())
	require.Len(t, states, len(arrival.States()))
}
