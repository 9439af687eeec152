package contact

import (
	"strings"
	"unicode"
)

// CleanName makes each control character a space and trims the result. Markup
// and repeated spaces stay: they are escaped where a name is shown.
func CleanName(raw string) string {
	if strings.ContainsFunc(raw, unicode.IsControl) {
		raw = strings.Map(controlToSpace, raw)
	}
	return strings.TrimSpace(raw)
}

func controlToSpace(r rune) rune {
	if unicode.IsControl(r) {
		return ' '
	}
	return r
}
