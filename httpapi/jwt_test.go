package httpapi

import (
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"
)

var (
	hmacSecret = []byte("0123456789abcdef0123456789abcdef")
	noon       = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
)

// claimsOf are good claims, changed.
func claimsOf(change func(jwt.MapClaims)) jwt.MapClaims {
	claims := jwt.MapClaims{
		"sub": "ann", "account_id": "acme", "exp": noon.Add(time.Hour).Unix(), "iss": "https://issuer", "aud": "leadlog",
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
	require.False(t, identity.May("admin"), "nobody is an administrator for want of scopes")

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
	require.False(t, none.May("leads:read"), "an empty scope names nothing")
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
		forged bool // as opposed to signed by the issuer and not good for us
	}{
		"alg none":                   {signed(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, claimsOf(nil), nil), true},
		"HS384":                      {signed(t, jwt.SigningMethodHS384, hmacSecret, claimsOf(nil), nil), true},
		"another secret":             {signed(t, jwt.SigningMethodHS256, []byte("x0123456789abcdef0123456789abcde"), claimsOf(nil), nil), true},
		"no signature":               {good[:strings.LastIndexByte(good, '.')+1], true},
		"crit":                       {signed(t, jwt.SigningMethodHS256, hmacSecret, claimsOf(nil), map[string]any{"crit": []string{"exp"}}), true},
		"9 KiB":                      {hs(func(c jwt.MapClaims) { c["pad"] = strings.Repeat("x", 7<<10) }), true},
		"no JWT":                     {"hello", true},
		"three empty parts":          {"..", true},
		"no exp":                     {hs(func(c jwt.MapClaims) { delete(c, "exp") }), false},
		"expired":                    {hs(func(c jwt.MapClaims) { c["exp"] = noon.Add(-31 * time.Second).Unix() }), false},
		"not valid yet":              {hs(func(c jwt.MapClaims) { c["nbf"] = noon.Add(31 * time.Second).Unix() }), false},
		"never valid":                {hs(func(c jwt.MapClaims) { c["nbf"] = 1e300 }), false},
		"another issuer":             {hs(func(c jwt.MapClaims) { c["iss"] = "https://other" }), false},
		"no issuer":                  {hs(func(c jwt.MapClaims) { delete(c, "iss") }), false},
		"another audience":           {hs(func(c jwt.MapClaims) { c["aud"] = []string{"other"} }), false},
		"no audience":                {hs(func(c jwt.MapClaims) { delete(c, "aud") }), false},
		"no account":                 {hs(func(c jwt.MapClaims) { delete(c, "account_id") }), false},
		"an account that is no text": {hs(func(c jwt.MapClaims) { c["account_id"] = 7 }), false},
		"an account with a slash":    {hs(func(c jwt.MapClaims) { c["account_id"] = "a/b" }), false},
		"nobody":                     {hs(func(c jwt.MapClaims) { delete(c, "sub") }), false},
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
	require.NoError(t, err, "clocks differ by some seconds")
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
	m := Minting{Account: "acme", Subject: "ann", Scope: "admin", TTL: time.Minute, Issuer: "i", Audience: "a", AccountClaim: "tenant"}
	text, err := MintHS256(hmacSecret, m, noon)
	require.NoError(t, err)
	identity, err := v.Verify(t.Context(), text, noon)
	require.NoError(t, err)
	require.True(t, identity.May("admin"))
	_, err = v.Verify(t.Context(), text, noon.Add(2*time.Minute))
	require.Error(t, err)
	for _, bad := range []Minting{{Account: "a b", Subject: "s", TTL: 1}, {Account: "a", TTL: 1}, {Account: "a", Subject: "s"}} {
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
		if identity, err := v.Verify(t.Context(), text, noon); err == nil && (text != good || identity.Account != "acme") {
			t.Fatalf("%q lets %v in", text, identity)
		}
	})
}
