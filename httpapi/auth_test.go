package httpapi_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/token"
	"github.com/leadlog/leadlog/httpapi"
)

// status posts an empty capture with a credential and returns the status: 400 if the credential was accepted.
func (s *service) status(credential string) int {
	s.t.Helper()
	return s.send(call{method: http.MethodPost, path: leads, credential: credential, body: `{}`}).status
}

// A token with a wrong checksum is rejected without a look-up, so it must not count against the limit of look-ups.
// After a restart every token needs a look-up.
func TestCredentials_JunkDoesNotBlockTokens(t *testing.T) {
	t.Parallel()
	s := start(t)
	_, value := s.token()
	restarted := s.another(stopped)
	for range 110 { // more than the limit of failures
		require.Equal(t, http.StatusUnauthorized, restarted.status(value[:len(value)-1]+"!"))
		restarted.status(s.jwt[:len(s.jwt)-8] + "AAAAAAAA")
	}
	require.Equal(t, http.StatusBadRequest, restarted.status(value))
}

// After failed guesses from an address, existing tokens are accepted from it, and unknown ones are not looked up.
func TestCredentials_GuessesDoNotBlockTokens(t *testing.T) {
	t.Parallel()
	s := start(t)
	_, value := s.token()
	s.caughtUp()
	restarted := s.another(stopped)
	guesses := func(id func() string) (answered map[int]int) {
		answered = map[int]int{}
		for _, r := range concurrently(150, func(int) reply {
			guess, err := token.NewValue(id(), rand.Reader)
			require.NoError(t, err)
			return restarted.send(call{method: http.MethodPost, path: leads, credential: guess.Reveal(), body: `{}`})
		}) {
			answered[r.status]++
		}
		return answered
	}
	answered := guesses(func() string { return ulid.Make().String() })
	require.Equal(t, map[int]int{http.StatusUnauthorized: 100, http.StatusTooManyRequests: 50}, answered)
	require.Equal(t, http.StatusBadRequest, restarted.status(value))
	parsed, err := token.ParseValue(value)
	require.NoError(t, err)
	answered = guesses(parsed.TokenID)
	require.Equal(t, http.StatusBadRequest, restarted.status(value), "the token is cached")
	require.Equal(t, 99, answered[http.StatusUnauthorized], "the look-ups of one token are bounded: %v", answered)
}

func TestCredentials_UntrustedProxyIsReported(t *testing.T) {
	t.Parallel()
	s := start(t, unchanged)
	for range 3 {
		s.request(call{
			method: http.MethodGet, path: "/healthz", header: map[string]string{"X-Forwarded-For": "198.51.100.7"},
		})
	}
	require.Equal(t, 1, strings.Count(s.log.String(), "LEADLOG_TRUSTED_PROXIES"))
	require.NotContains(t, s.log.String(), "198.51.100.7")
}

func TestJWKS_NoKeysYetIsUnavailable(t *testing.T) {
	t.Parallel()
	down := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(down.Close)
	verifier, err := httpapi.NewJWKS(t.Context(), down.URL, httpapi.VerifierOptions{}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	s := start(t, func(o *httpapi.Options) { o.JWT = verifier })
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	claims := jwt.MapClaims{"sub": "ann", "account_id": s.account, "exp": time.Now().Add(time.Hour).Unix()}
	unsigned := jwt.NewWithClaims(jwt.SigningMethodES256, claims)
	unsigned.Header["kid"] = "k"
	good, err := unsigned.SignedString(key)
	require.NoError(t, err)
	for _, c := range []call{{method: http.MethodGet, path: leads}, {
		method: http.MethodPost, path: leads, body: `{"phone":"9876543210"}`,
	}} {
		c.credential = good
		r := s.send(c).is(http.StatusServiceUnavailable)
		require.NotEmpty(t, r.header.Get("Retry-After"))
		c.credential = s.mint(ownAccount, "")
		require.Equal(t, http.StatusUnauthorized, s.send(c).status, "no published key has this algorithm")
	}
}

const accounts = "/api/v1/admin/accounts/"

// issued returns a JWT of the test's account with an earlier time of issue.
func (s *service) issued(ago time.Duration) string {
	s.t.Helper()
	text, err := httpapi.MintHS256([]byte(jwtSecret), httpapi.Minting{
		Account: s.account, Subject: "ann", TTL: 2 * time.Hour,
	}, time.Now().Add(-ago))
	require.NoError(s.t, err)
	return text
}

// revoke revokes JWTs of the test's account that were issued before a time.
func (s *service) revoke(before time.Time) {
	s.t.Helper()
	r := s.send(call{
		method: http.MethodPut, path: accounts + s.account, credential: s.mint("operators", "admin"),
		body: fmt.Sprintf(`{"features":["crm_api"],"jwtNotBefore":%q}`, before.Format(time.RFC3339)),
	}).is(http.StatusOK)
	require.Equal(s.t, before.UTC().Format("2006-01-02T15:04:05.000Z"), r.at("data", "jwtNotBefore"))
}

func TestRevocation_InEveryProcess(t *testing.T) {
	t.Parallel()
	s := start(t)
	other := s.another() // this process caches the account
	old, fresh := s.issued(time.Hour), s.issued(0)
	withoutIssueTime, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"sub": "ann", "account_id": s.account, "exp": time.Now().Add(time.Hour).Unix(),
	}).SignedString([]byte(jwtSecret))
	require.NoError(t, err)
	future, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"sub": "ann", "account_id": s.account, "iat": time.Now().UnixMilli(), "exp": time.Now().Add(time.Hour).Unix(),
	}).SignedString([]byte(jwtSecret))
	require.NoError(t, err)
	id, value := s.token()
	epoch, now := time.Unix(1, 0), time.Now().Add(-time.Minute).Truncate(time.Second)
	require.Equal(t, http.StatusOK,
		other.send(call{method: http.MethodGet, path: leads, credential: withoutIssueTime}).status)
	for _, c := range []call{
		{method: http.MethodPost, path: leads, body: `{"phone":"9876543219"}`},
		{method: http.MethodPost, path: leads, body: `{"phone":"1"}`},
		{method: http.MethodPost, path: leads, body: `no json`},
		{method: http.MethodPost, path: batch, body: `{"phone":"9876543219"}`},
		{method: http.MethodPost, path: batch},
		{method: http.MethodPost, path: leads + "?dryRun=true", body: `{"phone":"9876543219"}`},
		{method: http.MethodPost, path: visitors + "v/activity", body: `{"type":"click"}`},
		{method: http.MethodPost, path: visitors + "v/activity", body: `{"type":"?"}`},
		{method: http.MethodPost, path: tokens, body: `{"name":"x","expiresInDays":1}`},
		{method: http.MethodDelete, path: tokens + "/" + id},
		{method: http.MethodPatch, path: leads + "/" + id, body: `{"name":"x"}`},
		{method: http.MethodPost, path: endpoints, body: `{"url":"https://example.com/"}`},
		{method: http.MethodPut, path: accounts + "x", body: `{}`},
	} {
		c.credential = old
		s.revoke(epoch)
		other.send(call{method: http.MethodGet, path: leads, credential: old}).is(http.StatusOK)
		s.revoke(now) // the other process has a stale cache
		r := other.send(c)
		require.Equal(t, http.StatusUnauthorized, r.status, "%s %s: %s", c.method, c.path, r.raw)
		require.Equal(t, "Bearer", r.header.Get("WWW-Authenticate"))
	}
	require.Eventually(t, func() bool {
		return other.send(call{method: http.MethodGet, path: leads, credential: old}).status == http.StatusUnauthorized
	}, soon, 10*time.Millisecond, "reads use the cache")
	require.Equal(t, http.StatusUnauthorized,
		other.send(call{method: http.MethodGet, path: leads, credential: withoutIssueTime}).status,
		"a JWT without iat is refused")
	require.Equal(t, http.StatusUnauthorized,
		other.send(call{method: http.MethodGet, path: leads, credential: future}).status,
		"a JWT with iat in milliseconds is refused")
	require.Equal(t, http.StatusOK, other.send(call{method: http.MethodGet, path: leads, credential: fresh}).status)
	require.Equal(t, http.StatusCreated,
		other.send(call{
			method: http.MethodPost, path: leads, credential: fresh, body: `{"phone":"9876543210"}`,
		}).status)
	require.Equal(t, http.StatusCreated,
		other.send(call{
			method: http.MethodPost, path: leads, credential: value, body: `{"phone":"9876543218"}`,
		}).status,
		"the revocation of JWTs does not apply to API tokens")
}

func TestRevocation_RejectsFutureTime(t *testing.T) {
	t.Parallel()
	s := start(t)
	admin := s.mint("operators", "admin")
	put := func(body string) reply {
		return s.send(call{method: http.MethodPut, path: accounts + s.account, credential: admin, body: body})
	}
	before := time.Now().Add(-time.Hour).Truncate(time.Second)
	s.revoke(before)
	kept := put(`{"features":["crm_api"],"stages":["a","b"],"jwtNotBefore":null}`)
	require.Equal(t, http.StatusOK, kept.status, kept.raw)
	require.Equal(t, []any{"a", "b"}, kept.at("data", "stages"))
	require.Equal(t, before.UTC().Format("2006-01-02T15:04:05.000Z"), kept.at("data", "jwtNotBefore"),
		"a change of stages keeps the revocation")
	shown := s.send(call{method: http.MethodGet, path: after(accounts+s.account, kept), credential: admin})
	require.Equal(t, kept.at("data"), shown.at("data"))

	for _, body := range []string{
		fmt.Sprintf(`{"jwtNotBefore":%q}`, time.Now().Add(time.Hour).Format(time.RFC3339)),
		`{"jwtNotBefore":"yesterday"}`, `{"jwtNotBefore":7}`,
		// year 0 in UTC: an answer with it would not be accepted as a request
		`{"jwtNotBefore":"0001-01-01T00:30:00+14:00"}`,
	} {
		require.Equal(t, []string{"jwtNotBefore"}, put(body).is(http.StatusBadRequest).fieldsNamed())
	}
	s.send(call{method: http.MethodGet, path: accounts + "missing", credential: admin}).is(http.StatusNotFound)
}

func TestRevocation_EndsRunningBatch(t *testing.T) {
	t.Parallel()
	s := start(t)
	other := s.another()
	w := s.wire(s.issued(time.Hour))
	w.send(`{"email":"p0@example.com"}` + "\n")
	answers := w.answers()
	answered := func() string {
		t.Helper()
		answer, err := answers.ReadString('\n')
		require.NoError(t, err)
		return answer
	}
	require.Contains(t, answered(), `"status":201,`)
	other.revoke(time.Now().Add(-time.Minute).Truncate(time.Second))
	for i := range 3 { // the append of the first line fails, and later lines use its result
		w.send(fmt.Sprintf(`{"email":"q%d@example.com"}`+"\n", i))
		require.Contains(t, answered(), `"status":401,`)
	}
	w.end()
}
