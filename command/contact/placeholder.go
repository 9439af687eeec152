package contact

import (
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/nyaruka/phonenumbers"
)

// Placeholder reports whether a text is what people and programs write for a value that they lack: N/A, -, none, null,
// TBD, [not provided], the field of a template, or a platform's test data. It is not for names, some of which are such
// words.
func Placeholder(text string) bool {
	const maxPlaceholder = 100 // bytes
	if len(text) > maxPlaceholder || strings.IndexByte(text, '@') > 0 {
		return false
	}
	text = trim(text)
	return placeholder(text) || strings.HasPrefix(text, "<test lead:") || placeholderKeys[NameKey(text)]
}

// placeholderKeys are placeholders by nameKey.
var placeholderKeys = func() map[string]bool {
	keys := map[string]bool{}
	for _, text := range [...]string{
		"n/a", "none", "null", "nil", "nan", "tbd", "tba", "tbc", "unknown", "undefined", "not provided",
		"not available", "not applicable", "not given", "not specified", "not known", "no email", "no phone",
		"no number", "no value", "blank", "empty", "missing", "#ref!",
		"#name?", "#value!", "#error!", "#null!", "k.A.", "keine Angabe", "keine", "unbekannt", "aucun", "aucune",
		"non renseigné", "néant", "ninguno", "ninguna", "sin datos", "no aplica", "desconocido", "nenhum", "nenhuma",
		"não informado", "desconhecido", "nessuno", "nessuna", "non disponibile", "sconosciuto", "geen", "onbekend",
		"n.v.t.",
	} {
		keys[NameKey(text)] = true
	}
	return keys
}()

// PlaceholderEmail reports whether a canonical address is one that payment and advertising platforms put where there
// is none.
func PlaceholderEmail(email string) bool {
	return slices.Contains([]string{"void@razorpay.com", "test@meta.com", "test@fb.com"}, email)
}

// PlaceholderPhone reports whether a phone, as given or in E.164 form, is one that people type to fill a field: one
// digit repeated, 1234567890, or 9191919191, which many shops give Razorpay for a customer without a phone, with or
// without a country code.
func PlaceholderPhone(phone string) bool {
	if len(phone) > maxPhoneInput {
		return false
	}
	digits := Digits(phone)
	if filler(digits) {
		return true
	}
	if text := trim(phone); strings.HasPrefix(text, "00") {
		digits = strings.TrimLeft(digits, "0")
	} else if !strings.HasPrefix(text, "+") {
		return false
	}
	for code := 1; code <= 3 && code < len(digits); code++ {
		if filler(digits[code:]) && callingCode(digits[:code]) {
			return true
		}
	}
	return false
}

func callingCode(digits string) bool {
	code, err := strconv.Atoi(digits)
	return err == nil && len(phonenumbers.GetRegionCodesForCountryCode(code)) > 0
}

// filler reports whether digits are one digit repeated, or one of two numbers that many type.
func filler(digits string) bool {
	const minFiller = 7
	return len(digits) >= minFiller && (strings.Trim(digits, digits[:1]) == "" || digits == "1234567890" ||
		digits == "9191919191")
}

// Digits returns the digits of a text, those of other scripts as ASCII ones.
func Digits(text string) string {
	return strings.Map(func(r rune) rune {
		if r = ASCIIDigit(r); r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, text)
}

// LooksLikeEmail reports whether a text is an email address.
func LooksLikeEmail(text string) bool {
	if !strings.ContainsRune(text, '@') {
		return false
	}
	_, err := ParseEmail(text)
	return err == nil
}

// LooksLikePhone reports whether a text is a phone number, and not a date, a sum, an IP address or a short number.
// Region is as in ParsePhone.
func LooksLikePhone(text, region string) bool {
	const minDigits = 8 // of those without +
	plain := trim(text)
	digits := Digits(plain)
	if len(digits) < minPhoneDigits || len(digits) < minDigits && !strings.HasPrefix(plain, "+") {
		return false
	}
	if date.MatchString(plain) || sum.MatchString(plain) {
		return false
	}
	if _, err := netip.ParseAddr(plain); err == nil {
		return false
	}
	_, err := ParsePhone(plain, region, Hint{From: File})
	return err == nil
}

var (
	date = regexp.MustCompile(
		`^((19|20)\d\d([-/. ]?)[01]?\d([-/. ]?)[0-3]?\d|[0-3]?\d[-/.][0-3]?\d[-/.](19|20)\d\d)([T ,].*)?$`,
	)
	sum = regexp.MustCompile(`^[\d,.']*[.,]\d{1,2}$`)
)

// Resembles reports whether a text may be an email or a phone, without a region: it has an @, or seven digits and no
// letters.
func Resembles(text string) bool {
	if strings.Contains(text, "@") {
		return true
	}
	digits := 0
	for _, r := range text {
		switch {
		case unicode.IsLetter(r):
			return strings.HasPrefix(strings.ToLower(text), "p:") && len(Digits(text)) >= minPhoneDigits
		case unicode.IsDigit(r):
			digits++
		}
	}
	return digits >= minPhoneDigits
}
