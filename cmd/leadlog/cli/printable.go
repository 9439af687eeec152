package cli

import (
	"strconv"
	"strings"
	"unicode"
)

// Printable escapes what could control a terminal in text that a caller or a file wrote. Control characters and those that
// change the direction of text are written as Go writes them: \x1b or \u202e.
func Printable(text string) string {
	var b strings.Builder
	for _, r := range text {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}
