package contact

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/nyaruka/phonenumbers"
	"golang.org/x/text/unicode/norm"
)

const (
	// maxPhoneInput is the maximum size of input, in bytes: enough for 15 digits
	// with any punctuation and an extension, in any script.
	maxPhoneInput = 200

	// maxExtension is the longest run of digits taken for an extension. After
	// "x" or "#" a longer one is more likely a second number, and guessing
	// which of two people is meant would merge strangers.
	maxExtension = 9

	// An E.164 number has at most 15 digits (ITU-T E.164, 6.2.1). No
	// numbers of fewer than 7 are assigned, country code included.
	minPhoneDigits = 7
	maxPhoneDigits = 15
)

var errPhone = errors.New("is not a valid phone number")

// ParsePhone reads a phone number in any common format and returns its E.164
// form. A number without a country code is read as one of region, an ISO 3166
// alpha-2 code in capitals; with a region that is not known only international
// numbers are read.
//
// A number that the numbering plans call valid is always taken. One they do not
// know (plans change before libraries do) is taken only when it was written in
// E.164 to the letter and its country code exists.
//
// The error's text suits the caller and never holds the number.
func ParsePhone(raw, region string) (string, error) {
	if canonical(raw) {
		return raw, nil
	}
	number, ok := preparePhone(raw)
	if !ok {
		return "", errPhone
	}
	parsed, err := phonenumbers.Parse(number, region)
	if err == nil && phonenumbers.IsValidNumber(parsed) {
		number = phonenumbers.Format(parsed, phonenumbers.E164)
		if !isE164(number) { // Germany, for one, has valid numbers beyond 15 digits
			return "", errPhone
		}
		return number, nil
	}
	if isE164(number) && knownCallingCode(number[1:]) {
		return number, nil
	}
	return "", errPhone
}

// FoldPhone returns the form of an E.164 number under which it is claimed and compared. Where a numbering plan has replaced the form
// of a number and the subscriber kept it, the old and the new form are one number, and the fold is the new one. Every other number is
// its own fold. Claims on the log are named by the fold: a change of it would not find them again.
//
//   - Mexico: mobiles lost the 1 after the country code in August 2019 (WhatsApp still sends it).
//   - Brazil: mobiles of eight digits got a 9 in front from 2012 to November 2016. Those with 70, 77, 78 and 79 were radio
//     numbers, which did not.
//   - Benin: every number of eight digits got 01 in front on 30 November 2024.
//
// Argentina is left out on purpose: +54 9 is a mobile, and the same digits without the 9 may be another subscriber's land line.
func FoldPhone(phone string) string {
	switch {
	case len(phone) == len("+5215512345678") && strings.HasPrefix(phone, "+521"):
		return "+52" + phone[4:]
	case len(phone) == len("+551187654321") && strings.HasPrefix(phone, "+55") && formerBrazilianMobile(phone[3:5], phone[5:]):
		return phone[:5] + "9" + phone[5:]
	case len(phone) == len("+22997123456") && strings.HasPrefix(phone, "+229"):
		return "+22901" + phone[4:]
	}
	return phone
}

// formerBrazilianMobile reports whether a number of eight digits in an area was a mobile. Area codes have no 0, and land lines begin
// with 2 to 5.
func formerBrazilianMobile(area, number string) bool {
	switch number[:2] {
	case "70", "77", "78", "79":
		return false
	}
	return !strings.Contains(area, "0") && number[0] >= '6' && number[0] <= '9'
}

// PhoneForms returns all numbers that have the same fold as a number.
func PhoneForms(phone string) []string {
	fold := FoldPhone(phone)
	forms := []string{fold}
	for _, plan := range [...]struct{ now, before string }{{"+52", "+521"}, {"+22901", "+229"}} {
		if national, ok := strings.CutPrefix(fold, plan.now); ok {
			forms = append(forms, plan.before+national)
		}
	}
	if strings.HasPrefix(fold, "+55") && len(fold) == len("+5511987654321") {
		forms = append(forms, fold[:5]+fold[6:])
	}
	return slices.DeleteFunc(forms, func(form string) bool { return FoldPhone(form) != fold })
}

// KnownRegion reports whether region is an ISO 3166 alpha-2 code, in capitals,
// whose numbering plan ParsePhone knows.
func KnownRegion(region string) bool {
	return phonenumbers.GetSupportedRegions()[region]
}

// canonical reports whether raw is an Indian mobile or a North American number
// that is E.164 already. Neither begins with a prefix that a numbering plan
// strips, so parsing would not change it, valid or not, and the costly part of
// parsing can be skipped.
func canonical(raw string) bool {
	switch {
	case len(raw) == len("+919876543210") && strings.HasPrefix(raw, "+91"):
		return raw[3] >= '6' && IsDigits(raw[3:])
	case len(raw) == len("+12025550123") && strings.HasPrefix(raw, "+1"):
		return raw[2] >= '2' && IsDigits(raw[2:])
	}
	return false
}

// preparePhone reduces input to digits and plain punctuation, and refuses
// the rest. The parser alone is too lenient: it takes "98765ABCDE",
// "9.87654321e9" and "call me 9876543210" for numbers.
func preparePhone(raw string) (string, bool) {
	if len(raw) > maxPhoneInput {
		return "", false
	}
	number := raw
	if !IsASCII(number) {
		number = strings.Map(plainPhoneRune, norm.NFKC.String(number))
	}
	number = strings.TrimSpace(number)
	number = strings.TrimSpace(cutScheme(number))
	number = cutExtension(number)
	for i := range len(number) {
		if !isDigit(number[i]) && strings.IndexByte("+()-./ ", number[i]) < 0 {
			return "", false
		}
	}
	// A plus is allowed once, before all digits. The parser would ignore others.
	if plus := strings.LastIndexByte(number, '+'); plus >= 0 && strings.ContainsAny(number[:plus], "+0123456789") {
		return "", false
	}
	return number, number != ""
}

// plainPhoneRune drops format characters (a pasted number often carries
// direction marks), and turns digits of every script and the dashes that word
// processors put for a hyphen into ASCII.
func plainPhoneRune(r rune) rune {
	switch {
	case unicode.Is(unicode.Cf, r):
		return -1
	case unicode.Is(unicode.Pd, r), r == '\u2212':
		return '-'
	}
	return ASCIIDigit(r)
}

// cutScheme removes the URI scheme or label that dialers (tel), messaging
// gateways (whatsapp) and lead ads (p) put before a number.
func cutScheme(s string) string {
	for _, scheme := range [...]string{"tel:", "whatsapp:", "p:"} {
		if len(s) >= len(scheme) && strings.EqualFold(s[:len(scheme)], scheme) {
			return s[len(scheme):]
		}
	}
	return s
}

// cutExtension removes an extension, which is digits at the end after a mark.
func cutExtension(s string) string {
	head := strings.TrimRight(s, "0123456789")
	if n := len(s) - len(head); n == 0 || n > maxExtension {
		return s
	}
	head = strings.TrimRight(head, " ")
	for _, mark := range [...]string{";ext=", "extn", "ext.", "ext", "x", "#"} {
		at := len(head) - len(mark)
		if at >= 0 && strings.EqualFold(head[at:], mark) {
			return strings.TrimRight(head[:at], " ")
		}
	}
	return s
}

func isE164(s string) bool {
	return len(s) >= 1+minPhoneDigits && len(s) <= 1+maxPhoneDigits &&
		s[0] == '+' && s[1] != '0' && IsDigits(s[1:])
}

// knownCallingCode reports whether number begins with an assigned country code.
// Those have one to three digits, and none is the beginning of another.
func knownCallingCode(number string) bool {
	for n := 1; n <= 3; n++ {
		code, err := strconv.Atoi(number[:n])
		if err == nil && len(phonenumbers.GetRegionCodesForCountryCode(code)) > 0 {
			return true
		}
	}
	return false
}

// NamesPerson reports whether a value has an email, or a phone in any of the ways it is written: with punctuation, in other digits,
// or without its country code, which has at most three. An empty phone is in no value.
func NamesPerson(value, phone string) bool {
	if !IsASCII(value) {
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
		if r = ASCIIDigit(r); r < '0' || r > '9' {
			return -1
		}
		return r
	}, value)
	return strings.Contains(digits, phone[countryCode:])
}
