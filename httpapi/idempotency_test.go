package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/storetest"
)

// keyed returns a capture with an idempotency key.
func (s *service) keyed(key, body string) reply {
	s.t.Helper()
	return s.send(call{
		method: http.MethodPost, path: leads, credential: s.jwt, body: body,
		header: map[string]string{"Idempotency-Key": key},
	})
}

// requireReplayed requires that an answer repeats the first one.
func requireReplayed(t *testing.T, first, again reply) {
	t.Helper()
	require.Equal(t, first.status, again.status, again.raw)
	require.Equal(t, first.raw, again.raw)
	for _, name := range []string{"X-Log-Position", "X-Event-Id"} {
		require.Equal(t, first.header.Get(name), again.header.Get(name))
	}
	require.Empty(t, first.header.Get("Idempotent-Replayed"))
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
}

func TestIdempotency_RepeatsFirstAnswer(t *testing.T) {
	t.Parallel()
	s := start(t)
	other := s.another() // another process, without cached state

	const body = `{"name":"Asha","phone":"9876543210","metadata":{"source":"website","n":1.50}}`
	created := s.keyed("k-1", body).is(http.StatusCreated)
	requireReplayed(t, created, s.keyed("k-1", body))

	const more = `{"name":"Asha Rao","phone":"9876543210","metadata":{"source":"whatsapp"}}`
	merged := s.keyed("k-2", more).is(http.StatusOK)
	s.capture(`{"name":"A","phone":"9876543210","metadata":{"source":"website"}}`).is(http.StatusOK)

	const curated = `{"phone":"9876543210","metadata":{"source":"api"}}`
	s.capture(curated).is(http.StatusOK)
	refused := s.keyed("k-3", curated).is(http.StatusConflict)
	require.Equal(t, "DUPLICATE_LEAD_SOURCE", refused.at("code"))

	head := storetest.Head(t, s.store)
	for _, process := range []*service{s, other} {
		requireReplayed(t, created, process.keyed("k-1", body))
		requireReplayed(t, merged, process.keyed("k-2", more))
		requireReplayed(t, refused, process.keyed("k-3", curated))
	}
	reordered := `{ "metadata": {"n":1.50, "source":"web\u0073ite"}, "phone": "9876543210", "n\u0061me":"\u0041sha" }`
	requireReplayed(t, created, other.keyed("k-1", reordered))
	require.Empty(t, s.writtenSince(head), "a repeat appends nothing")
}

func TestIdempotency_BoundToBodyAndAccount(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.keyed("k", `{"phone":"9876543210"}`).is(http.StatusCreated)
	for _, body := range []string{
		`{"phone":"9876543211"}`, `{"phone":"9876543210","name":"A"}`, `{"phone":"nope"}`, `{}`,
	} {
		r := s.keyed("k", body).is(http.StatusConflict)
		require.Equal(t, "IDEMPOTENCY_KEY_REUSED", r.at("code"))
		require.Empty(t, r.header.Get("Idempotent-Replayed"))
	}
	s.provision("other", account.Settings{Features: []string{account.FeatureAPI}})
	s.jwt = s.mint("other", "")
	s.keyed("k", `{"phone":"9876543211"}`).is(http.StatusCreated)
}

func TestIdempotency_FreeAfterFailure(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.keyed("k", `{"phone":"12"}`).is(http.StatusBadRequest)
	require.Equal(t, http.StatusUnauthorized, s.send(call{
		method: http.MethodPost, path: leads, credential: "unknown", body: `{}`,
		header: map[string]string{"Idempotency-Key": "k"},
	}).status)
	s.keyed("k", `{"phone":"9876543210","status":"sold"}`).is(http.StatusBadRequest)
	s.keyed("k", `{"phone":"9876543210"}`).is(http.StatusCreated)
}

// A request that was quarantined is one arrival, also after it was resubmitted.
func TestIdempotency_Quarantined(t *testing.T) {
	t.Parallel()
	s := quarantining(t)
	const body = `{"phone":"12","email":"asha@example.com"}`
	first := s.keyed("k", body).is(http.StatusBadRequest)
	id, _ := first.at("arrivalId").(string)
	require.NotEmpty(t, id)
	requireReplayed(t, first, s.keyed("k", body))
	s.as(http.MethodPost, arrivalsPath+"/"+id+"/resubmit", `{"set":{"phone":"9876543210"}}`).is(http.StatusOK)
	requireReplayed(t, first, s.keyed("k", body))
	received := 0
	for _, e := range s.written() {
		if e.Type == (event.ArrivalReceived{}).EventType() {
			received++
		}
	}
	require.Equal(t, 1, received)
}

// A repeat gets the stored answer, also after a change of the settings.
func TestIdempotency_IgnoresLaterSettings(t *testing.T) {
	t.Parallel()
	s := start(t)
	with := func(stages ...string) account.Settings {
		return account.Settings{Features: []string{account.FeatureAPI}, Stages: stages}
	}
	s.provision(ownAccount, with("new", "sold"))
	const body = `{"phone":"9876543210","status":"sold"}`
	first := s.keyed("k", body).is(http.StatusCreated)
	s.provision(ownAccount, with("new"))
	requireReplayed(t, first, s.keyed("k", body))
}

func TestIdempotency_RevokedCaller(t *testing.T) {
	t.Parallel()
	s := start(t)
	other := s.another()
	with := func(stages ...string) account.Settings {
		return account.Settings{Features: []string{account.FeatureAPI}, Stages: stages}
	}
	s.provision(ownAccount, with("new", "sold"))
	id, value := s.token()
	repeat := call{
		method: http.MethodPost, path: leads, credential: value, body: `{"phone":"9876543210","status":"sold"}`,
		header: map[string]string{"Idempotency-Key": "k"},
	}
	require.Equal(t, http.StatusCreated, s.send(repeat).status)
	require.Equal(t, http.StatusCreated, other.send(repeat).status)
	// The arrival's stage no longer exists, so nothing is appended that would detect the revocation.
	s.provision(ownAccount, with("new"))
	require.Equal(t, http.StatusCreated, other.send(repeat).status)
	s.as(http.MethodDelete, "/api/v1/crm/tokens/"+id, "").is(http.StatusOK)
	require.Equal(t, http.StatusUnauthorized, other.send(repeat).status,
		"the process does not rely on its cached token")
}

func TestIdempotency_ConcurrentCalls(t *testing.T) {
	t.Parallel()
	s := start(t)
	processes := []*service{s, s.another()}
	// Without the key, each call would merge and count.
	const body = `{"phone":"9876543210","metadata":{"source":"whatsapp"}}`
	replies := concurrently(12, func(i int) reply { return processes[i%2].keyed("k", body) })
	fresh := 0
	for _, r := range replies {
		require.Equal(t, http.StatusCreated, r.status, r.raw)
		require.Equal(t, replies[0].raw, r.raw)
		if r.header.Get("Idempotent-Replayed") == "" {
			fresh++
		}
	}
	require.Equal(t, 1, fresh)
	events := s.as(http.MethodGet, leads+"/"+replies[0].at("data", "leadId").(string)+"/events", "")
	require.Len(t, events.at("data"), 1)
}

func TestIdempotency_KeySyntax(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, key := range []string{"", "a b", "é", strings.Repeat("k", 256)} {
		require.Equal(t, []string{"Idempotency-Key"},
			s.keyed(key, `{"phone":"9876543210"}`).is(http.StatusBadRequest).fieldsNamed())
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.server.URL+leads,
		strings.NewReader(`{"phone":"9876543210"}`))
	require.NoError(t, err)
	request.Header = http.Header{
		"Authorization": {"Bearer " + s.jwt}, "Content-Type": {"application/json"},
		"Idempotency-Key": {"one", "another"},
	}
	two, err := s.server.Client().Do(request)
	require.NoError(t, err)
	require.NoError(t, two.Body.Close())
	require.Equal(t, http.StatusBadRequest, two.StatusCode)
	s.keyed(strings.Repeat("~", 255), `{"phone":"9876543210"}`).is(http.StatusCreated)
}

// The log contains neither the key, nor the body, nor the address of the caller.
func TestIdempotency_ClaimHasNoPersonalData(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.keyed("order-of-asha", `{"phone":"9876543210","email":"asha@example.com"}`).is(http.StatusCreated)
	var claims []eventstore.Recorded
	for _, e := range s.written() {
		if e.Type == (event.ClaimBound{}).EventType() {
			claims = append(claims, e)
		}
	}
	require.Len(t, claims, 1)
	require.Empty(t, claims[0].Metadata.IP)
	require.Empty(t, claims[0].Metadata.UserAgent)
	for _, secret := range []string{"order-of-asha", "9876543210", "asha@example.com"} {
		require.NotContains(t, string(claims[0].Data), secret)
	}
}
