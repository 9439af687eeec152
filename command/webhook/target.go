package webhook

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"code.dny.dev/ssrf"
	"golang.org/x/net/idna"
)

// maxURL is the longest URL in characters.
const maxURL = 2048

const (
	tooLong   = "must be at most 2048 characters"
	badEscape = "must have two hexadecimal digits after each percent sign"
)

// PublicPorts are the ports that deliveries to public hosts may use.
var PublicPorts = []uint16{443, 8443}

// target returns a URL as it is sent, or why its form is invalid.
func target(raw string, privateTargets bool) (sent, message string) {
	if message = WrongURL(raw, privateTargets); message != "" {
		return raw, message
	}
	if sent = escaped(raw); utf8.RuneCountInString(sent) > maxURL {
		message = tooLong
	}
	return sent, message
}

// escaped returns a URL with everything escaped that a query may not have (RFC 3986, section 3.4). The client escapes
// paths.
func escaped(raw string) string {
	path, query, found := strings.Cut(raw, "?")
	if !found {
		return raw
	}
	var b strings.Builder
	b.WriteString(path + "?")
	for i := range len(query) {
		if c := query[i]; c == '%' || inQuery(c) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// inQuery reports whether a query may have a character that is not escaped.
func inQuery(c byte) bool {
	alphanumeric := '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
	return alphanumeric || strings.IndexByte("-._~!$&'()*+,;=:@/?", c) >= 0
}

// WrongURL returns why the form of a target is invalid, or "". Names are not resolved here: a name may have another
// address at each dial, where it is checked, and an answer at registration would reveal internal names.
func WrongURL(raw string, privateTargets bool) string {
	if raw == "" {
		return "is required"
	}
	if utf8.RuneCountInString(raw) > maxURL {
		return tooLong
	}
	if !utf8.ValidString(raw) || strings.ContainsFunc(raw, func(r rune) bool {
		return unicode.IsControl(r) || unicode.IsSpace(r)
	}) {
		return "must be text without spaces or control characters"
	}
	u, err := url.Parse(raw)
	if _, wrong := errors.AsType[url.EscapeError](err); wrong {
		return badEscape
	}
	if err != nil || u.Hostname() == "" {
		return "must be an absolute URL"
	}
	if _, err := url.QueryUnescape(u.RawQuery); err != nil {
		return badEscape
	}
	switch {
	case !privateTargets && u.Scheme != "https":
		return "must begin with https://"
	case u.Scheme != "https" && u.Scheme != "http":
		return "must begin with https:// or http://"
	case u.User != nil:
		return "must not contain a user name or password"
	case strings.Contains(raw, "#"):
		return "must not contain a fragment"
	}
	if message := badPort(u.Port(), privateTargets); message != "" {
		return message
	}
	return badHost(u.Hostname(), privateTargets)
}

func badPort(port string, privateTargets bool) string {
	if port == "" {
		return ""
	}
	n, err := strconv.ParseUint(port, 10, 16)
	switch {
	case err != nil || n == 0:
		return "must have a port from 1 to 65535"
	case !privateTargets && !slices.Contains(PublicPorts, uint16(n)):
		return "must have port 443 or 8443, or none"
	}
	return ""
}

// guard knows the addresses that are not public. 168.63.129.16 looks public, but on Azure it serves every machine its
// own configuration. Ports are checked elsewhere.
var guard = ssrf.New(ssrf.WithAnyPort(), ssrf.WithDeniedV4Prefixes(netip.MustParsePrefix("168.63.129.16/32")))

func badHost(host string, privateTargets bool) string {
	name, ok := asciiHost(host)
	if !ok {
		return "must have a valid host name"
	}
	addr, err := netip.ParseAddr(name)
	switch {
	case err == nil && addr.Zone() != "":
		return "must not have an address with a zone"
	case err == nil && !privateTargets && !Public(addr):
		return "must not be a private or local address"
	case err == nil:
		return ""
	case numeric(name):
		return "must have a host name or a plain IP address"
	case !privateTargets && local(name):
		return "must not have the name of a local or private host"
	}
	return ""
}

// localSuffixes end names that mean something in one network only: RFC 6761, RFC 6762, ICANN's .internal and the usual
// default of a machine's own name.
var localSuffixes = []string{".localhost", ".local", ".internal", ".localdomain"}

// local reports whether a name can only be that of a host in our own network: it has one label, as localhost does, or
// ends in one of localSuffixes.
func local(name string) bool {
	return !strings.Contains(name, ".") ||
		slices.ContainsFunc(localSuffixes, func(suffix string) bool { return strings.HasSuffix(name, suffix) })
}

// asciiHost returns a host in the form in which it will be looked up. In other scripts a host can be mapped to a number
// or to localhost without looking like it: 127。0。0。1, ｌｏｃａｌｈｏｓｔ.
func asciiHost(host string) (name string, ok bool) {
	name = host
	if strings.ContainsFunc(host, func(r rune) bool { return r > unicode.MaxASCII }) {
		ascii, err := idna.Lookup.ToASCII(host)
		if err != nil {
			return "", false
		}
		name = ascii
	}
	name = strings.ToLower(strings.TrimRight(name, "."))
	return name, name != ""
}

// Public reports whether an address is public.
func Public(addr netip.Addr) bool {
	network := "tcp4"
	if addr.Is6() {
		network = "tcp6"
	}
	return guard.Safe(network, netip.AddrPortFrom(addr, 443).String(), nil) == nil
}

// numeric reports whether some resolvers would read a host as an address that is not in its plain form, such as
// 2130706433 or 0x7f.1. Those are names whose last label is a number.
func numeric(host string) bool {
	last := host[strings.LastIndexByte(host, '.')+1:]
	if hex, ok := strings.CutPrefix(last, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return last != "" && strings.Trim(last, "0123456789") == ""
}
