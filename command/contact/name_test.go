package contact

import (
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestParseName_Trims(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"  Asha Rao ":                      "Asha Rao",
		"Asha\tRao\n":                      "Asha Rao",
		"\x07 Asha\x7fRao\u0085":           "Asha Rao",
		"Asha  Rao":                        "Asha  Rao",
		"\u00a0Asha\u3000":                 "Asha",
		"<b>Asha</b> & O'Neil":             "<b>Asha</b> & O'Neil",
		"\r\n":                             "",
		"José":                             "José",
		"می\u200cخواهم":                    "می\u200cخواهم",
		"Asha\r\nX-Header: forged":         "Asha  X-Header: forged",
		"\u200b\ufeff Asha\u202c \ufe0f\n": "Asha",
		"\u3164Asha\ufffc\u200d":           "Asha",
		// a chillu letter, spelled with a joiner
		"മോഹന\u0d4d\u200d ":      "മോഹന\u0d4d\u200d",
		"മോഹന\u0d4d\u200d\u200b": "മോഹന\u0d4d\u200d",
		"辻\U000e0100 ":           "辻\U000e0100", // a variant of the ideograph
		"👩\u200d💻":               "👩\u200d💻",
	} {
		require.Equal(t, want, ParseName(in), "%q", in)
	}
}

func TestParseName_Placeholders(t *testing.T) {
	t.Parallel()
	for _, none := range []string{
		"undefined", "null", "NULL", "[object Object]", "{{first_name}}", "{{ contact.name | default }}",
		"%FIRST_NAME%", "%name%", "N/A", "n/a", "-", "--", "—", ".", "?", "\u200b", "\u200b \ufeff",
		"undefined undefined", "null null", "{{first}} {{last}}", "{{first}}{{last}}", "%first% %last%",
		"[object Object] [object Object]", "- -", "undefined null", " null ", "\u200bnull\u200b", "null, undefined",
		"N/A N/A", "None None", "NaN", "${name}", "{name}", "*|FNAME|*", "<%= name %>", "(null)", "<no value>",
		"null\u200d null",
	} {
		require.Empty(t, ParseName(none), "%q", none)
	}
	for _, name := range []string{
		"Null", "Jennifer Null", "Asha undefined", "Nullah", "nullam", "Nan", "Nonesuch", "Na", "N", "Al N/A",
		"100% Asha", "% off %", "%a b%", "50%", "O'", "{{Asha", "{Asha} Rao", "❤", "1", "@sha", "(Asha)", "Undefined",
		"object Object",
	} {
		require.Equal(t, name, ParseName(name))
	}
}

func TestParseName_Idempotent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		name := ParseName(rapid.OneOf(
			rapid.String(),
			rapid.StringMatching(
				`([ -]|undefined|null|N/A|\{\{[a-z `+
					`]{0,3}\}\}|%[a-z]{0,3}%|[a-zA-Z]{1,3}|\x{200b}|\x{0d4d}\x{200d}){0,5}`,
			),
		).Draw(t, "raw"))
		require.Equal(t, name, ParseName(name))
		require.False(t, strings.ContainsFunc(name, unicode.IsControl))
		require.Equal(t, strings.TrimSpace(name), name)
	})
}

// Looking for the end of each field took minutes for a body of 2 MiB.
func TestParseName_LongTemplates(t *testing.T) {
	t.Parallel()
	for _, field := range []string{"{", "{{", "${", "%", "*|", "<%"} {
		require.NotEmpty(t, ParseName(strings.Repeat(field, 1<<20)))
	}
}
