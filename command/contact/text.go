// Package contact reads phone numbers, email addresses and names as people write them. Captures, files, intakes,
// filters and searches share it, so that what was captured is found by the same text. It is pure.
package contact

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// IsASCII reports whether s has ASCII characters only.
func IsASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// IsDigits reports whether s consists of one or more ASCII digits.
func IsDigits(s string) bool {
	for i := range len(s) {
		if !isDigit(s[i]) {
			return false
		}
	}
	return s != ""
}

// ASCIIDigit turns a decimal digit of any script into its ASCII one and leaves
// every other character alone. Unicode encodes each script's digits as ten code
// points in a row, zero first, so every range of category Nd is a multiple of ten.
func ASCIIDigit(r rune) rune {
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

// Invisible reports whether r is a character without a glyph that programs leave in texts: a format character such as a
// direction mark or a byte order mark, a variation selector, a filler, an object's placeholder.
func Invisible(r rune) bool {
	if r < utf8.RuneSelf {
		return false
	}
	return r == '\uFFFC' ||
		unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// trim removes white space and invisible characters from both ends.
func trim(s string) string {
	return strings.TrimFunc(s, func(r rune) bool { return unicode.IsSpace(r) || Invisible(r) })
}

// IsBlank reports whether s has white space and invisible characters only.
func IsBlank(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsSpace(r) && !Invisible(r) })
}
