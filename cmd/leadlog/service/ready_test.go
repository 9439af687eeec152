package service

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/worker/courier"
	"github.com/leadlog/leadlog/httpapi"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/query"
)

func TestReady_Projections(t *testing.T) {
	t.Parallel()
	require.Equal(t, []httpapi.Component{
		{Name: "projection lead", Ready: true, Detail: "standby"},
		{Name: "projection token", Detail: "standby; has not moved for a minute"},
		{Name: "projection fanout", Ready: true, Alarm: true, Detail: "running; 16s behind the log"},
	}, projections([]progress{
		{Status: projection.Status{Name: "lead", State: projection.Standby, Lag: 1}, delay: time.Second},
		{Status: projection.Status{Name: "token", State: projection.Standby, Lag: 1, Stalled: true}},
		{Status: projection.Status{Name: "fanout", State: projection.Running, Lag: 1}, delay: 16 * time.Second},
	}))
}

func TestReady_Filters(t *testing.T) {
	t.Parallel()
	require.Equal(t, httpapi.Component{Name: "webhook filters", Ready: true}, filters(courier.Backlog{Queued: 5}, nil))
	require.Equal(t, httpapi.Component{Name: "webhook filters", Ready: true, Detail: "not known"},
		filters(courier.Backlog{}, errors.New("down")))
	require.Equal(t, httpapi.Component{
		Name: "webhook filters", Ready: true, Alarm: true,
		Detail: "7 events wait because the filters of their accounts cost much, the oldest for 1m15s",
	}, filters(courier.Backlog{Deferred: 7, OldestDeferred: 75 * time.Second}, nil))
}

func TestReady_RebuiltConversions(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]struct {
		progress query.ConversionProgress
		err      error
	}{
		"":                            {query.ConversionProgress{Built: 1, Swept: 1}, nil},
		"rebuilding: 0 % of the log":  {query.ConversionProgress{Built: 0, Swept: 0.5}, nil},
		"rebuilding: 99 % of the log": {query.ConversionProgress{Built: 0.9999, Swept: 1}, nil},
		"not known":                   {query.ConversionProgress{}, errors.New("no answer")},
		"rebuilding after a change of won stages: 43 %": {query.ConversionProgress{Built: 1, Swept: 0.435}, nil},
	} {
		require.Equal(t, httpapi.Component{Name: "conversions", Ready: true, Detail: want},
			conversions(c.progress, c.err))
	}
}
