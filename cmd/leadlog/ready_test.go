package main

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/httpapi"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/schema"
)

func TestReady_StalledView(t *testing.T) {
	t.Parallel()
	require.Equal(t, []httpapi.Component{
		{Name: "projection lead", Ready: true, Detail: "standby, 2 positions behind"},
		{Name: "projection token", Detail: "standby, 2 positions behind; has not moved for a minute"},
		{Name: "projection lead_search", Ready: true, Detail: "running, 2 positions behind; has not moved for a minute"},
	}, projections([]projection.Status{
		{Name: "lead", State: projection.Standby, Lag: 2},
		{Name: "token", State: projection.Standby, Lag: 2, Stalled: true},
		{Name: "lead_search", State: projection.Running, Lag: 2, Stalled: true},
	}))
}

// The search view is behind for as long as another session has the lease of its projector.
func TestReadyz_SearchBehind(t *testing.T) {
	t.Parallel()
	settings := production(t)
	jwt := provisioned(t, settings)
	holder, err := pgx.Connect(t.Context(), settings["LEADLOG_DATABASE_URL"])
	require.NoError(t, err)
	defer holder.Close(t.Context())
	mine, err := schema.TakeLease(t.Context(), holder, schema.ProjectorLease(schema.Views, schema.LeadSearch))
	require.NoError(t, err)
	require.True(t, mine)
	_, base := serve(t, settings)
	captured := mustCall(t, "POST", base+"/api/v1/crm/leads", jwt, `{"phone":"9876543210","name":"Asha Rao"}`).is(t, 201)
	since := "minPosition=" + captured.header.Get("X-Log-Position")

	require.Len(t, mustCall(t, "GET", base+"/api/v1/crm/leads?"+since, jwt, "").is(t, 200).body["data"], 1)
	require.Empty(t, mustCall(t, "GET", base+"/api/v1/crm/leads?q=asha", jwt, "").is(t, 200).body["data"])
	ready := mustCall(t, "GET", base+"/readyz", "", "").is(t, 200)
	behind := ""
	for _, c := range ready.data()["components"].([]any) {
		if component := c.(map[string]any); component["name"] == "projection lead_search" {
			behind = component["detail"].(string)
		}
	}
	require.Regexp(t, `^standby, [1-9][0-9]* positions behind`, behind)
	require.Regexp(t, `leadlog_projection_lag_positions\{projector="lead_search"\} [1-9]`, scrape(t, base))

	late, err := call(t.Context(), "GET", base+"/api/v1/crm/leads?q=asha&"+since, jwt, "")
	require.NoError(t, err)
	late.is(t, 503)
	require.NoError(t, holder.Close(t.Context()))
	require.Len(t, mustCall(t, "GET", base+"/api/v1/crm/leads?q=asha&"+since, jwt, "").is(t, 200).body["data"], 1)
}
