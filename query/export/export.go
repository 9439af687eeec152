// Package export writes the results of queries as CSV or as JSON lines, for analysts and auditors. It has one row in memory at a
// time, so that an export of any size takes the same memory.
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

// Sheet says how items of one kind become rows of CSV. As JSON lines, they are as in the API's answers.
type Sheet[T any] struct {
	Name    string // of a file, without extension
	Columns []string
	Row     func(T) []string
}

// Write writes items and returns how many. It calls begin once, before it writes the first byte but not before it has the first
// item, so that an early error can still be answered with a status of its own.
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

// While yields items as long as letIn, which it calls before each, returns no error: a slow reader may take days, and its
// credential may end meanwhile.
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

// Defused adds apostrophes to a cell that a spreadsheet could read as a formula. A part of a cell could be read as one too: where
// decimals have commas, spreadsheets separate cells at semicolons, and do not see the quotes around a cell. Apostrophes in the
// original are kept apart from ours.
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
