package query_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/arrival"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/query"
)

// The state is read from the log, and so is the lead while the view is behind.
func TestArrival_CapturedBeforeView(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	reader := query.New(w.Pool, w.Store)
	at := w.NewEvent().At
	for _, before := range []event.Data{
		event.ArrivalQuarantined{Reasons: []event.ArrivalReason{{Field: "phone", Message: "must be a number"}}},
		event.ArrivalRefused{Code: "DUPLICATE_LEAD_EMAIL", LeadID: w.NewID()},
	} {
		id, lead := w.NewID(), w.NewID()
		w.Append(t, "acme", event.ArrivalStream(id),
			event.ArrivalReceived{ReceivedAt: at, ExpiresAt: at.Add(time.Hour)}, before)
		w.Project(t)
		w.Append(t, "acme", event.ArrivalStream(id), event.ArrivalCaptured{LeadID: lead, EventID: w.NewID()})
		shown, err := reader.Arrival(t.Context(), "acme", id)
		require.NoError(t, err)
		require.Equal(t, arrival.Captured, shown.State)
		require.Equal(t, &lead, shown.LeadID)
	}
}
