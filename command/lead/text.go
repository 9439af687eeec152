package lead

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/leadlog/leadlog/command/contact"
)

// Length counts the Unicode code points of s after NFC, the unit of every
// length limit: a letter counts once, however its accent was encoded.
func Length(s string) int {
	if !contact.IsASCII(s) && !norm.NFC.IsNormalString(s) {
		s = norm.NFC.String(s)
	}
	return utf8.RuneCountInString(s)
}

// Blank reports whether s consists of Unicode white space only. Zero-width
// characters are not white space in Unicode.
func Blank(s string) bool {
	return strings.TrimSpace(s) == ""
}

// HasControl reports whether s holds a control character (C0, DEL or C1).
func HasControl(s string) bool {
	return strings.ContainsFunc(s, unicode.IsControl)
}
