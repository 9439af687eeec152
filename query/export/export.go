// Package export writes what queries yield for analysts and auditors: as CSV, or as JSON lines. It holds one row at a
// time, so that an export takes the same memory at any size.
package export

import (
	"encoding/csv"
	"io"
	"iter"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Format is how rows are written.
type Format string

// Formats.
const (
	CSV    Format = "csv"
	NDJSON Format = "ndjson"
)

// Sheet says how items of one kind become rows. As JSON lines they are what answers show of them.
type Sheet[T any] struct {
	Name    string // of a file, without ending
	Columns []string
	Row     func(T) []string
}

// Write writes items. It calls begin once, before the first byte and not before the first item is there, so that a
// failure at the outset can still be told otherwise. It returns how many items it wrote.
func (s Sheet[T]) Write(w io.Writer, format Format, items iter.Seq2[T, error], begin func()) (written int, err error) {
	out := rows[T]{sheet: s, w: w}
	if format == CSV {
		out.table = csv.NewWriter(w)
	}
	begun := false
	open := func() error {
		if begun {
			return nil
		}
		begun = true
		begin()
		return out.head()
	}
	for item, err := range items {
		if err != nil {
			return written, err
		}
		if err := open(); err != nil {
			return written, err
		}
		if err := out.write(item); err != nil {
			return written, err
		}
		written++
	}
	if err := open(); err != nil {
		return written, err
	}
	return written, out.flush()
}

// While yields items for as long as whoever asked for them is let in, which is asked before each: a slow reader may take days.
func While[T any](letIn func() error, items iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for item, err := range items {
			if err == nil {
				err = letIn()
			}
			if !yield(item, err) || err != nil {
				return
			}
		}
	}
}

// rows writes one item after another.
type rows[T any] struct {
	sheet Sheet[T]
	w     io.Writer
	table *csv.Writer // nil: JSON lines
}

func (r rows[T]) head() error {
	if r.table == nil {
		return nil
	}
	return r.table.Write(r.sheet.Columns)
}

func (r rows[T]) write(item T) error {
	if r.table != nil {
		cells := r.sheet.Row(item)
		for i := range cells {
			cells[i] = Defused(cells[i])
		}
		return r.table.Write(cells)
	}
	line, err := json.Marshal(item, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return err
	}
	_, err = r.w.Write(append(line, '\n'))
	return err
}

func (r rows[T]) flush() error {
	if r.table == nil {
		return nil
	}
	r.table.Flush()
	return r.table.Error()
}

// Defused keeps a spreadsheet from taking a cell that a caller wrote for a formula, whole or in part: where decimals have commas,
// spreadsheets cut at semicolons, and know of no quotes around what stands between commas. An apostrophe that was there
// already is not taken for ours.
func Defused(cell string) string {
	if strings.ContainsAny(cell, ";\t\r\n") {
		cell = innerFormula.ReplaceAllString(cell, "$1'$2")
	}
	if rest := strings.TrimLeft(cell, `'"`); rest != "" && strings.ContainsAny(firstOf(rest), "=+-@\t\r\n＝＋－＠") {
		return "'" + cell
	}
	return cell
}

var innerFormula = regexp.MustCompile(`([;\t\r\n])(['"]*[=+\-@＝＋－＠])`)

func firstOf(text string) string {
	_, size := utf8.DecodeRuneInString(text)
	return text[:size]
}
