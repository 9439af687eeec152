package httpapi_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/httpapi"
)

func TestJWKS_NoKeysYetIsUnavailable(t *testing.T) {
	t.Parallel()
	down := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(down.Close)
	verifier, err := httpapi.NewJWKS(t.Context(), down.URL, httpapi.VerifierOptions{}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	s := start(t, func(o *httpapi.Options) { o.JWT = verifier })
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	claims := jwt.MapClaims{"sub": "ann", "account_id": ownAccount, "exp": time.Now().Add(time.Hour).Unix()}
	unsigned := jwt.NewWithClaims(jwt.SigningMethodES256, claims)
	unsigned.Header["kid"] = "k"
	good, err := unsigned.SignedString(key)
	require.NoError(t, err)
	for _, c := range []call{{method: http.MethodGet, path: leads}, {method: http.MethodPost, path: leads, body: `{"phone":"9876543210"}`}} {
		c.credential = good
		r := s.send(c).is(http.StatusServiceUnavailable)
		require.NotEmpty(t, r.header.Get("Retry-After"))
		c.credential = s.mint(ownAccount, "")
		require.Equal(t, http.StatusUnauthorized, s.send(c).status, "an algorithm that no published key is for")
	}
}
