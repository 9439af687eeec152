package webhook

import (
	"maps"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/leadlog/leadlog/command/field"
)

// Orders in which an endpoint is sent its deliveries. In a lane, the next one waits until the one before was delivered,
// or failed for good.
const (
	Unordered  = "none"     // as they come
	ByLead     = "lead"     // a lane for each lead, token or intake
	ByEndpoint = "endpoint" // one lane
)

const (
	// MaxHeaders is how many own headers an endpoint may have.
	MaxHeaders = 10
	// MaxHeaderValue is the longest value of an own header in bytes.
	MaxHeaderValue = 4096
	// HiddenValue is shown in place of the values of own headers.
	HiddenValue = "***"
	// MinRateLimit and MaxRateLimit bound an endpoint's own limit, in attempts a second.
	MinRateLimit = 0.01
	MaxRateLimit = 10_000
)

// ordered returns the order in the form of events, empty for none, or why it is invalid.
func ordered(text string) (ordering, message string) {
	switch text {
	case "", Unordered:
		return "", ""
	case ByLead, ByEndpoint:
		return text, ""
	}
	return "", "must be none, lead or endpoint"
}

func wrongRate(rate float64) string {
	if rate == 0 || rate >= MinRateLimit && rate <= MaxRateLimit && !math.IsNaN(rate) {
		return ""
	}
	return "must be 0 for no limit, or from 0.01 to 10000 attempts a second"
}

// refusedHeaders are those that the sender sets, and those that are about the connection (RFC 9110, section 7.6.1).
var refusedHeaders = []string{
	"Host", "Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te",
	"Trailer", "Transfer-Encoding", "Upgrade", "User-Agent", "Accept-Encoding", "Expect", "Traceparent", "Tracestate",
}

// ownHeaders returns headers under their canonical names, and the names in order.
func ownHeaders(asked map[string]string) (headers map[string]string, names []string, wrong field.Errors) {
	headers = map[string]string{}
	if len(asked) > MaxHeaders {
		wrong.Add("headers", "must be at most 10")
		return headers, nil, wrong
	}
	for _, given := range slices.Sorted(maps.Keys(asked)) {
		name, at := canonical(given), "headers."+shortened(given)
		value := strings.Trim(asked[given], " \t")
		_, twice := headers[name]
		switch {
		case !headerName(given):
			wrong.Add(at, "is not a valid header name")
		case slices.Contains(refusedHeaders, name), strings.HasPrefix(name, "Webhook-"),
			strings.HasPrefix(name, "Content-"):
			wrong.Add(at, "is set by leadlog or by the connection")
		case twice:
			wrong.Add(at, "is given twice")
		case value == HiddenValue:
			wrong.Add(at, "must be the value itself, not the *** that is shown in its place")
		case value == "" || len(value) > MaxHeaderValue:
			wrong.Add(at, "must have 1 to 4096 bytes")
		case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) ||
			!utf8.ValidString(value):
			wrong.Add(at, "must not contain control characters")
		default:
			headers[name] = value
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return headers, names, wrong
}

// canonical returns a name with each part capitalized.
func canonical(name string) string {
	begins := true
	return strings.Map(func(r rune) rune {
		if begins {
			r = unicode.ToUpper(r)
		} else {
			r = unicode.ToLower(r)
		}
		begins = r == '-'
		return r
	}, name)
}

// headerName reports whether a text is a token (RFC 9110, section 5.6.2).
func headerName(text string) bool {
	return text != "" && len(text) <= 128 && !strings.ContainsFunc(text, func(r rune) bool {
		alphanumeric := '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
		return !alphanumeric && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}

// shortened returns a name as errors repeat it.
func shortened(name string) string {
	name = strings.ToValidUTF8(name, "\uFFFD")
	if utf8.RuneCountInString(name) > 50 {
		return string([]rune(name)[:50]) + "…"
	}
	return name
}
