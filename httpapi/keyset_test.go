package httpapi

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"
)

// keyServer publishes keys, and counts how often it is asked.
type keyServer struct {
	*httptest.Server
	asked atomic.Int64
	down  atomic.Bool
	set   atomic.Pointer[[]byte]
}

func newKeyServer(t *testing.T) *keyServer {
	t.Helper()
	k := &keyServer{}
	k.set.Store(&[]byte{'{', '}'})
	k.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		k.asked.Add(1)
		if k.down.Load() {
			http.Error(w, "down", http.StatusInternalServerError)
			return
		}
		_, _ = w.Write(*k.set.Load())
	}))
	t.Cleanup(k.Close)
	return k
}

// publish makes the server know public keys by their ids.
func (k *keyServer) publish(t *testing.T, keys map[string]any) {
	t.Helper()
	store := jwkset.NewMemoryStorage()
	for id, key := range keys {
		use := jwkset.UseSig
		if strings.HasPrefix(id, "enc") {
			use = jwkset.UseEnc
		}
		var alg jwkset.ALG
		if strings.HasPrefix(id, "ps512") {
			alg = jwkset.AlgPS512
		}
		jwk, err := jwkset.NewJWKFromKey(key, jwkset.JWKOptions{Metadata: jwkset.JWKMetadataOptions{KID: id, USE: use, ALG: alg}, Marshal: jwkset.JWKMarshalOptions{Private: true}})
		require.NoError(t, err)
		require.NoError(t, store.KeyWrite(t.Context(), jwk))
	}
	set, err := store.JSONPrivate(t.Context())
	require.NoError(t, err)
	raw := []byte(set)
	k.set.Store(&raw)
}

func TestJWKS_VerifiesPublishedKeys(t *testing.T) {
	t.Parallel()
	server := newKeyServer(t)
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	server.publish(t, map[string]any{
		"rsa": &rsaKey.PublicKey, "enc": &ecKey.PublicKey, "oct": hmacSecret, "": &rsaKey.PublicKey, "ps512": &rsaKey.PublicKey,
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	v, err := NewJWKS(ctx, server.URL, VerifierOptions{}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	kid := func(id string) map[string]any { return map[string]any{"kid": id} }

	good := signed(t, jwt.SigningMethodRS256, rsaKey, claimsOf(nil), kid("rsa"))
	_, err = v.Verify(ctx, good, noon)
	require.NoError(t, err)
	_, err = v.Verify(ctx, signed(t, jwt.SigningMethodPS512, rsaKey, claimsOf(nil), kid("ps512")), noon)
	require.NoError(t, err)
	for name, text := range map[string]string{
		"no key id":     signed(t, jwt.SigningMethodPS256, rsaKey, claimsOf(nil), nil),
		"of no use":     signed(t, jwt.SigningMethodES256, ecKey, claimsOf(nil), nil),
		"an empty one":  signed(t, jwt.SigningMethodRS256, rsaKey, claimsOf(nil), kid("")),
		"null":          signed(t, jwt.SigningMethodRS256, rsaKey, claimsOf(nil), map[string]any{"kid": nil}),
		"one in a list": signed(t, jwt.SigningMethodRS256, rsaKey, claimsOf(nil), map[string]any{"kid": []string{"rsa"}}),
	} {
		_, err = v.Verify(ctx, text, noon)
		require.ErrorContains(t, err, "no key id (kid)", name)
		require.ErrorIs(t, err, errForged, name)
	}

	asked := server.asked.Load()
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: mustMarshal(t, &rsaKey.PublicKey)})
	for name, text := range map[string]string{
		"HS256 with the public key as the secret": signed(t, jwt.SigningMethodHS256, publicPEM, claimsOf(nil), kid("rsa")),
		"HS256 with a published secret":           signed(t, jwt.SigningMethodHS256, hmacSecret, claimsOf(nil), kid("oct")),
		"a key for another algorithm":             signed(t, jwt.SigningMethodRS256, rsaKey, claimsOf(nil), kid("ps512")),
		"a key for another use":                   signed(t, jwt.SigningMethodES256, ecKey, claimsOf(nil), kid("enc")),
		"the id of another key":                   signed(t, jwt.SigningMethodES256, ecKey, claimsOf(nil), kid("rsa")),
		"a key id that is no text":                signed(t, jwt.SigningMethodRS256, rsaKey, claimsOf(nil), map[string]any{"kid": 7}),
	} {
		_, err := v.Verify(ctx, text, noon)
		require.ErrorIs(t, err, errForged, name)
	}
	require.Equal(t, asked, server.asked.Load(), "none of these is worth asking for")

	server.publish(t, map[string]any{"rsa": &rsaKey.PublicKey, "ec": &ecKey.PublicKey})
	_, err = v.Verify(ctx, signed(t, jwt.SigningMethodES256, ecKey, claimsOf(nil), kid("ec")), noon)
	require.NoError(t, err, "an unknown key id makes it look for new keys")

	asked = server.asked.Load()
	for _, invented := range []string{"a", "b", "c", "d"} {
		_, err = v.Verify(ctx, signed(t, jwt.SigningMethodES256, ecKey, claimsOf(nil), kid(invented)), noon)
		require.ErrorIs(t, err, errForged)
	}
	require.Equal(t, asked, server.asked.Load(), "but not again and again")
	server.down.Store(true)
	_, err = v.Verify(ctx, good, noon)
	require.NoError(t, err, "known keys outlive the server")
}

func TestJWKS_RetriesServerDownAtStart(t *testing.T) {
	t.Parallel()
	server := newKeyServer(t)
	server.down.Store(true)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	v, err := newJWKS(ctx, server.URL, VerifierOptions{}, slog.New(slog.DiscardHandler), 50*time.Millisecond)
	require.NoError(t, err)
	_, err = v.Verify(ctx, signed(t, jwt.SigningMethodES256, key, claimsOf(nil), map[string]any{"kid": "k"}), noon)
	require.ErrorIs(t, err, errNoKeys)
	_, err = v.Verify(ctx, signed(t, jwt.SigningMethodHS256, hmacSecret, claimsOf(nil), nil), noon)
	require.ErrorIs(t, err, errForged, "whatever the keys are")
	server.publish(t, map[string]any{"k": &key.PublicKey})
	server.down.Store(false)
	good := signed(t, jwt.SigningMethodES256, key, claimsOf(nil), map[string]any{"kid": "k"})
	require.Eventually(t, func() bool { _, err := v.Verify(ctx, good, noon); return err == nil }, time.Minute, 10*time.Millisecond)
}

func TestJWKS_RequiresHTTPURL(t *testing.T) {
	t.Parallel()
	closed := httptest.NewTLSServer(http.NotFoundHandler())
	closed.Close()
	var said bytes.Buffer
	_, err := NewJWKS(t.Context(), closed.URL+"/hunter2?key=hunter2", VerifierOptions{}, slog.New(slog.NewTextHandler(&said, nil)))
	require.NoError(t, err)
	require.Contains(t, said.String(), "connection refused")
	require.Contains(t, said.String(), closed.Listener.Addr().String())
	require.NotContains(t, said.String(), "hunter2")
	for _, address := range []string{"", "keys.json", "ftp://x/y", "https://", "https://x/%"} {
		_, err := NewJWKS(t.Context(), address, VerifierOptions{}, slog.New(slog.DiscardHandler))
		require.Error(t, err, address)
	}
}

func TestJWKS_RejectsHugeKeySet(t *testing.T) {
	t.Parallel()
	server := newKeyServer(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	server.publish(t, map[string]any{"k": &key.PublicKey})
	long := append(bytes.Repeat([]byte{' '}, maxKeySet), *server.set.Load()...)
	server.set.Store(&long)
	var said bytes.Buffer
	v, err := NewJWKS(t.Context(), server.URL, VerifierOptions{}, slog.New(slog.NewTextHandler(&said, nil)))
	require.NoError(t, err)
	require.Contains(t, said.String(), "JWKS not fetched")
	_, err = v.Verify(t.Context(), signed(t, jwt.SigningMethodES256, key, claimsOf(nil), map[string]any{"kid": "k"}), noon)
	require.ErrorIs(t, err, errNoKeys)
}

func mustMarshal(t *testing.T, key any) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	require.NoError(t, err)
	return der
}
