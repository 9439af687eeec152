package contact

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestParseEmail_Canonical(t *testing.T) {
	t.Parallel()
	local64 := strings.Repeat("a", 64)
	label63 := strings.Repeat("b", 63)
	longest := local64 + "@" + label63 + "." + label63 + "." + strings.Repeat("c", 61)
	require.Len(t, longest, 254)
	for _, c := range []struct{ name, raw, want string }{
		{"plain", "asha@example.com", "asha@example.com"},
		{"capitals", "Asha.RAO@Example.COM", "asha.rao@example.com"},
		{"white space around", "\t asha@example.com\u00a0\r\n", "asha@example.com"},
		{"a tag is kept", "asha+crm@gmail.com", "asha+crm@gmail.com"},
		{"dots are kept", "a.s.h.a@gmail.com", "a.s.h.a@gmail.com"},
		{"every atom character", "!#$%&'*+-/=?^_`{|}~@example.com", "!#$%&'*+-/=?^_`{|}~@example.com"},
		{"one letter", "a@b.c", "a@b.c"},
		{"digits", "1@1.in", "1@1.in"},
		{"domain with digits at the end", "a@example.c0", "a@example.c0"},
		{"hyphens in third place", "a@r3---sn.example.com", "a@r3---sn.example.com"},
		{"subdomains", "a@mail.eu-west.example.co.in", "a@mail.eu-west.example.co.in"},
		{"own script", "asha@BÜCHER.example", "asha@xn--bcher-kva.example"},
		{"own script, capitals before the @", "Asha@bücher.example", "asha@xn--bcher-kva.example"},
		{"own script, decomposed", "asha@bu\u0308cher.example", "asha@xn--bcher-kva.example"},
		{"encoded already", "asha@xn--bcher-kva.example", "asha@xn--bcher-kva.example"},
		{"encoded already, in capitals", "asha@XN--BCHER-KVA.EXAMPLE", "asha@xn--bcher-kva.example"},
		{"sharp s is no ss", "a@straße.de", "a@xn--strae-oqa.de"},
		{"Devanagari", "a@उदाहरण.भारत", "a@xn--p1b6ci4b4b3a.xn--h2brj9c"},
		{"ideographic full stop", "a@例子。中国", "a@xn--fsqu00a.xn--fiqs8s"},
		{"full-width domain", "a@ｅｘａｍｐｌｅ．ｃｏｍ", "a@example.com"},
		{"longest", longest, longest},
		{"invisible characters in front", "\u200b\ufeff\u202aasha@example.com", "asha@example.com"},
		{"invisible characters behind", "asha@example.com\u202c\ufe0f \u3164\ufffc", "asha@example.com"},
		{"encoded spaces", "%20%20asha@example.com%20", "asha@example.com"},
		{"link", "mailto:asha@example.com", "asha@example.com"},
		{"link in capitals, with a space", "MailTo: asha@example.com", "asha@example.com"},
		{"link with a subject", "mailto:asha@example.com?subject=Hi%20there", "asha@example.com"},
		{"link in encoded spaces", "%20mailto:%20asha@example.com%20", "asha@example.com"},
		{"per cent and question mark are atom characters", "a%20b?@example.com", "a%20b?@example.com"},
	} {
		got, err := ParseEmail(c.raw)
		require.NoError(t, err, c.name)
		require.Equal(t, c.want, got, c.name)
	}
}

func TestParseEmail_Refuses(t *testing.T) {
	t.Parallel()
	label63 := strings.Repeat("b", 63)
	for name, raw := range map[string]string{
		"nothing":                               "",
		"white space":                           " ",
		"no at":                                 "asha.example.com",
		"no local part":                         "@example.com",
		"no domain":                             "asha@",
		"two ats":                               "asha@rao@example.com",
		"no dot in the domain":                  "asha@localhost",
		"leading dot":                           ".asha@example.com",
		"trailing dot before the at":            "asha.@example.com",
		"doubled dot":                           "asha..rao@example.com",
		"empty label":                           "a@iana..com",
		"leading empty label":                   "a@.iana.org",
		"trailing empty label":                  "a@iana.org.",
		"trailing ideographic full stop":        "a@iana.org。",
		"empty label of two scripts":            "a@iana。.org",
		"label that begins with -":              "a@-iana.org",
		"label that ends with -":                "a@iana-.org",
		"own script, ends with -":               "a@bücher-.example",
		"underscore in the domain":              "a@my_host.com",
		"label of 64":                           "a@" + label63 + "b.com",
		"local part of 65":                      strings.Repeat("a", 65) + "@example.com",
		"quoted":                                `"asha rao"@example.com`,
		"comment":                               "asha(home)@example.com",
		"display name":                          "Asha <asha@example.com>",
		"angle brackets":                        "<asha@example.com>",
		"link of two addresses":                 "mailto:a@example.com,b@example.com",
		"encoded spaces only":                   "%20%20",
		"link of nothing":                       "mailto:?",
		"invisible character inside":            "as\u200bha@example.com",
		"two addresses":                         "a@example.com,b@example.com",
		"two addresses with a space":            "a@example.com b@example.com",
		"address literal":                       "a@[192.0.2.1]",
		"IPv6 literal":                          "a@[IPv6:2001:db8::1]",
		"bare IPv4 address":                     "a@192.0.2.1",
		"all-digit top-level domain":            "a@example.123",
		"top-level domain of full-width digits": "a@example.１２３",
		"port":                                  "a@example.com:25",
		"space inside":                          "as ha@example.com",
		"line break inside":                     "asha@example.com\r\nBcc: x@example.com",
		"NUL":                                   "asha\x00@example.com",
		"non-ASCII local part":                  "josé@example.com",
		"Kelvin sign before the at":             "\u212aim@example.com",
		"full-width at":                         "asha＠example.com",
		"full-width at in the domain":           "asha@b＠example.com",
		"invalid UTF-8 before the at":           "a\xff@example.com",
		"invalid UTF-8 at the end":              "a@example.com\xa4",
		"invalid UTF-8 in the domain":           "a@exa\xffmple.com",
		"punycode of nothing":                   "a@xn--.com",
		"punycode of plain ASCII":               "a@xn--example-.com",
		"broken punycode":                       "a@xn--\u007e\u007e.com",
		"punycode of a capital letter":          "a@xn--bcher-2pa.com",
		"mixed directions":                      "a@אa.com",
		"a label of a joiner alone":             "a@\u200d.com",
	} {
		got, err := ParseEmail(raw)
		require.EqualError(t, err, "is not a valid email address", "%s: got %s", name, got)
		require.Empty(t, got, name)
	}
}

func TestParseEmail_TooLong(t *testing.T) {
	t.Parallel()
	label63 := strings.Repeat("b", 63)
	for name, raw := range map[string]string{
		"255 octets": strings.Repeat("a", 64) + "@" + label63 + "." + label63 + "." +
			strings.Repeat("c", 62),
		"255 octets once encoded":       strings.Repeat("a", 64) + "@" + strings.Repeat("é.", 40) + "example.com",
		"length checked before parsing": strings.Repeat("a", 1<<20) + "@example.com",
	} {
		_, err := ParseEmail(raw)
		require.EqualError(t, err, "must be an email address of at most 254 characters", name)
	}
}

func requireEmailLaws(t require.TestingT, raw string) {
	got, err := ParseEmail(raw)
	if err != nil {
		require.Empty(t, got)
		return
	}
	require.LessOrEqual(t, len(got), 254)
	const atom = "[a-z0-9!#$%&'*+/=?^_`{|}~-]+"
	const label = `[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?`
	require.Regexp(t, regexp.MustCompile(`^`+atom+`(?:\.`+atom+`)*@(?:`+label+`\.)+`+label+`$`), got)
	require.NotRegexp(t, `\.[0-9]+$`, got)
	again, err := ParseEmail(got)
	require.NoError(t, err, "%q", raw)
	require.Equal(t, got, again, "%q", raw)
	upper, err := ParseEmail(strings.ToUpper(got))
	require.NoError(t, err, "%q", raw)
	require.Equal(t, got, upper, "%q", raw)
}

func TestParseEmail_Idempotent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		requireEmailLaws(t, rapid.OneOf(
			rapid.StringMatching(`[ ]?[A-Za-z0-9.+_-]{1,12}@[A-Za-z0-9.-]{1,12}\.[A-Za-z0-9]{1,4}[ .]?`),
			rapid.StringMatching(`(%20|mailto:|[ \x{200b}]){0,3}[a-z%20]{1,4}@[a-z]{1,3}\.[a-z]{2}(%20|\?[a-z]|[ `+
				`\x{fe0f}]){0,3}`),
			rapid.StringMatching(
				`[a-z]{1,3}@(xn--[a-z0-9-]{1,8}|[a-zà-ÿĀ-ſα-ωа-яא-ת。-]{1,6})\.[a-zа-я]{1,3}`,
			),
			rapid.String(),
		).Draw(t, "raw"))
	})
}

func FuzzParseEmail(f *testing.F) {
	for _, raw := range []string{
		"asha@example.com", " Asha+tag@Example.COM ", "a@bücher.example", "a@xn--bcher-kva.example", "a@iana..com",
		"a@xn--.com", "a@उदाहरण.भारत", "a@例子。中国", "a@\u200d.com", "a@אב.com",
		"\u212a@k.com", "a@r3---sn.com", "a@xn--a.xn--b", "a@ß.ſ", "\xff@\xff.com", "0@0.0\xa4",
		"%20mailto:%20a@b.c?x=%20", "mailto:mailto:", "\u200b%20\ufeffa@b.c",
	} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) { requireEmailLaws(t, raw) })
}
