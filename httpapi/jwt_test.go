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
	"maps"
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

var (
	hmacSecret = []byte("0123456789abcdef0123456789abcdef")
	noon       = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
)

// claimsOf returns valid claims with changes.
func claimsOf(change func(jwt.MapClaims)) jwt.MapClaims {
	claims := jwt.MapClaims{
		"sub": "ann", "account_id": "acme", "exp": noon.Add(time.Hour).Unix(), "iss": "https://issuer",
		"aud": "leadlog",
	}
	if change != nil {
		change(claims)
	}
	return claims
}

func signed(t *testing.T, method jwt.SigningMethod, key any, claims jwt.MapClaims, header map[string]any) string {
	t.Helper()
	token := jwt.NewWithClaims(method, claims)
	for name, value := range header {
		token.Header[name] = value
	}
	text, err := token.SignedString(key)
	require.NoError(t, err)
	return text
}

func TestJWT_Identity(t *testing.T) {
	t.Parallel()
	v, err := NewHS256(hmacSecret, VerifierOptions{Issuer: "https://issuer", Audience: "leadlog"})
	require.NoError(t, err)
	identity, err := v.Verify(t.Context(), signed(t, jwt.SigningMethodHS256, hmacSecret, claimsOf(nil), nil), noon)
	require.NoError(t, err)
	require.Equal(t, "acme", identity.Account)
	require.Equal(t, "ann", identity.Subject)
	require.True(t, identity.May("leads:write"))
	require.False(t, identity.May("admin"), "a JWT without scopes is not an administrator's")

	scoped, err := v.Verify(t.Context(), signed(t, jwt.SigningMethodHS256, hmacSecret,
		claimsOf(func(c jwt.MapClaims) { c["scope"] = "leads:read admin" }), nil), noon)
	require.NoError(t, err)
	require.True(t, scoped.May("admin"))
	require.True(t, scoped.May("leads:read"))
	require.False(t, scoped.May("leads:write"))
	require.False(t, scoped.May("leads"))

	none, err := v.Verify(t.Context(), signed(t, jwt.SigningMethodHS256, hmacSecret,
		claimsOf(func(c jwt.MapClaims) { c["scope"] = "" }), nil), noon)
	require.NoError(t, err)
	require.False(t, none.May("leads:read"), "an empty scope claim grants nothing")
}

func TestJWT_Rejections(t *testing.T) {
	t.Parallel()
	v, err := NewHS256(hmacSecret, VerifierOptions{Issuer: "https://issuer", Audience: "leadlog"})
	require.NoError(t, err)
	hs := func(change func(jwt.MapClaims)) string {
		return signed(t, jwt.SigningMethodHS256, hmacSecret, claimsOf(change), nil)
	}
	good := hs(nil)
	for name, c := range map[string]struct {
		text   string
		forged bool // not signed by the issuer
	}{
		"alg none": {
			signed(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, claimsOf(nil), nil), true,
		},
		"HS384": {signed(t, jwt.SigningMethodHS384, hmacSecret, claimsOf(nil), nil), true},
		"another secret": {
			signed(t, jwt.SigningMethodHS256, []byte("x0123456789abcdef0123456789abcde"), claimsOf(nil), nil), true,
		},
		"no signature": {good[:strings.LastIndexByte(good, '.')+1], true},
		"crit": {
			signed(t, jwt.SigningMethodHS256, hmacSecret, claimsOf(nil), map[string]any{"crit": []string{"exp"}}), true,
		},
		"9 KiB":             {hs(func(c jwt.MapClaims) { c["pad"] = strings.Repeat("x", 7<<10) }), true},
		"no JWT":            {"hello", true},
		"three empty parts": {"..", true},
		"no exp":            {hs(func(c jwt.MapClaims) { delete(c, "exp") }), false},
		"expired": {
			hs(func(c jwt.MapClaims) { c["exp"] = noon.Add(-31 * time.Second).Unix() }), false,
		},
		"not valid yet": {
			hs(func(c jwt.MapClaims) { c["nbf"] = noon.Add(31 * time.Second).Unix() }), false,
		},
		"never valid":                {hs(func(c jwt.MapClaims) { c["nbf"] = 1e300 }), false},
		"another issuer":             {hs(func(c jwt.MapClaims) { c["iss"] = "https://other" }), false},
		"no issuer":                  {hs(func(c jwt.MapClaims) { delete(c, "iss") }), false},
		"another audience":           {hs(func(c jwt.MapClaims) { c["aud"] = []string{"other"} }), false},
		"no audience":                {hs(func(c jwt.MapClaims) { delete(c, "aud") }), false},
		"no account":                 {hs(func(c jwt.MapClaims) { delete(c, "account_id") }), false},
		"an account of another type": {hs(func(c jwt.MapClaims) { c["account_id"] = 7 }), false},
		"an account with a slash":    {hs(func(c jwt.MapClaims) { c["account_id"] = "a/b" }), false},
		"no subject":                 {hs(func(c jwt.MapClaims) { delete(c, "sub") }), false},
		"a subject with NUL":         {hs(func(c jwt.MapClaims) { c["sub"] = "a\x00" }), false},
		"a subject of 256":           {hs(func(c jwt.MapClaims) { c["sub"] = strings.Repeat("é", 256) }), false},
		"a scope list":               {hs(func(c jwt.MapClaims) { c["scope"] = []string{"admin"} }), false},
	} {
		_, err := v.Verify(t.Context(), c.text, noon)
		require.Error(t, err, name)
		if c.forged {
			require.ErrorIs(t, err, errForged, name)
		} else {
			require.NotErrorIs(t, err, errForged, name)
		}
	}
	_, err = v.Verify(t.Context(), hs(func(c jwt.MapClaims) { c["exp"] = noon.Add(-29 * time.Second).Unix() }), noon)
	require.NoError(t, err, "a clock difference of some seconds is tolerated")
	_, err = v.Verify(t.Context(), hs(func(c jwt.MapClaims) { c["sub"] = strings.Repeat("é", 255) }), noon)
	require.NoError(t, err)
}

func TestJWT_RejectsShortSecret(t *testing.T) {
	t.Parallel()
	_, err := NewHS256(hmacSecret[:31], VerifierOptions{})
	require.Error(t, err)
	_, err = MintHS256(hmacSecret[:31], Minting{Account: "a", Subject: "b", TTL: time.Hour}, noon)
	require.Error(t, err)
}

func TestJWT_MintedIsAccepted(t *testing.T) {
	t.Parallel()
	v, err := NewHS256(hmacSecret, VerifierOptions{Issuer: "i", Audience: "a", AccountClaim: "tenant"})
	require.NoError(t, err)
	m := Minting{
		Account: "acme", Subject: "ann", Scope: "admin", TTL: time.Minute, Issuer: "i", Audience: "a",
		AccountClaim: "tenant",
	}
	text, err := MintHS256(hmacSecret, m, noon)
	require.NoError(t, err)
	identity, err := v.Verify(t.Context(), text, noon)
	require.NoError(t, err)
	require.True(t, identity.May("admin"))
	_, err = v.Verify(t.Context(), text, noon.Add(2*time.Minute))
	require.Error(t, err)
	for _, bad := range []Minting{{Account: "a b", Subject: "s", TTL: 1}, {Account: "a", TTL: 1}, {
		Account: "a", Subject: "s",
	}} {
		_, err := MintHS256(hmacSecret, bad, noon)
		require.Error(t, err)
	}
}

func FuzzVerify(f *testing.F) {
	v, err := NewHS256(hmacSecret, VerifierOptions{})
	require.NoError(f, err)
	good, err := MintHS256(hmacSecret, Minting{Account: "acme", Subject: "ann", TTL: time.Hour}, noon)
	require.NoError(f, err)
	for _, seed := range []string{good, "", "..", "a.b.c", good + ".", strings.ToUpper(good)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if identity, err := v.Verify(t.Context(), text, noon); err == nil &&
			(text != good || identity.Account != "acme") {
			t.Fatalf("%q is accepted as %v", text, identity)
		}
	})
}

// keyServer publishes keys, and counts requests.
type keyServer struct {
	*httptest.Server
	asked atomic.Int64
	down  atomic.Bool
	held  atomic.Pointer[chan struct{}] // answers wait until it is closed
	set   atomic.Pointer[[]byte]
}

func newKeyServer(t *testing.T) *keyServer {
	t.Helper()
	k := &keyServer{}
	k.set.Store(&[]byte{'{', '}'})
	k.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k.asked.Add(1)
		if k.down.Load() {
			http.Error(w, "down", http.StatusInternalServerError)
			return
		}
		if held := k.held.Load(); held != nil {
			select {
			case <-*held:
			case <-r.Context().Done():
			}
		}
		_, _ = w.Write(*k.set.Load())
	}))
	t.Cleanup(k.Close)
	return k
}

// publish sets the public keys of the server, by id.
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
		jwk, err := jwkset.NewJWKFromKey(key, jwkset.JWKOptions{
			Metadata: jwkset.JWKMetadataOptions{KID: id, USE: use, ALG: alg},
			Marshal:  jwkset.JWKMarshalOptions{Private: true},
		})
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
		"rsa": &rsaKey.PublicKey, "enc": &ecKey.PublicKey, "oct": hmacSecret, "": &rsaKey.PublicKey,
		"ps512": &rsaKey.PublicKey,
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
		"no key id":       signed(t, jwt.SigningMethodPS256, rsaKey, claimsOf(nil), nil),
		"no use":          signed(t, jwt.SigningMethodES256, ecKey, claimsOf(nil), nil),
		"an empty key id": signed(t, jwt.SigningMethodRS256, rsaKey, claimsOf(nil), kid("")),
		"null":            signed(t, jwt.SigningMethodRS256, rsaKey, claimsOf(nil), map[string]any{"kid": nil}),
		"a key id in a list": signed(t, jwt.SigningMethodRS256, rsaKey, claimsOf(nil), map[string]any{
			"kid": []string{"rsa"},
		}),
	} {
		_, err = v.Verify(ctx, text, noon)
		require.ErrorContains(t, err, "no key id (kid)", name)
		require.ErrorIs(t, err, errForged, name)
	}

	asked := server.asked.Load()
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: mustMarshal(t, &rsaKey.PublicKey)})
	for name, text := range map[string]string{
		"HS256 with the public key as the secret": signed(t, jwt.SigningMethodHS256, publicPEM, claimsOf(nil),
			kid("rsa")),
		"HS256 with a published secret": signed(t, jwt.SigningMethodHS256, hmacSecret, claimsOf(nil),
			kid("oct")),
		"a key for another algorithm": signed(t, jwt.SigningMethodRS256, rsaKey, claimsOf(nil),
			kid("ps512")),
		"a key for another use": signed(t, jwt.SigningMethodES256, ecKey, claimsOf(nil), kid("enc")),
		"the id of another key": signed(t, jwt.SigningMethodES256, ecKey, claimsOf(nil), kid("rsa")),
		"a key id of another type": signed(t, jwt.SigningMethodRS256, rsaKey, claimsOf(nil),
			map[string]any{"kid": 7}),
	} {
		_, err := v.Verify(ctx, text, noon)
		require.ErrorIs(t, err, errForged, name)
	}
	require.Equal(t, asked, server.asked.Load(), "none of these JWTs causes a fetch of keys")

	server.publish(t, map[string]any{"rsa": &rsaKey.PublicKey, "ec": &ecKey.PublicKey})
	_, err = v.Verify(ctx, signed(t, jwt.SigningMethodES256, ecKey, claimsOf(nil), kid("ec")), noon)
	require.NoError(t, err, "an unknown key id causes a fetch of keys")

	asked = server.asked.Load()
	for _, unknown := range []string{"a", "b", "c", "d"} {
		_, err = v.Verify(ctx, signed(t, jwt.SigningMethodES256, ecKey, claimsOf(nil), kid(unknown)), noon)
		require.ErrorIs(t, err, errForged)
	}
	require.Equal(t, asked, server.asked.Load(), "fetches are rate limited")
	server.down.Store(true)
	_, err = v.Verify(ctx, good, noon)
	require.NoError(t, err, "cached keys are used while the server is down")
}

// A JWT of a key set had every scope but admin when its issuer writes scopes into another claim than scope, or none.
func TestJWKS_Scopes(t *testing.T) {
	t.Parallel()
	server := newKeyServer(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	server.publish(t, map[string]any{"ec": &key.PublicKey})
	verifier := func(o VerifierOptions) *Verifier {
		v, err := NewJWKS(t.Context(), server.URL, o, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		return v
	}
	strict := verifier(VerifierOptions{AdminScope: "leadlog-admin"})
	lenient := verifier(VerifierOptions{DefaultScope: "leads:read  audit:read"})
	for name, c := range map[string]struct {
		v      *Verifier
		claims jwt.MapClaims
		want   []string // nil: the JWT is refused
	}{
		"scope": {
			strict, jwt.MapClaims{"scope": "leads:read leads:write openid"}, []string{"leads:read", "leads:write"},
		},
		"scp, a list": {
			strict, jwt.MapClaims{"scp": []string{"leads:read", "offline_access"}}, []string{"leads:read"},
		},
		"scp, text": {
			strict, jwt.MapClaims{"scp": "leads:read leads:write"}, []string{"leads:read", "leads:write"},
		},
		"permissions": {
			strict, jwt.MapClaims{"permissions": []string{"audit:read", "leadlog-admin"}},
			[]string{"audit:read", "admin"},
		},
		"scope first": {
			strict, jwt.MapClaims{"scope": "openid", "permissions": []string{"audit:read"}}, []string{},
		},
		"an empty scope":           {lenient, jwt.MapClaims{"scope": ""}, []string{}},
		"an empty list":            {lenient, jwt.MapClaims{"scp": []string{}}, []string{}},
		"none":                     {strict, jwt.MapClaims{}, []string{}},
		"null":                     {strict, jwt.MapClaims{"scope": nil}, []string{}},
		"none, with the default":   {lenient, jwt.MapClaims{}, []string{"leads:read", "audit:read"}},
		"scopes, with the default": {lenient, jwt.MapClaims{"scp": "leads:write"}, []string{"leads:write"}},
		"an object":                {strict, jwt.MapClaims{"scope": map[string]any{"leads:read": true}}, nil},
		"a list with a number":     {strict, jwt.MapClaims{"permissions": []any{"leads:read", 7}}, nil},
	} {
		claims := claimsOf(func(all jwt.MapClaims) { maps.Copy(all, c.claims) })
		identity, err := c.v.Verify(t.Context(),
			signed(t, jwt.SigningMethodES256, key, claims, map[string]any{"kid": "ec"}), noon)
		if c.want == nil {
			require.Error(t, err, name)
			require.NotErrorIs(t, err, errForged, name)
			continue
		}
		require.NoError(t, err, name)
		require.ElementsMatch(t, c.want, identity.Scopes(), name)
	}
}

// An issuer with one key that jwkset rejects, as a certificate that does not match or a use that is not registered, was
// not used at all.
func TestJWKS_IgnoresInvalidKey(t *testing.T) {
	t.Parallel()
	server := newKeyServer(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	server.publish(t, map[string]any{"k": &key.PublicKey})
	good := strings.TrimSuffix(strings.TrimPrefix(string(*server.set.Load()), `{"keys":[`), `]}`)
	for _, invalid := range []string{
		`null`, `5`, `{}`, `{"kty":"RSA","kid":"x","e":"AQAB"}`,
		`{"kty":"EC","kid":"x","crv":"P-256","x":"AAAA","y":"AAAA"}`,
		`{"kty":"OKP","kid":"x","crv":"Ed25519","x":"AAAA"}`, `{"kty":"RSA","kid":5,"n":"AAAA","e":"AQAB"}`,
		`{"kty":"AKP","kid":"x","pub":"AAAA"}`, strings.Replace(good, `"use":"sig"`, `"use":"tls"`, 1),
		strings.Replace(good, `"use"`, `"x5c":["AAAA"],"use"`, 1),
		strings.Replace(good, `"use"`, `"key_ops":"verify","use"`, 1),
	} {
		set := []byte(`{"keys":[` + invalid + `,` + good + `]}`)
		server.set.Store(&set)
		var log bytes.Buffer
		v, err := NewJWKS(t.Context(), server.URL, VerifierOptions{}, slog.New(slog.NewTextHandler(&log, nil)))
		require.NoError(t, err)
		_, err = v.Verify(t.Context(),
			signed(t, jwt.SigningMethodES256, key, claimsOf(nil), map[string]any{"kid": "k"}), noon)
		require.NoError(t, err, invalid)
		require.NotContains(t, log.String(), "not fetched", invalid)
		if strings.Contains(invalid, "RSA") {
			require.Contains(t, log.String(), "key 1: ", invalid)
		}
	}
}

func TestJWKS_SharesKeyID(t *testing.T) {
	t.Parallel()
	server := newKeyServer(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	server.publish(t, map[string]any{"k": &key.PublicKey})
	ec := strings.TrimSuffix(string(*server.set.Load()), `]}`)
	server.publish(t, map[string]any{"k": &other.PublicKey})
	set := []byte(ec + `,` + strings.TrimPrefix(string(*server.set.Load()), `{"keys":[`))
	server.set.Store(&set)
	v, err := NewJWKS(t.Context(), server.URL, VerifierOptions{}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	for _, text := range []string{
		signed(t, jwt.SigningMethodES256, key, claimsOf(nil), map[string]any{"kid": "k"}),
		signed(t, jwt.SigningMethodRS256, other, claimsOf(nil), map[string]any{"kid": "k"}),
	} {
		_, err = v.Verify(t.Context(), text, noon)
		require.NoError(t, err)
	}
}

func TestJWKS_ConcurrentRotation(t *testing.T) {
	t.Parallel()
	server := newKeyServer(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	server.publish(t, map[string]any{"old": &key.PublicKey})
	k, err := newKeySet(t.Context(), server.URL, slog.New(slog.DiscardHandler), keySetPace{
		timeout: time.Minute, wait: time.Minute, every: time.Nanosecond,
	})
	require.NoError(t, err)
	find := func(ctx context.Context, kid string) error {
		_, err := k.find(ctx, kid, jwt.SigningMethodES256.Alg())
		return err
	}

	server.publish(t, map[string]any{"old": &key.PublicKey, "new": &key.PublicKey})
	held := make(chan struct{})
	server.held.Store(&held)
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error)
	go func() { left <- find(ctx, "new") }()
	require.Eventually(t, func() bool { return server.asked.Load() == 2 }, time.Minute, time.Millisecond)
	leave()
	require.ErrorIs(t, <-left, errNoKeys)
	require.NoError(t, find(t.Context(), "old"), "known keys do not wait")
	k.pace.wait = 100 * time.Millisecond
	waiting := make(chan error)
	for range 10 {
		go func() { waiting <- find(t.Context(), "new") }()
	}
	require.ErrorIs(t, find(t.Context(), "new"), errNoKeys, "a slow server makes no JWT a forged one")
	for range 10 {
		require.ErrorIs(t, <-waiting, errNoKeys)
	}
	k.pace.wait = time.Minute
	ended := k.fetch(t.Context(), true)
	close(held)
	<-ended
	require.EqualValues(t, 2, server.asked.Load(), "all callers wait for one fetch")
	require.NoError(t, find(t.Context(), "new"), "the fetch continues without callers")
	require.ErrorIs(t, find(t.Context(), "unknown"), errUnknownKey)

	none := []byte(`{"keys":[]}`)
	for _, answer := range []string{
		`{"error":"maintenance"}`, `null`, `[]`, `<html>`, ``, `{"keys":null}`, `{"keys":{}}`,
	} {
		raw := []byte(answer)
		server.set.Store(&raw)
		require.ErrorIs(t, find(t.Context(), "unknown"), errNoKeys, answer)
		require.NoError(t, find(t.Context(), "new"), answer)
	}
	server.set.Store(&none)
	require.ErrorIs(t, find(t.Context(), "unknown"), errNoKeys)
	require.Error(t, find(t.Context(), "new"), "removed")
}

func TestJWKS_RetriesServerDownAtStart(t *testing.T) {
	t.Parallel()
	server := newKeyServer(t)
	server.down.Store(true)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	v, err := newJWKS(ctx, server.URL, VerifierOptions{}, slog.New(slog.DiscardHandler), keySetPace{
		timeout: time.Minute, wait: time.Minute, every: 50 * time.Millisecond,
	})
	require.NoError(t, err)
	_, err = v.Verify(ctx, signed(t, jwt.SigningMethodES256, key, claimsOf(nil), map[string]any{"kid": "k"}), noon)
	require.ErrorIs(t, err, errNoKeys)
	_, err = v.Verify(ctx, signed(t, jwt.SigningMethodHS256, hmacSecret, claimsOf(nil), nil), noon)
	require.ErrorIs(t, err, errForged, "a forged JWT is rejected without keys")
	server.publish(t, map[string]any{"k": &key.PublicKey})
	server.down.Store(false)
	good := signed(t, jwt.SigningMethodES256, key, claimsOf(nil), map[string]any{"kid": "k"})
	require.Eventually(t, func() bool {
		_, err := v.Verify(ctx, good, noon)
		return err == nil
	}, time.Minute, 10*time.Millisecond)
}

func TestJWKS_RequiresHTTPURL(t *testing.T) {
	t.Parallel()
	closed := httptest.NewTLSServer(http.NotFoundHandler())
	closed.Close()
	var log bytes.Buffer
	_, err := NewJWKS(t.Context(), closed.URL+"/hunter2?key=hunter2", VerifierOptions{},
		slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	require.Contains(t, log.String(), "connection refused")
	require.Contains(t, log.String(), closed.Listener.Addr().String())
	require.NotContains(t, log.String(), "hunter2")
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
	_, err = v.Verify(t.Context(),
		signed(t, jwt.SigningMethodES256, key, claimsOf(nil), map[string]any{"kid": "k"}), noon)
	require.ErrorIs(t, err, errNoKeys)
}

func mustMarshal(t *testing.T, key any) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	require.NoError(t, err)
	return der
}
