package service

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/httpapi"
	"github.com/leadlog/leadlog/projection"
)

func TestReady_StalledView(t *testing.T) {
	t.Parallel()
	require.Equal(t, []httpapi.Component{
		{Name: "projection lead", Ready: true, Detail: "standby"},
		{Name: "projection token", Detail: "standby; has not moved for a minute"},
	}, projections([]projection.Status{
		{Name: "lead", State: projection.Standby, Lag: 1},
		{Name: "token", State: projection.Standby, Lag: 1, Stalled: true},
	}))
}
