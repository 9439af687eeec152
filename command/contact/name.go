package contact

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// ParseName returns the name of a person as it is stored: each control character a space, without white space and
// invisible characters at the ends. It is empty for what is no name: punctuation, and what a program or a template
// leaves in the place of a name, also in the places of a first and a last one. Markup and repeated spaces stay: they
// are escaped where a name is shown.
func ParseName(raw string) string {
	name := withoutJunk(OneLine(raw))
	if placeholder(name) {
		return ""
	}
	return name
}

// OneLine makes each control character a space and removes white space at the ends.
func OneLine(raw string) string {
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

// withoutJunk removes white space and invisible characters from the ends, but not the ones that spell the last letter:
// a joiner after a virama, as older texts spell chillu letters of Malayalam, and a selector of an ideograph's variant.
func withoutJunk(name string) string {
	short := trim(name)
	if len(short) == len(name) {
		return name
	}
	tail := name[strings.Index(name, short)+len(short):]
	next, size := utf8.DecodeRuneInString(tail)
	last, _ := utf8.DecodeLastRuneInString(short)
	if next == '\u200D' && viramas[last] || next >= 0xE0100 && unicode.Is(unicode.Variation_Selector, next) &&
		unicode.Is(unicode.Han, last) {
		return short + tail[:size]
	}
	return short
}

// viramas remove the vowel of the letter before them, in the scripts of India.
var viramas = map[rune]bool{
	'\u094D': true, '\u09CD': true, '\u0A4D': true, '\u0ACD': true, '\u0B4D': true, '\u0BCD': true, '\u0C4D': true,
	'\u0CCD': true, '\u0D4D': true,
	'\u0DCA': true,
}

// placeholders are what programs write for a value that they lack. In another case some are names, such as Null.
var placeholders = [...]string{
	"undefined", "[object Object]", "null", "NULL", "None", "none", "NaN", "N/A", "n/a", "(null)", "<null>", "<nil>",
	"<no value>",
}

// maxPlaceholder is the maximum size of what is taken for no name, in bytes. It bounds the time of looking for the ends
// of fields.
const maxPlaceholder = 1000

// placeholder reports whether a text consists of placeholders, fields of templates and punctuation.
func placeholder(s string) bool {
	if len(s) > maxPlaceholder {
		return false
	}
	for s != "" {
		rest := withoutPlaceholder(s)
		if len(rest) == len(s) {
			return false
		}
		s = rest
	}
	return true
}

// withoutPlaceholder removes one from the beginning of a text.
func withoutPlaceholder(s string) string {
	for _, value := range placeholders {
		if rest, found := strings.CutPrefix(s, value); found {
			return rest
		}
	}
	for _, field := range [...]struct{ begin, end string }{
		{"{{", "}}"}, {"${", "}"}, {"{", "}"}, {"*|", "|*"}, {"<%", "%>"},
	} {
		if inside, found := strings.CutPrefix(s, field.begin); found {
			if _, rest, closed := strings.Cut(inside, field.end); closed {
				return rest
			}
		}
	}
	if inside, found := strings.CutPrefix(s, "%"); found { // %FIRST_NAME%
		if word, rest, closed := strings.Cut(inside, "%"); closed && word != "" &&
			!strings.ContainsFunc(word, unicode.IsSpace) {
			return rest
		}
	}
	first, size := utf8.DecodeRuneInString(s)
	if unicode.IsSpace(first) || unicode.IsPunct(first) || Invisible(first) {
		return s[size:]
	}
	return s
}
