package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"
)

func TestAccount_ProvisionedByAdministrator(t *testing.T) {
	t.Parallel()
	s := start(t)
	admin := s.mint("admins", "admin")
	path := accounts + s.id("new_one")
	put := s.send(call{
		method: http.MethodPut, path: path, credential: admin,
		body: `{"name":"New","features":["crm_api"],"region":"us","rateBurst":5}`,
	}).is(http.StatusOK)
	shown := s.send(call{method: http.MethodGet, path: after(path, put), credential: admin}).is(http.StatusOK)
	require.Equal(t, put.at("data"), shown.at("data"))
	require.Equal(t, "US", shown.at("data", "region"))
	require.Nil(t, shown.at("data", "rateLimit"))

	wrong := s.send(call{
		method: http.MethodPut, path: path, credential: admin,
		body: `{"features":"crm_api","region":"XX","rateBurst":1.5}`,
	})
	require.Equal(t, []string{"features", "rateBurst", "region"}, wrong.fieldsNamed(), wrong.raw)
	for _, burst := range []string{"9223372036854775808", "-9223372036854775809"} {
		tooLarge := s.send(call{
			method: http.MethodPut, path: path, credential: admin, body: `{"rateBurst":` + burst + `}`,
		}).is(http.StatusBadRequest)
		require.Contains(t, tooLarge.raw, "must be between 1 and 1000000")
	}
	require.Equal(t, http.StatusBadRequest,
		s.send(call{
			method: http.MethodPut, path: "/api/v1/admin/accounts/a%20b", credential: admin, body: `{}`,
		}).status)
	require.Equal(t, http.StatusNotFound,
		s.send(call{method: http.MethodGet, path: "/api/v1/admin/accounts/unknown", credential: admin}).status)
	require.Equal(t, http.StatusForbidden, s.as(http.MethodPut, path, `{}`).status,
		"a JWT without scopes does not have the scope admin")
}

func TestAccount_RejectsUnknownSetting(t *testing.T) {
	t.Parallel()
	s := start(t)
	admin := s.mint("admins", "admin")
	put := func(body string) reply {
		return s.send(call{method: http.MethodPut, path: accounts + s.id("new_one"), credential: admin, body: body})
	}
	first := put(`{"name":"New","features":["crm_api"],"rateBurst":5}`)
	require.Equal(t, http.StatusOK, first.status, first.raw)
	wrong := put(`{"name":"New","feature":["crm_api"],"RateBurst":5,"region":7}`)
	require.Equal(t, http.StatusBadRequest, wrong.status, wrong.raw)
	require.Equal(t, []string{"RateBurst", "feature", "region"}, wrong.fieldsNamed())
	require.Contains(t, wrong.raw, `{"field":"feature","message":"is not a known field"}`)
	for _, empty := range []string{"", " \n"} {
		require.Equal(t, []string{"body"}, put(empty).fieldsNamed())
	}
	shown := s.send(call{method: http.MethodGet, path: after(accounts+s.id("new_one"), first), credential: admin})
	require.Equal(t, first.at("data"), shown.at("data"))

	echo, err := json.Marshal(shown.at("data"))
	require.NoError(t, err)
	again := put(string(echo))
	require.Equal(t, http.StatusOK, again.status, "an answer is accepted as a request: %s", again.raw)
	require.Equal(t, first.at("data"), again.at("data"))

	var many strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&many, `,"k%d":1`, i)
	}
	require.Len(t, put(`{"name":"New"`+many.String()+`}`).fieldsNamed(), 100,
		"the number of errors in an answer is bounded")
}

func TestAccount_Retention(t *testing.T) {
	t.Parallel()
	s := start(t)
	admin := s.mint(ownAccount, "admin")
	path := accounts + s.account
	for body, want := range map[string][]any{
		`{"features":["crm_api"]}`:                                      {0.0, []any{"won"}},
		`{"features":["crm_api"],"retentionDays":null}`:                 {0.0, []any{"won"}},
		`{"features":["crm_api"],"retentionDays":30,"keepStages":[]}`:   {30.0, []any{}},
		`{"features":["crm_api"],"keepStages":["LOST"]}`:                {0.0, []any{"lost"}},
		`{"features":["crm_api"],"retentionDays":90,"keepStages":null}`: {90.0, []any{"won"}},
		`{"features":["crm_api"],"wonStages":["lost"]}`:                 {0.0, []any{"lost"}},
	} {
		put := s.send(call{method: http.MethodPut, path: path, credential: admin, body: body}).is(http.StatusOK)
		require.Equal(t, want, []any{put.at("data", "retentionDays"), put.at("data", "keepStages")}, body)
		shown := s.send(call{method: http.MethodGet, path: after(path, put), credential: admin}).is(http.StatusOK)
		require.Equal(t, put.at("data"), shown.at("data"))
		due := s.as(http.MethodGet, after("/api/v1/crm/retention", put), "").is(http.StatusOK)
		require.Equal(t, map[string]any{
			"retentionDays": want[0], "keepStages": want[1], "dueNow": 0.0, "dueWithin7Days": 0.0,
		}, due.at("data"))
	}
	for body, name := range map[string]string{
		`{"retentionDays":29}`: "retentionDays", `{"retentionDays":3651}`: "retentionDays",
		`{"retentionDays":"30"}`: "retentionDays", `{"keepStages":["paid"]}`: "keepStages",
		`{"keepStages":"won"}`: "keepStages",
	} {
		wrong := s.send(call{
			method: http.MethodPut, path: path, credential: admin, body: body,
		}).is(http.StatusBadRequest)
		require.Equal(t, []string{name}, wrong.fieldsNamed(), body)
	}
	s.send(call{
		method: http.MethodGet, path: "/api/v1/crm/retention", credential: s.mint(ownAccount, "leads:write"),
	}).is(http.StatusForbidden)
}

func TestAccount_VisitorDays(t *testing.T) {
	t.Parallel()
	s := start(t)
	admin := s.mint(ownAccount, "admin")
	path := accounts + s.account
	for body, want := range map[string]float64{
		`{}`: 395, `{"visitorDays":null}`: 395, `{"visitorDays":1}`: 1, `{"visitorDays":3650}`: 3650,
	} {
		put := s.send(call{method: http.MethodPut, path: path, credential: admin, body: body}).is(http.StatusOK)
		require.EqualValues(t, want, put.at("data", "visitorDays"), body)
		shown := s.send(call{method: http.MethodGet, path: after(path, put), credential: admin}).is(http.StatusOK)
		require.Equal(t, put.at("data"), shown.at("data"))
	}
	for _, body := range []string{
		`{"visitorDays":0}`, `{"visitorDays":3651}`, `{"visitorDays":"30"}`, `{"visitorDays":1.5}`,
	} {
		wrong := s.send(call{
			method: http.MethodPut, path: path, credential: admin, body: body,
		}).is(http.StatusBadRequest)
		require.Equal(t, []string{"visitorDays"}, wrong.fieldsNamed(), body)
	}
}

func TestAccount_QuarantineAndWonStages(t *testing.T) {
	t.Parallel()
	s := start(t)
	admin := s.mint(ownAccount, "admin")
	path := accounts + s.account
	for _, c := range []struct {
		body       string
		quarantine bool
		days       float64
		won        []any
	}{
		{`{}`, false, 30, []any{"won"}},
		{`{"quarantine":null,"quarantineDays":null,"wonStages":null}`, false, 30, []any{"won"}},
		{`{"storagePerDay":0}`, false, 30, []any{"won"}},
		{`{"quarantine":true,"quarantineDays":1,"stages":["New","Sold"],"wonStages":["sold"]}`, true, 1, []any{"Sold"}},
		{
			`{"stages":["New","Paid"],"wonStages":["Paid","Sold"],"quarantineDays":365}`, false, 365,
			[]any{"Paid", "Sold"},
		},
	} {
		put := s.send(call{method: http.MethodPut, path: path, credential: admin, body: c.body}).is(http.StatusOK)
		require.Equal(t, c.quarantine, put.at("data", "quarantine"), c.body)
		require.Equal(t, c.days, put.at("data", "quarantineDays"), c.body)
		require.Equal(t, c.won, put.at("data", "wonStages"), c.body)
		shown := s.send(call{method: http.MethodGet, path: after(path, put), credential: admin}).is(http.StatusOK)
		require.Equal(t, put.at("data"), shown.at("data"))
	}
	for body, field := range map[string]string{
		`{"quarantine":"yes"}`: "quarantine", `{"quarantineDays":0}`: "quarantineDays",
		`{"quarantineDays":366}`: "quarantineDays", `{"quarantineDays":"30"}`: "quarantineDays",
		`{"wonStages":"won"}`: "wonStages", `{"wonStages":["nowhere"]}`: "wonStages",
		`{"storagePerDay":-1}`: "storagePerDay", `{"storagePerDay":1.5}`: "storagePerDay",
		`{"storagePerDay":1099511627777}`: "storagePerDay",
	} {
		wrong := s.send(call{
			method: http.MethodPut, path: path, credential: admin, body: body,
		}).is(http.StatusBadRequest)
		require.Equal(t, []string{field}, wrong.fieldsNamed(), body)
	}
}
