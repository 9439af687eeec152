package contact

import (
	"errors"
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

// Source is where the text of a phone number comes from.
type Source int

// Sources of texts.
const (
	Call Source = iota // of the API
	Post               // to an intake
	File               // an import
)

// Hint is what is known of a phone number beside its text. The zero Hint is that of a call, with nothing beside the
// number.
type Hint struct {
	From Source
	// Country is what a field or column beside the number says of it: a country code, an ISO 3166 code or a country's
	// name. Any other text is ignored.
	Country string
}

// ParsePhone reads a phone number in any common format and returns its E.164
// form. A number without a country code is read as one of the hint's country
// or, if it is not valid there, of region, an ISO 3166 alpha-2 code in capitals;
// with a region that is not known only international numbers are read. Ten
// digits that are an Indian mobile are one in an API call, whatever the hint's
// country, if region is India.
//
// A number that the numbering plans call valid is always taken, and so is the
// old form of one, as FoldPhone has it. One they do not know (plans change
// before libraries do) is taken only when it was written in E.164 to the letter
// and its country code exists.
//
// The error's text suits the caller and never holds the number.
func ParsePhone(raw, region string, hint Hint) (string, error) {
	if canonical(raw) {
		return raw, nil
	}
	number, ok := preparePhone(raw)
	if !ok {
		return "", errPhone
	}
	phone := ""
	if hint.Country != "" && !(hint.From == Call && region == "IN" && indianMobile(number.digits)) {
		if country := RegionOf(hint.Country); country != "" {
			phone = number.read(country)
		}
	}
	if phone == "" {
		phone = number.read(region)
	}
	if phone == "" {
		return "", errPhone
	}
	return phone, nil
}

// phoneText is a phone number as it was written, reduced to digits and plain punctuation.
type phoneText struct {
	text     string
	digits   string
	plus     bool // before the digits
	whatsApp bool // it was labelled as one of WhatsApp, whose numbers begin with a country code
}

// read returns the E.164 form of a number, read in a region; empty if it is not valid.
func (p phoneText) read(region string) string {
	parsed, err := phonenumbers.Parse(p.text, region)
	if err == nil && phonenumbers.IsValidNumber(parsed) {
		number := phonenumbers.Format(parsed, phonenumbers.E164)
		if international := "+" + p.digits; p.lacksTrunkPrefix(parsed, number) && valid(international) {
			return international
		}
		if !isE164(number) { // Germany, for one, has valid numbers beyond 15 digits
			return ""
		}
		return number
	}
	if isE164(p.text) && knownCallingCode(p.text[1:]) {
		return p.text
	}
	var found string
	for _, reading := range p.readings(parsed, region) {
		switch {
		case !isE164(reading) || !valid(reading) && !formerlyValid(reading):
		case found == "":
			found = reading
		case FoldPhone(found) != FoldPhone(reading):
			return ""
		}
	}
	return found
}

// lacksTrunkPrefix reports whether digits that begin with the region's country code were read as a national number, but
// without the prefix that such numbers have there. Then they are more likely international without a plus, as WhatsApp
// and many forms write them. A ten-digit Indian mobile is commonly written without the prefix.
func (p phoneText) lacksTrunkPrefix(parsed *phonenumbers.PhoneNumber, number string) bool {
	code := number[1 : len(number)-min(len(p.digits), len(number)-1)]
	return code != "" && number[1+len(code):] == p.digits && strings.HasPrefix(p.digits, code) &&
		!(code == "91" && indianMobile(p.digits)) &&
		phonenumbers.NormalizeDigitsOnly(phonenumbers.Format(parsed, phonenumbers.NATIONAL)) != p.digits
}

// readings returns what a number that is not valid as it is written in a region may mean. Parsed is how the library
// reads it; nil if it cannot.
func (p phoneText) readings(parsed *phonenumbers.PhoneNumber, region string) (readings []string) {
	bare := strings.TrimLeft(p.digits, "0")
	own := strconv.Itoa(phonenumbers.GetCountryCodeForRegion(region))
	if !p.plus {
		readings = append(readings, "+"+own+p.digits) // though it begins like a prefix
	}
	switch {
	case p.plus && bare != p.digits: // +091…, +0091…
		readings = append(readings, "+"+bare)
	case p.plus:
	case strings.HasPrefix(bare, own): // the country code without a plus, or after zeros
		readings = append(readings, "+"+bare)
	case p.whatsApp, strings.HasPrefix(p.digits, "00"):
		readings = append(readings, "+"+bare)
	case strings.HasPrefix(p.digits, "011"): // the international prefix of North America
		readings = append(readings, "+"+p.digits[len("011"):])
	}
	if parsed == nil {
		return readings
	}
	number := phonenumbers.Format(parsed, phonenumbers.E164)
	readings = append(readings, number)
	code := strconv.Itoa(int(parsed.GetCountryCode()))
	national := strings.TrimLeft(number[1+len(code):], "0")
	if strings.HasPrefix(national, code) { // the country code twice
		readings = append(readings, "+"+national)
	}
	if code == "52" {
		readings = append(readings, "+52"+withoutMexicanPrefix(number[1+len(code):]))
	}
	return readings
}

// valid reports whether an E.164 number is one by the numbering plans.
func valid(number string) bool {
	parsed, err := phonenumbers.Parse(number, "")
	return err == nil && phonenumbers.IsValidNumber(parsed) && phonenumbers.Format(parsed, phonenumbers.E164) == number
}

// formerlyValid reports whether an E.164 number is the old form of a valid one.
func formerlyValid(number string) bool {
	fold := FoldPhone(number)
	return fold != number && valid(fold)
}

// indianMobile reports whether digits are the national number of a mobile in India. All that begin with 6 to 9 are
// valid.
func indianMobile(digits string) bool { return len(digits) == 10 && digits[0] >= '6' }

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
func preparePhone(raw string) (phoneText, bool) {
	if len(raw) > maxPhoneInput {
		return phoneText{}, false
	}
	number := raw
	if !IsASCII(number) {
		number = strings.Map(plainPhoneRune, norm.NFKC.String(number))
	}
	number, scheme := cutScheme(strings.TrimSpace(number))
	number = cutExtension(strings.TrimSpace(number))
	digits := make([]byte, 0, maxPhoneDigits)
	plus := false
	for i := range len(number) {
		switch c := number[i]; {
		case isDigit(c):
			digits = append(digits, c)
		case c == '+' && (plus || len(digits) > 0): // the parser would ignore it
			return phoneText{}, false
		case c == '+':
			plus = true
		case strings.IndexByte("()-./ ", c) < 0:
			return phoneText{}, false
		}
	}
	return phoneText{number, string(digits), plus, scheme == "whatsapp:"}, len(digits) > 0
}

// plainPhoneRune drops invisible characters (a pasted number often carries
// direction marks), and turns digits of every script and the dashes that word
// processors put for a hyphen into ASCII.
func plainPhoneRune(r rune) rune {
	switch {
	case Invisible(r):
		return -1
	case unicode.Is(unicode.Pd, r), r == '\u2212':
		return '-'
	}
	return ASCIIDigit(r)
}

// cutScheme removes the URI scheme or label that dialers (tel), messaging
// gateways (whatsapp) and lead ads (p) put before a number, and returns it.
func cutScheme(s string) (number, scheme string) {
	for _, scheme := range [...]string{"tel:", "whatsapp:", "p:"} {
		if len(s) >= len(scheme) && strings.EqualFold(s[:len(scheme)], scheme) {
			return s[len(scheme):], scheme
		}
	}
	return s, ""
}

// cutExtension removes an extension, which is digits at the end after a mark.
func cutExtension(s string) string {
	head := strings.TrimRight(strings.TrimSuffix(s, ")"), "0123456789")
	if n := len(strings.TrimSuffix(s, ")")) - len(head); n == 0 || n > maxExtension {
		return s
	}
	head = strings.TrimRight(head, " .:-")
	for _, mark := range [...]string{";ext=", "extension", "extn", "ext", "x", "#"} {
		at := len(head) - len(mark)
		if at >= 0 && strings.EqualFold(head[at:], mark) {
			return strings.TrimRight(head[:at], " ,;(")
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

// NamesPerson reports whether a value has an email, or a phone in any of the ways it is written: with punctuation, in
// other digits, or without its country code, which has at most three. An empty phone is in no value.
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
