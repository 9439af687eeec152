package contact

import (
	"errors"
	"strings"

	"golang.org/x/net/idna"
)

const (
	// maxEmailInput is the maximum size of input, in bytes. The canonical form has
	// at most 254, but a domain in its own script may be longer before it is
	// encoded: four bytes for a character that becomes one or two.
	maxEmailInput = 1024

	// RFC 5321, 4.5.3.1, and its erratum 1690: octets.
	maxEmail = 254
	maxLocal = 64
	maxLabel = 63
)

var (
	errEmail     = errors.New("is not a valid email address")
	errEmailLong = errors.New("must be an email address of at most 254 characters")
)

// ParseEmail returns the canonical form of an email address: trimmed, in lower
// case, the domain in ASCII. Dots and "+tag" in the local part stay, for only
// the domain's owner knows whether they mean the same mailbox. What a link puts
// around an address is removed: mailto:, encoded spaces and headers.
//
// It accepts the addresses that people type into forms: atoms, an @ and a domain
// with a dot. It refuses display names, quotes, comments and address literals,
// which are legal in a mail header.
//
// The error's text suits the caller and never holds the address.
func ParseEmail(raw string) (string, error) {
	email := trim(raw)
	if len(email) > maxEmailInput {
		return "", errEmailLong
	}
	email = withoutLink(email)
	at := strings.LastIndexByte(email, '@')
	if at < 0 || !isLocalPart(email[:at]) {
		return "", errEmail
	}
	// The local part is ASCII here. Lowering before that check would turn the
	// Kelvin sign into a plain k.
	if IsASCII(email) {
		email = strings.ToLower(email)
	}
	domain := email[at+1:]
	if !IsASCII(domain) || strings.Contains(domain, "xn--") {
		ascii, err := asciiDomain(domain)
		if err != nil {
			return "", errEmail
		}
		domain = ascii
		email = strings.ToLower(email[:at]) + "@" + domain
	}
	if len(email) > maxEmail {
		return "", errEmailLong
	}
	if !isMailDomain(domain) {
		return "", errEmail
	}
	return email, nil
}

// withoutLink returns the address of a link (RFC 6068), and of a text with encoded spaces at its ends, which no
// person's address has.
func withoutLink(s string) string {
	const space, scheme = "%20", "mailto:"
	for {
		switch rest := strings.TrimSuffix(s, space); {
		case strings.HasPrefix(rest, space):
			s = trim(rest[len(space):])
		case len(rest) >= len(scheme) && strings.EqualFold(rest[:len(scheme)], scheme):
			s, _, _ = strings.Cut(rest[len(scheme):], "?")
			s = trim(s)
		case len(rest) < len(s):
			s = trim(rest)
		default:
			return s
		}
	}
}

// isLocalPart reports whether s is a dot-atom (RFC 5322, 3.2.3) of an allowed length.
func isLocalPart(s string) bool {
	if len(s) > maxLocal {
		return false
	}
	for atom := range strings.SplitSeq(s, ".") {
		if atom == "" {
			return false
		}
		for i := range len(atom) {
			if !isLetter(atom[i]) && !isDigit(atom[i]) && strings.IndexByte("!#$%&'*+-/=?^_`{|}~", atom[i]) < 0 {
				return false
			}
		}
	}
	return true
}

// asciiDomain maps an internationalized domain to its ASCII form. It validates
// the labels in Unicode, because the ASCII form would hide a hyphen at an end of
// one. It accepts empty labels, which isMailDomain refuses.
func asciiDomain(domain string) (string, error) {
	profile := idna.New(idna.MapForLookup(), idna.BidiRule(), idna.Transitional(false))
	ascii, err := profile.ToASCII(domain)
	if err != nil {
		return "", err
	}
	// The first pass encodes some input that is not text at all (a stray byte
	// becomes U+FFFD); the second pass reads that encoding and refuses it.
	again, err := profile.ToASCII(ascii)
	if err == nil && again != ascii {
		err = errEmail
	}
	return ascii, err
}

// isMailDomain reports whether s, in lower case, is a host name of two labels
// or more. A top-level domain of digits alone would make it an IPv4 address.
func isMailDomain(s string) bool {
	labels := 0
	numeric := false
	for label := range strings.SplitSeq(s, ".") {
		if !isHostLabel(label) {
			return false
		}
		labels++
		numeric = IsDigits(label)
	}
	return labels >= 2 && !numeric
}

func isHostLabel(s string) bool {
	if s == "" || len(s) > maxLabel || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		if !isLetter(s[i]) && !isDigit(s[i]) && s[i] != '-' {
			return false
		}
	}
	return true
}

func isLetter(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
