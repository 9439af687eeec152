package httpapi_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/eventstore/storetest"
	"github.com/leadlog/leadlog/httpapi"
)

// try asks by API token what a capture would be answered.
func (s *service) try(value, key, body string) reply {
	s.t.Helper()
	c := call{method: http.MethodPost, path: leads + "?dryRun=true", credential: value, body: body}
	if key != "" {
		c.header = map[string]string{"Idempotency-Key": key}
	}
	return s.send(c)
}

func TestDryRun_WritesNothing(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, body := range []string{
		`{"name":"Asha","phone":"9876543210","opportunityValue":"1,200","city":"Pune"}`,
		`{"phone":"9876543210","email":"asha@example.com","opportunityValue":7,"metadata":{"source":"website"}}`,
		`{"phone":"9876543210"}`,
		`{"email":"zoe@example.com"}`,
		`{"phone":"9876543210","email":"zoe@example.com"}`,
		`{"phone":"12","status":"nope"}`,
		`{"phone":"9876543210","status":"nope","metadata":{"source":"chatbot"}}`,
		`{"a":1,"a":2}`,
	} {
		before := storetest.Head(t, s.store)
		tried := s.try(s.jwt, "", body)
		after := storetest.Head(t, s.store)
		require.Equal(t, before, after, "%s left something on the log", body)
		require.Empty(t, tried.header.Get("X-Log-Position"))
		require.Equal(t, true, tried.at("dryRun"), tried.raw)

		captured := s.capture(body)
		require.Equal(t, captured.status, tried.status, "%s: %s", body, tried.raw)
		require.NotContains(t, captured.body, "dryRun")
		requireForeseen(t, captured, tried)
	}
}

// requireForeseen compares bodies. What was born between has an id in one of them; each is of its own moment.
func requireForeseen(t *testing.T, captured, tried reply) {
	t.Helper()
	delete(tried.body, "dryRun")
	of, _ := captured.body["data"].(map[string]any)
	foreseen, _ := tried.body["data"].(map[string]any)
	if captured.status == http.StatusCreated {
		require.Equal(t, []any{"", ""}, []any{foreseen["leadId"], foreseen["contactUID"]})
	}
	for _, id := range []string{"leadId", "contactUID", "opportunityId"} {
		if foreseen[id] == "" {
			require.NotEmpty(t, of[id], "%s of %s", id, tried.raw)
			foreseen[id] = of[id]
		}
	}
	for _, at := range []string{"createdAt", "updatedAt"} {
		if of != nil {
			require.NotEmpty(t, foreseen[at])
			foreseen[at] = of[at]
		}
	}
	require.Equal(t, captured.body, tried.body)
}

func TestDryRun_IdempotencyKey(t *testing.T) {
	t.Parallel()
	s := start(t)
	const body, other = `{"phone":"9876543210","metadata":{"source":"website"}}`, `{"phone":"9876543211"}`
	s.try(s.jwt, "k", other).is(http.StatusCreated)
	created := s.keyed("k", body).is(http.StatusCreated)
	require.Empty(t, created.header.Get("Idempotent-Replayed"))

	again := s.try(s.jwt, "k", body).is(http.StatusCreated)
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
	require.Equal(t, created.at("data"), again.at("data"))
	reused := s.try(s.jwt, "k", other).is(http.StatusConflict)
	require.Equal(t, "IDEMPOTENCY_KEY_REUSED", reused.at("code"))
	require.Equal(t, true, reused.at("dryRun"))
}

func TestDryRun_RejectsUnclearFlag(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, query := range []string{"dryRun=", "dryRun=1", "dryRun=TRUE", "dryRun=true&dryRun=false", "dryRun=true&dryRun=true", "dryRun=tru%zz", "dryRun=true;x=1"} {
		require.Equal(t, []string{"dryRun"}, s.as(http.MethodPost, leads+"?"+query, `{"phone":"9876543210"}`).is(http.StatusBadRequest).fieldsNamed())
	}
	batch := s.as(http.MethodPost, leads+"/batch?dryRun=true", `{"phone":"9876543210"}`).is(http.StatusBadRequest)
	require.Equal(t, []string{"dryRun"}, batch.fieldsNamed())
	s.as(http.MethodPost, leads+"?dryRun=false", `{"phone":"9876543210"}`).is(http.StatusCreated)
}

func TestDryRun_AuthorizationAndQuota(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *httpapi.Options) { o.RateLimit, o.RateBurst = 0.001, 2 })
	other := serve(t, s.url)
	id, value := s.token()
	s.try(value, "", `{"phone":"9876543210"}`).is(http.StatusCreated)
	other.as(http.MethodDelete, tokens+"/"+id, "").is(http.StatusOK)
	require.Equal(t, http.StatusUnauthorized, s.try(value, "", `{"phone":"9876543210"}`).status, "no append confirms what is believed of the token")
	s.try(s.jwt, "", `{"phone":"9876543210"}`).is(http.StatusTooManyRequests)

	s.provision("lapsed", account.Settings{Features: []string{account.FeatureAPI}})
	credential := s.mint("lapsed", "")
	s.try(credential, "", `{"phone":"9876543210"}`).is(http.StatusCreated)
	other.provision("lapsed", account.Settings{})
	s.try(credential, "", `{"phone":"9876543210"}`).is(http.StatusForbidden)
}
