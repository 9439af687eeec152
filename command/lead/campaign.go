package lead

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/text/unicode/norm"

	"github.com/leadlog/leadlog/eventstore/event"
)

// Campaign returns the campaign that a touch names, of its values by the names of utm parameters. A value that could name the person
// is left out: one with an @, and one that contains the phone. It stays among the personal data.
func Campaign(value func(name string) string, phone string) event.Campaign {
	plain := func(name string) string {
		given := value(name)
		if Blank(given) || namesPerson(given, phone) {
			return ""
		}
		return given
	}
	return event.Campaign{
		UTMSource: plain("utm_source"), UTMMedium: plain("utm_medium"), UTMCampaign: plain("utm_campaign"), UTMID: plain("utm_id"),
	}
}

// campaign is that of the arrival's metadata.
func (a Arrival) campaign() event.Campaign {
	return Campaign(func(name string) string { return Scalar(a.Metadata[name]) }, a.Phone)
}

// Scalar returns a text, or a number as it was written. Other values are none.
func Scalar(v jsontext.Value) string {
	if v.Kind() == jsontext.KindNumber {
		return string(v)
	}
	s, _ := text(v)
	return s
}

// namesPerson reports whether a value has an email, or a phone in any of the ways it is written: with punctuation, in other digits,
// or without its country code, which has at most three.
func namesPerson(value, phone string) bool {
	if !isASCII(value) {
		value = norm.NFKC.String(value)
	}
	if strings.Contains(value, "@") || strings.Contains(value, "%40") {
		return true
	}
	const countryCode = len("+999")
	if len(phone) < countryCode+minPhoneDigits-3 {
		return false
	}
	digits := strings.Map(func(r rune) rune {
		if r = asciiDigit(r); r < '0' || r > '9' {
			return -1
		}
		return r
	}, value)
	return strings.Contains(digits, phone[countryCode:])
}
