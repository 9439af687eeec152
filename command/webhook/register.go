package webhook

import (
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"code.dny.dev/ssrf"
	"golang.org/x/net/idna"

	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/eventstore/event"
)

// maxURL is the longest URL in characters.
const maxURL = 2048

// Registration is what is said of a new endpoint.
type Registration struct {
	URL         string
	Events      []string // public type names; empty, or "*" among them, is all
	Description string
}

// Register decides on a new endpoint, but for its slot. With privateTargets the URL may be http, and its host local.
// The error is field.Errors.
func (r Registration) Register(privateTargets bool) (event.WebhookRegistered, error) {
	var wrong field.Errors
	if message := badURL(r.URL, privateTargets); message != "" {
		wrong.Add("url", message)
	}
	events := r.Events
	if len(events) == 0 || slices.Contains(events, "*") {
		events = []string{"*"}
	} else {
		events = slices.Compact(slices.Sorted(slices.Values(events)))
		for _, name := range events {
			if !slices.Contains(EventTypes(), name) {
				wrong.Add("events", "must be * or some of "+strings.Join(EventTypes(), ", "))
				break
			}
		}
	}
	description := strings.TrimSpace(r.Description)
	if utf8.RuneCountInString(description) > MaxDescription {
		wrong.Add("description", "must be at most 500 characters")
	}
	return event.WebhookRegistered{URL: r.URL, Events: events, Description: description}, wrong.Err()
}

// badURL says what is wrong with a target. What a name resolves to is found out when it is dialled, every time.
func badURL(raw string, privateTargets bool) string {
	if raw == "" {
		return "is required"
	}
	if utf8.RuneCountInString(raw) > maxURL {
		return "must be at most 2048 characters"
	}
	if !utf8.ValidString(raw) || strings.ContainsFunc(raw, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) }) {
		return "must be text without spaces or control characters"
	}
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.Hostname() == "" || u.Opaque != "" {
		return "must be an absolute URL"
	}
	switch {
	case u.Scheme != "https" && (u.Scheme != "http" || !privateTargets):
		return "must begin with https://"
	case u.User != nil:
		return "must not contain a user name or password"
	case strings.Contains(raw, "#"):
		return "must not contain a fragment"
	case badPort(u.Port()):
		return "must have a port from 1 to 65535"
	}
	return badHost(u.Hostname(), privateTargets)
}

func badPort(port string) bool {
	if port == "" {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err != nil || n == 0
}

// guard knows the addresses that are no public host. 168.63.129.16 serves every machine on Azure with its own
// configuration, although it looks public. Whether a port is wanted is judged when dialling.
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
	case err == nil && !privateTargets && !public(addr):
		return "must not be a private or local address"
	case err == nil:
		return ""
	case numeric(name):
		return "must have a host name or a plain IP address"
	case !privateTargets && (name == "localhost" || strings.HasSuffix(name, ".localhost")):
		return "must not be a private or local address"
	}
	return ""
}

// asciiHost gives a host the form in which it will be looked up. In other scripts a host can look like no number and
// no localhost, and be mapped to one: 127。0。0。1, ｌｏｃａｌｈｏｓｔ.
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

func public(addr netip.Addr) bool {
	network := "tcp4"
	if addr.Is6() {
		network = "tcp6"
	}
	return guard.Safe(network, netip.AddrPortFrom(addr, 443).String(), nil) == nil
}

// numeric tells a host that some resolvers read as an address although it is none in its plain form, such as
// 2130706433 or 0x7f.1. Those are names whose last label is a number.
func numeric(host string) bool {
	last := host[strings.LastIndexByte(host, '.')+1:]
	if hex, ok := strings.CutPrefix(last, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return last != "" && strings.Trim(last, "0123456789") == ""
}
