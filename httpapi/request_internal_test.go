package httpapi

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestClientAddress_LastUntrustedHop(t *testing.T) {
	t.Parallel()
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	for name, c := range map[string]struct {
		remote    string
		forwarded []string
		trusted   []netip.Prefix
		want      string
	}{
		"nothing forwarded":                  {"192.0.2.1:5", nil, trusted, "192.0.2.1"},
		"no trusted proxy":                   {"10.0.0.1:5", []string{"192.0.2.9"}, nil, "10.0.0.1"},
		"an untrusted header":                {"192.0.2.1:5", []string{"192.0.2.9"}, trusted, "192.0.2.1"},
		"behind a proxy":                     {"10.0.0.1:5", []string{"192.0.2.9"}, trusted, "192.0.2.9"},
		"an untrusted header behind a proxy": {"10.0.0.1:5", []string{"198.51.100.7, 192.0.2.9"}, trusted, "192.0.2.9"},
		"behind two": {
			"10.0.0.1:5", []string{"198.51.100.7", "192.0.2.9, 10.2.3.4"}, trusted, "192.0.2.9",
		},
		"proxies alone":    {"10.0.0.1:5", []string{"10.0.0.3,10.0.0.2"}, trusted, "10.0.0.3"},
		"garbage":          {"10.0.0.1:5", []string{"192.0.2.9, unknown"}, trusted, "10.0.0.1"},
		"with a port":      {"10.0.0.1:5", []string{"192.0.2.9:1234"}, trusted, "192.0.2.9"},
		"IPv6 with a port": {"[fd00::1]:5", []string{"[2001:db8::1]:1234"}, trusted, "2001:db8::1"},
		"IPv6 in brackets": {"[fd00::1]:5", []string{"[2001:db8::1]"}, trusted, "2001:db8::1"},
		"IPv4 in IPv6": {
			"[::ffff:10.0.0.1]:5", []string{"::ffff:192.0.2.9"}, trusted, "192.0.2.9",
		},
		"a zone":                     {"[fe80::1%eth0]:5", nil, trusted, "fe80::1"},
		"a socket without addresses": {"@", []string{"192.0.2.9"}, trusted, "invalid IP"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = c.remote
		for _, value := range c.forwarded {
			r.Header.Add("X-Forwarded-For", value)
		}
		require.Equal(t, c.want, clientAddress(r, c.trusted).String(), name)
	}
}

func TestClientAddress_IPv6Network(t *testing.T) {
	t.Parallel()
	at := func(text string) string { return addressBlock(netip.MustParseAddr(text)) }
	require.Equal(t, at("2001:db8::1"), at("2001:db8::ffff:ffff:ffff:ffff"))
	require.NotEqual(t, at("2001:db8::1"), at("2001:db8:0:1::1"))
	require.NotEqual(t, at("192.0.2.1"), at("192.0.2.2"))
}

func TestTraceParent_WellFormed(t *testing.T) {
	t.Parallel()
	const good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	require.Equal(t, good, traceParent(good))
	for _, bad := range []string{
		"", good + "-x", strings.ToUpper(good), "ff" + good[2:], good[1:],
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01",
		"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
	} {
		require.Empty(t, traceParent(bad), bad)
	}
}

func TestUserAgent_Truncated(t *testing.T) {
	t.Parallel()
	require.Equal(t, "a\uFFFDb", userAgent("a\xffb"))
	require.LessOrEqual(t, len(userAgent(strings.Repeat("é", 2000))), 1024+2)
}

func TestAccept_PreferredMedia(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]string{
		"": mediaJSON, "*/*": mediaJSON, "text/csv": mediaCSV, "TEXT/CSV; charset=utf-8": mediaCSV, "text/*": mediaCSV,
		"application/x-ndjson": mediaNDJSON, "application/*": mediaJSON, "image/png": mediaJSON,
		"text/csv;q=0.1, application/x-ndjson;q=0.9": mediaNDJSON, "text/csv;q=0": mediaJSON, "text/csv;q=x": mediaJSON,
		"*/*;q=0.1, text/csv": mediaCSV,
	} {
		require.Equal(t, want, preferred([]string{accept}, mediaJSON, mediaCSV, mediaNDJSON), accept)
	}
}
