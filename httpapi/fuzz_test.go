package httpapi

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	stdjson "encoding/json"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/lead"
)

// FuzzSignedJWT signs any header and claims with the right key. An accepted JWT must have the required claims as
// encoding/json decodes them.
func FuzzSignedJWT(f *testing.F) {
	for _, seed := range [][2]string{
		{`{"alg":"HS256"}`, `{"sub":"ann","account_id":"acme","exp":4102444800}`},
		{`{"alg":"HS256","crit":["x"]}`, `{"sub":"ann","account_id":"acme","exp":4102444800}`},
		{`{"alg":"none"}`, `{"sub":"ann","account_id":"acme","exp":4102444800}`},
		{
			`{"alg":"HS384","alg":"HS256"}`,
			`{"exp":1e10,"exp":"x","scope":"admin leads:read","account_id":"a","sub":"b"}`,
		},
		{`{"alg":"HS256","typ":"JWT"}`, `{"sub":"ann","account_id":"a b","exp":"4102444800","iat":-1,"nbf":9e99}`},
		{`{"alg":["HS256"]}`, `{"sub":{"a":1},"account_id":null,"exp":null,"scope":null}`},
	} {
		f.Add(seed[0], seed[1])
	}
	v, err := NewHS256(hmacSecret, VerifierOptions{})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, header, claims string) {
		text := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." +
			base64.RawURLEncoding.EncodeToString([]byte(claims))
		signature, err := jwt.SigningMethodHS256.Sign(text, hmacSecret)
		require.NoError(t, err)
		identity, err := v.Verify(t.Context(), text+"."+base64.RawURLEncoding.EncodeToString(signature), noon)
		if err != nil {
			require.Less(t, len(err.Error()), 300, "the error does not contain the input")
			return
		}
		head, decoded := exactNames(t, header), exactNames(t, claims)
		require.Equal(t, "HS256", head["alg"])
		require.NotContains(t, head, "crit")
		require.Contains(t, decoded, "exp", "a JWT without exp is not accepted")
		require.Greater(t, decoded["exp"], float64(noon.Add(-leeway).Unix())-1)
		if nbf, given := decoded["nbf"]; given && nbf != nil {
			require.LessOrEqual(t, nbf, float64(noon.Add(leeway).Unix())+1)
		}
		require.True(t, account.ValidID(identity.Account))
		require.NotEmpty(t, identity.Subject)
		require.LessOrEqual(t, utf8.RuneCountInString(identity.Subject), account.MaxSubject)
		require.False(t, identity.all && identity.May(adminScope))
		require.True(t,
			strings.Contains(claims, "scope") || !identity.May(adminScope) || strings.Contains(claims, `\u`))
	})
}

// exactNames holds an object's members. Decoding into a struct would accept names in other letter case.
func exactNames(t *testing.T, object string) (members map[string]any) {
	require.NoError(t, stdjson.Unmarshal([]byte(object), &members))
	return members
}

// FuzzHeaders reads arbitrary headers. Values are truncated for events and logs, and a client address from an untrusted
// proxy is ignored.
func FuzzHeaders(f *testing.F) {
	f.Add("192.0.2.9, 10.0.0.1", "curl/8", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		"text/csv;q=0.1, */*", "key")
	f.Add("[2001:db8::1%eth0]:1, ,::ffff:1.2.3.4", "\xff\x00", "00-0-0-0", "a/b;q=NaN", strings.Repeat("k", 256))
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	f.Fuzz(func(t *testing.T, forwarded, agent, trace, accept, key string) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header["X-Forwarded-For"] = []string{forwarded}
		r.RemoteAddr = "192.0.2.1:5"
		require.Equal(t, "192.0.2.1", clientAddress(r, trusted).String())
		r.RemoteAddr = "10.0.0.1:5"
		client := clientAddress(r, trusted)
		require.True(t, client.IsValid() && client.Zone() == "" && !client.Is4In6())
		require.Less(t, len(addressBlock(client)), 50)

		require.True(t, utf8.ValidString(userAgent(agent)))
		require.LessOrEqual(t, len(userAgent(agent)), 3*lead.MaxUserAgent)
		if kept := traceParent(trace); kept != "" {
			require.Equal(t, trace, kept)
			require.Len(t, kept, 55)
		}
		require.Contains(t, []string{mediaJSON, mediaCSV, mediaNDJSON, mediaParquet},
			preferred([]string{accept}, mediaJSON, mediaCSV, mediaNDJSON, mediaParquet))
		got, err := idempotencyKey(http.Header{idempotencyHeader: {key}})
		if err == nil {
			require.True(t, got == key && len(key) <= maxIdempotencyKey && visible(key))
		}
		r.Header[requestIDHeader] = []string{key}
		id, own := newRequestIDs(func() time.Time { return noon }).of(r)
		require.True(t, visible(id) && len(id) <= maxRequestID)
		require.Equal(t, id != key, own == id)
	})
}
