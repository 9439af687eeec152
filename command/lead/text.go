package lead

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Length counts the Unicode code points of s after NFC, the unit of every
// length limit: a letter counts once, however its accent was encoded.
func Length(s string) int {
	if !isASCII(s) && !norm.NFC.IsNormalString(s) {
		s = norm.NFC.String(s)
	}
	return utf8.RuneCountInString(s)
}

// Blank reports whether s consists of Unicode white space only. Zero-width
// characters are not white space in Unicode.
func Blank(s string) bool {
	return strings.TrimSpace(s) == ""
}

// CleanName makes each control character a space and trims the result. Markup
// and repeated spaces stay: they are escaped where a name is shown.
func CleanName(raw string) string {
	if HasControl(raw) {
		raw = strings.Map(controlToSpace, raw)
	}
	return strings.TrimSpace(raw)
}

// HasControl reports whether s holds a control character (C0, DEL or C1).
func HasControl(s string) bool {
	return strings.ContainsFunc(s, unicode.IsControl)
}

func controlToSpace(r rune) rune {
	if unicode.IsControl(r) {
		return ' '
	}
	return r
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// digits reports whether s consists of one or more ASCII digits.
func digits(s string) bool {
	for i := range len(s) {
		if !isDigit(s[i]) {
			return false
		}
	}
	return s != ""
}

// asciiDigit turns a decimal digit of any script into its ASCII one and leaves
// every other character alone. Unicode encodes each script's digits as ten code
// points in a row, zero first, so every range of category Nd is a multiple of ten.
func asciiDigit(r rune) rune {
	if r < utf8.RuneSelf {
		return r
	}
	for _, t := range unicode.Nd.R16 {
		if r <= rune(t.Hi) {
			if r < rune(t.Lo) {
				return r
			}
			return '0' + (r-rune(t.Lo))%10
		}
	}
	for _, t := range unicode.Nd.R32 {
		if r <= rune(t.Hi) {
			if r < rune(t.Lo) {
				return r
			}
			return '0' + (r-rune(t.Lo))%10
		}
	}
	return r
}
