// Package pagescript has leadlog.js, which pages load to send their forms to an intake.
package pagescript

import (
	_ "embed"
	"strings"
)

//go:embed leadlog.js
var source string

// Text returns the script as it is served: without indentation, and without comments on lines of their own.
func Text() []byte {
	var text strings.Builder
	for line := range strings.Lines(source) {
		if line = strings.TrimLeft(line, " "); !strings.HasPrefix(line, "//") && line != "\n" {
			text.WriteString(line)
		}
	}
	return []byte(text.String())
}
