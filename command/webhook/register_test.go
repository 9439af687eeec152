package webhook

import (
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/eventstore/event"
)

// Settings under which a URL is accepted.
const (
	never   = "never"
	private = "with private targets only"
	always  = "always"
)

func TestRegister_URLs(t *testing.T) {
	t.Parallel()
	path2048 := "https://example.com/" + strings.Repeat("a", 2048-len("https://example.com/"))
	require.Len(t, path2048, 2048)
	for _, c := range []struct{ name, url, accepted string }{
		{"https", "https://hooks.example.com/leads?x=1&y=2", always},
		{"scheme in capitals", "HTTPS://EXAMPLE.COM/", always},
		{"no path", "https://example.com", always},
		{"port", "https://example.com:8443/", always},
		{"usual port", "https://example.com:443/", always},
		{"empty port", "https://example.com:/", always},
		{"public IPv4 address", "https://93.184.215.14/", always},
		{"public IPv6 address", "https://[2606:2800:21f:cb07:6820:80da:af6b:8b2c]/", always},
		{"name that does not resolve", "https://no-such-host.invalid/", always},
		{"non-ASCII host", "https://bücher.example/", always},
		{"punycode host", "https://xn--bcher-kva.example/", always},
		{"non-ASCII path", "https://example.com/नमस्ते", always},
		{"trailing dot", "https://example.com./", always},
		{"name that begins with a digit", "https://1password.example/", always},
		{"name with a number in the middle", "https://a.7.example/", always},
		{"name that contains localhost", "https://localhost.example.com/", always},
		{"name that ends like localhost", "https://my.notlocalhost/", always},
		{"longest", path2048, always},
		{"longest, in characters and not bytes", "https://example.com/" + strings.Repeat("é", 2028), always},

		{"highest port", "https://example.com:65535/", private},
		{"port of another service", "https://example.com:22/", private},
		{"port of http", "https://example.com:80/", private},
		{"http", "http://example.com/", private},
		{"http in capitals", "HTTP://example.com/", private},
		{"localhost", "https://localhost/", private},
		{"one label", "https://intranet/", private},
		{"one label with a trailing dot", "https://vault./", private},
		{"under local", "https://printer.local/", private},
		{"under local in capitals", "https://Printer.LOCAL:8443/", private},
		{"under internal", "https://metadata.google.internal/", private},
		{"under internal with a trailing dot", "https://vault.internal./", private},
		{"under internal in full-width letters", "https://vault.ｉｎｔｅｒｎａｌ/", private},
		{"under localdomain", "https://localhost.localdomain/", private},
		{"ends like internal", "https://hooks.notinternal/", always},
		{"internal in the middle", "https://internal.example.com/", always},
		{"localhost in capitals", "https://LocalHost:8080/", private},
		{"localhost with a trailing dot", "https://localhost./", private},
		{"localhost with two trailing dots", "https://localhost../", private},
		{"under localhost", "https://api.localhost/", private},
		{"localhost in full-width letters", "https://ｌｏｃａｌｈｏｓｔ/", private},
		{"localhost with a zero-width space", "https://local\u200bhost/", private},
		{"loopback", "https://127.0.0.1/", private},
		{"loopback with a port", "http://127.0.0.1:9000/", private},
		{"loopback with a trailing dot", "https://127.0.0.1./", private},
		{"loopback with two trailing dots", "https://127.0.0.1../", private},
		{"loopback elsewhere in its network", "https://127.255.255.254/", private},
		{"loopback in circled digits", "https://①②⑦.⓪.⓪.①/", private},
		{"loopback with ideographic full stops", "https://127。0。0。1/", private},
		{"loopback, IPv6", "https://[::1]/", private},
		{"loopback, IPv6 in full", "https://[0:0:0:0:0:0:0:1]/", private},
		{"loopback, IPv4 in IPv6", "https://[::ffff:127.0.0.1]/", private},
		{"loopback, IPv4 in IPv6 in hex", "https://[::ffff:7f00:1]/", private},
		{"loopback, the older IPv4 in IPv6", "https://[::127.0.0.1]/", private},
		{"loopback by NAT64", "https://[64:ff9b::7f00:1]/", private},
		{"loopback by 6to4", "https://[2002:7f00:1::]/", private},
		{"unspecified", "https://0.0.0.0/", private},
		{"unspecified, IPv6", "https://[::]/", private},
		{"private network 10", "https://10.1.2.3/", private},
		{"private network 172.16", "https://172.31.255.255/", private},
		{"private network 192.168", "https://192.168.0.1/", private},
		{"carrier's network", "https://100.64.0.1/", private},
		{"link-local, cloud metadata", "https://169.254.169.254/latest/meta-data", private},
		{"Azure WireServer", "https://168.63.129.16/", private},
		{"link-local, IPv6", "https://[fe80::1]/", private},
		{"cloud metadata, IPv4 in IPv6", "https://[::ffff:169.254.169.254]/", private},
		{"cloud metadata by NAT64", "https://[64:ff9b::a9fe:a9fe]/", private},
		{"cloud metadata by a local NAT64", "https://[64:ff9b:1::a9fe:a9fe]/", private},
		{"cloud metadata by 6to4", "https://[2002:a9fe:a9fe::1]/", private},
		{"cloud metadata by Teredo", "https://[2001:0:a9fe:a9fe::1]/", private},
		{"cloud metadata, IPv6 address", "https://[fd00:ec2::254]/", private},
		{"Azure WireServer, IPv4 in IPv6", "https://[::ffff:168.63.129.16]/", private},
		{"Azure WireServer by NAT64", "https://[64:ff9b::a83f:8110]/", private},
		{"a public address by NAT64", "https://[64:ff9b::5db8:d70e]/", private},
		{"site-local, IPv6", "https://[fec0::1]/", private},
		{"multicast, IPv6", "https://[ff02::1]/", private},
		{"documentation, IPv6", "https://[2001:db8::1]/", private},
		{"documentation", "https://192.0.2.1/", private},
		{"cloud metadata as one number", "https://2852039166/", never},
		{"cloud metadata in hex", "https://0xa9fea9fe/", never},
		{"cloud metadata in octal", "https://0251.0376.0251.0376/", never},
		{"zone without its escape", "https://[fe80::1%eth0]/", never},
		{"unique local, IPv6", "https://[fd00::1]/", private},
		{"broadcast", "https://255.255.255.255/", private},
		{"multicast", "https://224.0.0.1/", private},

		{"nothing", "", never},
		{"no scheme", "example.com/leads", never},
		{"scheme-relative", "//example.com/", never},
		{"path only", "/leads", never},
		{"another scheme", "ftp://example.com/", never},
		{"file", "file:///etc/passwd", never},
		{"script", "javascript:alert(1)", never},
		{"gopher", "gopher://example.com/", never},
		{"one slash", "https:/example.com/", never},
		{"no slash", "https:example.com", never},
		{"no host", "https:///leads", never},
		{"a port and no host", "https://:443/", never},
		{"a dot for a host", "https://./", never},
		{"user name", "https://ann@example.com/", never},
		{"user name and password", "https://ann:secret@example.com/", never},
		{"empty user name", "https://@example.com/", never},
		{"a host behind a user name", "https://example.com@127.0.0.1/", never},
		{"a host behind a backslash", `https://example.com\@127.0.0.1/`, never},
		{"fragment", "https://example.com/#leads", never},
		{"empty fragment", "https://example.com/#", never},
		{"fragment after the host", "https://example.com#@127.0.0.1/", never},
		{"2049 characters", path2048 + "a", never},
		{"port 0", "https://example.com:0/", never},
		{"port beyond 65535", "https://example.com:65536/", never},
		{"port 99999", "https://example.com:99999/", never},
		{"a port of any length", "https://example.com:" + strings.Repeat("9", 40) + "/", never},
		{"port that is no number", "https://example.com:https/", never},
		{"negative port", "https://example.com:-1/", never},
		{"white space before", " https://example.com/", never},
		{"white space after", "https://example.com/\n", never},
		{"space in the host", "https://exa mple.com/", never},
		{"header injection", "https://example.com/\r\nX-Header: 1", never},
		{"NUL", "https://example.com/\x00", never},
		{"control character beyond ASCII", "https://example.com/\u0081", never},
		{"no-break space", "https://example.com/\u00a0", never},
		{"bad escape in the host", "https://%31%32%37.0.0.1/", never},
		{"bad escape in the path", "https://example.com/%zz", never},
		{"bad escape in the query", "https://example.com/?a=%zz", never},
		{"cut escape in the query", "https://example.com/?a=%4", never},
		{"space in the query", "https://example.com/?a b", never},
		{"header injection in the query", "https://example.com/?a\r\nX-Header: 1", never},
		{"2049 characters when it is escaped", path2048[:2043] + "?a=é", never},
		{"bad bracket", "https://[::1/", never},
		{"invalid UTF-8 in the host", "https://\xff.example/", never},

		{"zone", "https://[fe80::1%25eth0]/", never},
		{"zone of a public address", "https://[2606:2800::1%25eth0]/", never},
		{"hex and short", "https://0x7f.1/", never},
		{"hex in capitals", "https://0X7F000001/", never},
		{"hex", "https://0x7f000001/", never},
		{"hex in four parts", "https://0x7f.0x0.0x0.0x1/", never},
		{"hex prefix alone", "https://0x/", never},
		{"one number", "https://2130706433/", never},
		{"one number, with a trailing dot", "https://2130706433./", never},
		{"one number in full-width digits", "https://２１３０７０６４３３/", never},
		{"two numbers", "https://127.1/", never},
		{"three numbers", "https://127.0.1/", never},
		{"octal", "https://0177.0.0.1/", never},
		{"octal, one number", "https://017700000001/", never},
		{"leading zeros", "https://127.0.0.01/", never},
		{"beyond a byte", "https://256.256.256.256/", never},
		{"five numbers", "https://1.2.3.4.5/", never},
		{"a public address as one number", "https://1572395042/", never},
		{"a name ending in a number", "https://example.1/", never},
	} {
		for _, privateTargets := range []bool{false, true} {
			registered, _, err := Registration{URL: c.url}.Register(privateTargets)
			if c.accepted == always || c.accepted == private && privateTargets {
				require.NoError(t, err, c.name)
				require.Equal(t, c.url, registered.URL, "%s: kept as given", c.name)
				continue
			}
			require.Error(t, err, "%s, private targets %v", c.name, privateTargets)
			require.Equal(t, []string{"url"}, fields(t, err), c.name)
			if len(c.url) > len("https://0x/") {
				require.NotContains(t, err.Error(), c.url, "%s: the message repeats the URL", c.name)
			}
		}
	}
}

func TestRegister_EscapesQuery(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		`https://example.com/नमस्ते?q=é&"<>|`:      `https://example.com/नमस्ते?q=%C3%A9&%22%3C%3E%7C`,
		`https://example.com?a[]={%7B}\^` + "`":    `https://example.com?a%5B%5D=%7B%7B%7D%5C%5E%60`,
		`https://example.com/?a=%c3%A9`:            `https://example.com/?a=%c3%A9`,
		`https://example.com/?-._~!$&'()*+,;=:@/?`: `https://example.com/?-._~!$&'()*+,;=:@/?`,
		`https://example.com/?`:                    `https://example.com/?`,
	} {
		registered, _, err := Registration{URL: given}.Register(false)
		require.NoError(t, err, given)
		require.Equal(t, want, registered.URL)
		decided, _, err := live().Update("acme", Change{URL: &given}, false)
		require.NoError(t, err)
		require.Equal(t, want, decided[0].(event.WebhookUpdated).URL)
	}
}

func TestRegister_SchemeMessage(t *testing.T) {
	t.Parallel()
	for privateTargets, want := range map[bool]string{
		false: "must begin with https://", true: "must begin with https:// or http://",
	} {
		_, _, err := Registration{URL: "ftp://example.com/"}.Register(privateTargets)
		require.ErrorContains(t, err, want)
		require.Equal(t, privateTargets, strings.Contains(err.Error(), "http://"))
	}
}

func TestRegister_Events(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name         string
		events, want []string
	}{
		{"no event selects all", nil, []string{"*"}},
		{"an empty list selects all", []string{}, []string{"*"}},
		{"a star", []string{"*"}, []string{"*"}},
		{"a star and other events", []string{"lead.created", "*"}, []string{"*"}},
		{"one", []string{"lead.created"}, []string{"lead.created"}},
		{"patterns", []string{"token.*", "lead.*", "lead.*"}, []string{"lead.*", "token.*"}},
		{
			"duplicates, in any order", []string{"token.deleted", "lead.merged", "token.deleted"},
			[]string{"lead.merged", "token.deleted"},
		},
		{
			"each by name",
			[]string{
				"lead.created", "lead.merged", "lead.updated", "lead.released", "lead.erased", "token.created",
				"token.rotated", "token.expiring", "token.deleted",
			},
			[]string{
				"lead.created", "lead.erased", "lead.merged", "lead.released", "lead.updated", "token.created",
				"token.deleted", "token.expiring", "token.rotated",
			},
		},
	} {
		registered, _, err := Registration{URL: "https://example.com/", Events: c.events}.Register(false)
		require.NoError(t, err, c.name)
		require.Equal(t, c.want, registered.Events, c.name)
	}
	for name, events := range map[string][]string{
		"unknown":           {"lead.sold"},
		"one of two":        {"lead.created", "lead.sold"},
		"stored type":       {"lead.created.v1"},
		"in capitals":       {"Lead.Created"},
		"blank":             {""},
		"a pattern of none": {"sale.*"},
		"a star inside":     {"lead.*ed"},
		"the test delivery": {"webhook.test"},
		"tests by pattern":  {"webhook.*"},
	} {
		_, _, err := Registration{URL: "https://example.com/", Events: events}.Register(false)
		require.Equal(t, []string{"events"}, fields(t, err), name)
	}
}

func TestRegister_KeepsOrderOfEvents(t *testing.T) {
	t.Parallel()
	events := []string{"token.deleted", "lead.merged"}
	_, _, err := Registration{URL: "https://example.com/", Events: events}.Register(false)
	require.NoError(t, err)
	require.Equal(t, []string{"token.deleted", "lead.merged"}, events, "the caller's slice is unchanged")
}

func TestRegister_Description(t *testing.T) {
	t.Parallel()
	registered, _, err := Registration{URL: "https://example.com/", Description: "  to the CRM\n"}.Register(false)
	require.NoError(t, err)
	require.Equal(t, "to the CRM", registered.Description)

	_, _, err = Registration{URL: "https://example.com/", Description: strings.Repeat("é", 500)}.Register(false)
	require.NoError(t, err, "500 characters")
	_, _, err = Registration{URL: "https://example.com/", Description: strings.Repeat("é", 501)}.Register(false)
	require.Equal(t, []string{"description"}, fields(t, err))
}

func TestRegister_CollectsErrors(t *testing.T) {
	t.Parallel()
	_, _, err := Registration{
		URL: "http://localhost", Events: []string{"x"}, Description: strings.Repeat("d", 501),
	}.Register(false)
	require.Equal(t, []string{"url", "events", "description"}, fields(t, err))
}

// fields returns the field names of an error, which must be field.Errors.
func fields(t *testing.T, err error) []string {
	t.Helper()
	var wrong field.Errors
	require.ErrorAs(t, err, &wrong)
	names := make([]string, len(wrong))
	for i, one := range wrong {
		names[i] = one.Field
	}
	return names
}

// parameters returns the unescaped text of a query.
func parameters(t *testing.T, query string) string {
	t.Helper()
	text, err := url.PathUnescape(query)
	require.NoError(t, err)
	return text
}

func FuzzRegisterURL(f *testing.F) {
	for _, seed := range []string{
		"https://example.com/a?b=c", "https://[::1]/", "https://[fe80::1%25eth0]/", "https://0x7f.1/",
		"https://127.0.0.1../", "https://①②⑦.⓪.⓪.①/", "http://user:pw@host:99999/#",
		"https://bücher.example:8443/", "HTTPS://LOCALHOST.", "https://example.com/?b\"",
		"https://example.com/?q=é+%22",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		registered, _, err := Registration{URL: raw}.Register(false)
		_, _, errPrivate := Registration{URL: raw}.Register(true)
		if err != nil {
			require.Equal(t, []string{"url"}, fields(t, err))
			return
		}
		require.NoError(t, errPrivate, "a public URL is also accepted with private targets")
		path, query, _ := strings.Cut(raw, "?")
		sentPath, sentQuery, _ := strings.Cut(registered.URL, "?")
		require.Equal(t, path, sentPath)
		require.Equal(t, parameters(t, query), parameters(t, sentQuery), "escaping keeps what a query says")
		again, _, err := Registration{URL: registered.URL}.Register(false)
		require.NoError(t, err)
		require.Equal(t, registered.URL, again.URL, "a URL is escaped once")
		u, err := url.Parse(raw)
		require.NoError(t, err)
		require.Equal(t, "https", u.Scheme)
		require.Nil(t, u.User)
		require.Empty(t, u.Fragment)
		require.NotContains(t, raw, "#")
		host := strings.TrimRight(u.Hostname(), ".")
		require.NotEmpty(t, host)
		require.NotEqual(t, "localhost", strings.ToLower(host))
		if addr, err := netip.ParseAddr(host); err == nil {
			require.False(t, addr.Unmap().IsLoopback() || addr.Unmap().IsPrivate() || addr.IsLinkLocalUnicast() ||
				addr.IsUnspecified())
			require.Empty(t, addr.Zone())
		} else {
			require.NotRegexp(t, `(^|\.)(0[xX][0-9a-fA-F]*|[0-9]+)$`, host, "an IPv4 address as a number")
		}
		_, _, err = event.Encode(registered)
		require.NoError(t, err, "an accepted URL can be encoded")
	})
}
