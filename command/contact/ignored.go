package contact

import (
	"errors"
	"slices"
	"strings"
)

// Ignored is an account's list of contacts that identify no person, such as those that test forms and call centers fill
// in. Its entries are as ParseIgnored returns them.
type Ignored []string

var errIgnored = errors.New("must be a phone, an email, *@domain or local@*")

// ParseIgnored reads an entry of the list: a phone in any form, an email, *@domain or local@*. Digits that are no phone
// stay digits.
func ParseIgnored(raw, region string) (string, error) {
	const anyLocal, anyDomain = "*@", "@*"
	text := trim(raw)
	switch domain, isDomain := strings.CutPrefix(text, anyLocal); {
	case isDomain:
		email, err := ParseEmail("x@" + domain)
		if err != nil {
			return "", errIgnored
		}
		return anyLocal + email[len("x@"):], nil
	case strings.HasSuffix(text, anyDomain):
		local, _, _ := strings.Cut(text, anyDomain)
		email, err := ParseEmail(local + "@example.com")
		if err != nil || !strings.HasSuffix(email, "@example.com") {
			return "", errIgnored
		}
		return strings.TrimSuffix(email, "example.com") + "*", nil
	case strings.Contains(text, "@"):
		email, err := ParseEmail(text)
		if err != nil {
			return "", errIgnored
		}
		return email, nil
	}
	if phone, err := ParsePhone(text, region, Hint{}); err == nil {
		return FoldPhone(phone), nil
	}
	if number, ok := preparePhone(text); ok && len(number.digits) >= minPhoneDigits {
		return number.digits, nil
	}
	return "", errIgnored
}

// HasPhone reports whether a phone in E.164 is on the list.
func (l Ignored) HasPhone(phone string) bool {
	return len(l) > 0 && phone != "" && slices.Contains(l, FoldPhone(phone))
}

// HasDigits reports whether a text that is no phone has the digits of an entry.
func (l Ignored) HasDigits(raw string) bool {
	if len(l) == 0 {
		return false
	}
	number, ok := preparePhone(raw)
	return ok && slices.Contains(l, number.digits)
}

// HasEmail reports whether an email in canonical form is on the list, or is of a domain or has a local part that is.
func (l Ignored) HasEmail(email string) bool {
	at := strings.LastIndexByte(email, '@')
	return at >= 0 && slices.ContainsFunc(l, func(entry string) bool {
		if domain, found := strings.CutPrefix(entry, "*"); found {
			return domain == email[at:]
		}
		if local, found := strings.CutSuffix(entry, "*"); found {
			return local == email[:at+1]
		}
		return entry == email
	})
}
