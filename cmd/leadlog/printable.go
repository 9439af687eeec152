package main

import (
	"strconv"
	"strings"
	"unicode"
)

// printable keeps what a caller or a file wrote from steering a terminal: an escape, say, or what turns the direction of
// text, is written as Go does it, \x1b or \u202e.
func printable(text string) string {
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
