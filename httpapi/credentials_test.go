package httpapi_test

import (
	"crypto/rand"
	"net/http"
	"strings"
	"testing"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/token"
)

// status captures nothing with a credential and returns the status: 400 when it was let in.
func (s *service) status(credential string) int {
	s.t.Helper()
	return s.send(call{method: http.MethodPost, path: leads, credential: credential, body: `{}`}).status
}

// What fails its checksum needs no look-up, so it must not keep out those who need one: after a restart, every token.
func TestCredentials_JunkKeepsNoTokenOut(t *testing.T) {
	t.Parallel()
	s := start(t)
	_, value := s.token()
	restarted := serveOn(t, s.url, s.events, stopped)
	for range 200 {
		require.Equal(t, http.StatusUnauthorized, restarted.status(value[:len(value)-1]+"!"))
		restarted.status(s.jwt[:len(s.jwt)-8] + "AAAAAAAA")
	}
	require.Equal(t, http.StatusBadRequest, restarted.status(value))
}

// Whatever is guessed from an address, a token that exists is let in from there, and no other is looked up.
func TestCredentials_GuessesKeepNoTokenOut(t *testing.T) {
	t.Parallel()
	s := start(t)
	_, value := s.token()
	s.caughtUp()
	restarted := serveOn(t, s.url, s.events, stopped)
	answered := map[int]int{}
	for range 150 {
		guess, err := token.NewValue(ulid.Make().String(), rand.Reader)
		require.NoError(t, err)
		answered[restarted.status(guess.Reveal())]++
	}
	require.Equal(t, map[int]int{http.StatusUnauthorized: 100, http.StatusTooManyRequests: 50}, answered)
	require.Equal(t, http.StatusBadRequest, restarted.status(value))
	parsed, err := token.ParseValue(value)
	require.NoError(t, err)
	clear(answered)
	for range 150 {
		guess, err := token.NewValue(parsed.TokenID(), rand.Reader)
		require.NoError(t, err)
		answered[restarted.status(guess.Reveal())]++
	}
	require.Equal(t, http.StatusBadRequest, restarted.status(value), "it is known")
	require.Equal(t, 99, answered[http.StatusUnauthorized], "look-ups of one token are bounded too: %v", answered)
}

func TestCredentials_UntrustedProxyIsReported(t *testing.T) {
	t.Parallel()
	s := start(t)
	for range 3 {
		s.request(call{method: http.MethodGet, path: "/healthz", header: map[string]string{"X-Forwarded-For": "198.51.100.7"}})
	}
	require.Equal(t, 1, strings.Count(s.log.String(), "LEADLOG_TRUSTED_PROXIES"))
	require.NotContains(t, s.log.String(), "198.51.100.7")
}
