package httpapi_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/account"
)

func TestConsoleSettings_Retention(t *testing.T) {
	t.Parallel()
	b := browse(t)
	b.provision(ownAccount, account.Settings{
		Features: []string{account.FeatureAPI}, Stages: []string{"new", "won"}, Name: "Acme",
	})
	b.signIn(b.mint(ownAccount, "admin leads:read"))
	page := b.get("/console/settings").body
	require.Contains(t, page, `name="retentionDays" inputmode="numeric" value="0"`)
	require.Contains(t, page, `name="keepStages" value="won" checked`)
	require.NotContains(t, page, "due to be erased now")

	wrong := b.post("/console/settings/retention", "retentionDays", "7", "keepStages", "new")
	require.Equal(t, http.StatusBadRequest, wrong.status)
	require.Contains(t, wrong.body, `value="7"`)
	require.Contains(t, wrong.body, "30 to 3650")

	require.Equal(t, "/console/settings#retention",
		b.post("/console/settings/retention", "retentionDays", "90", "keepStages", "new").goTo)
	page = b.get("/console/settings").body
	require.Contains(t, page, `name="retentionDays" inputmode="numeric" value="90"`)
	require.Contains(t, page, `name="keepStages" value="new" checked`)
	require.Contains(t, page, `name="keepStages" value="won">`)
	require.Contains(t, page, "0 leads due to be erased now, 0 leads within 7 days")
	require.Contains(t, b.get("/console/usage").body, "Leads are erased 90 days after their last arrival or change, except in stages new")
	require.Equal(t, "/console/settings#retention", b.post("/console/settings/retention", "retentionDays", "").goTo,
		"no stage is kept")
	require.NotContains(t, b.get("/console/settings").body, `value="new" checked`)

	b.signIn(b.mint(ownAccount, "leads:read leads:write"))
	require.Equal(t, http.StatusForbidden, b.post("/console/settings/retention", "retentionDays", "30").status)
}
