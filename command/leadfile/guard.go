package leadfile

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// WithoutGuard removes what spreadsheets and exports put around a cell so that it is not read as a number or a
// formula: ="…", and an apostrophe before a formula or digits, also in a part of the cell.
func WithoutGuard(cell string) string {
	if inside, ok := strings.CutPrefix(cell, `="`); ok && strings.HasSuffix(inside, `"`) {
		return strings.ReplaceAll(inside[:len(inside)-1], `""`, `"`)
	}
	if !strings.Contains(cell, "'") {
		return cell
	}
	cell = firstDefused.ReplaceAllString(cell, "$1")
	return innerDefused.ReplaceAllString(cell, "$1$2")
}

// Defused adds apostrophes to a cell that a spreadsheet could read as a formula, also after invisible characters, which
// some drop. A part of a cell could be read as one too: where decimals have commas, spreadsheets separate cells at
// semicolons, and do not see the quotes around a cell. Apostrophes of the original can be told from added ones.
func Defused(cell string) string {
	if strings.ContainsAny(cell, ";\t\r\n") {
		cell = innerFormula.ReplaceAllString(cell, "$1'$2")
	}
	if cell == "" || wordByte(cell[0]) { // most cells
		return cell
	}
	if firstFormula.MatchString(cell) {
		return "'" + cell
	}
	return cell
}

func wordByte(b byte) bool {
	return '0' <= b && b <= '9' || 'A' <= b && b <= 'Z' || 'a' <= b && b <= 'z'
}

// DefusedJSON escapes the same characters in JSON, which keeps its value. They are in a string, because a semicolon is.
func DefusedJSON(cell string) string {
	if !strings.Contains(cell, ";") {
		return cell
	}
	return innerFormula.ReplaceAllStringFunc(cell, func(start string) string {
		last, size := utf8.DecodeLastRuneInString(start)
		return start[:len(start)-size] + fmt.Sprintf(`\u%04x`, last)
	})
}

// notShown are quotes and characters without a glyph: of formats and controls but tabs and ends of lines, fillers, and
// variation selectors.
const notShown = `['"\p{Cf}\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\x{34f}\x{115f}\x{1160}\x{17b4}\x{17b5}\x{180b}-\x{180f}\x{3164}\x{fe00}-\x{fe0f}\x{ffa0}\x{e0000}-\x{e0fff}]*`

var (
	firstFormula = regexp.MustCompile(`^` + notShown + `[=+\-@\t\r\n＝＋－＠]`)
	innerFormula = regexp.MustCompile(`([;\t\r\n])(` + notShown + `[=+\-@＝＋－＠])`)

	firstDefused = regexp.MustCompile(`^'(` + notShown + `[=+\-@\t\r\n＝＋－＠0-9])`)
	innerDefused = regexp.MustCompile(`([;\t\r\n])'(` + notShown + `[=+\-@＝＋－＠])`)
)
