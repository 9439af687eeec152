package schema

import (
	"strings"

	"golang.org/x/text/unicode/norm"
)

// SearchText returns a text in the form in which searches compare it: lower case, NFC.
func SearchText(text string) string { return norm.NFC.String(strings.ToLower(text)) }
