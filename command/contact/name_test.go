package contact

import (
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestCleanName_Trims(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"  Asha Rao ":              "Asha Rao",
		"Asha\tRao\n":              "Asha Rao",
		"\x07 Asha\x7fRao\u0085":   "Asha Rao",
		"Asha  Rao":                "Asha  Rao",
		"\u00a0Asha\u3000":         "Asha",
		"<b>Asha</b> & O'Neil":     "<b>Asha</b> & O'Neil",
		"\r\n":                     "",
		"José":                     "José",
		"می\u200cخواهم":            "می\u200cخواهم",
		"Asha\r\nX-Header: forged": "Asha  X-Header: forged",
	} {
		require.Equal(t, want, CleanName(in), "%q", in)
	}
}

func TestCleanName_Idempotent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		name := CleanName(rapid.String().Draw(t, "raw"))
		require.Equal(t, name, CleanName(name))
		require.False(t, strings.ContainsFunc(name, unicode.IsControl))
		require.Equal(t, strings.TrimSpace(name), name)
	})
}
