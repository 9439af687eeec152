// Package spendfile reads advertising costs from files: the exports of advertising platforms, and tables of days, keys
// and amounts.
package spendfile

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/leadlog/leadlog/command/leadfile"
	"github.com/leadlog/leadlog/eventstore/event"
)

// Options are how a file is read.
type Options struct {
	Currency string            // of the account, by ISO 4217
	Map      map[string]string // fields of columns by their names; an empty one leaves the column out
	Set      map[string]string // members of the key of all rows, by their fields
	Dates    string            // DayFirst or MonthFirst; empty: detected
	MaxBytes int64             // maximum size, unpacked
}

// Orders of numbers in dates that do not begin with the year.
const (
	DayFirst   = "day-first"
	MonthFirst = "month-first"
)

// File is what a file has.
type File struct {
	Rows         []event.SpendRow // of each day and key one
	Columns      []Column
	Platform     string // Meta, Google, LinkedIn or empty
	Encoding     string
	Delimiter    rune
	HeaderLine   int
	Lines        int    // rows of the file that have an amount
	LeftOut      []int  // lines of totals and footers
	HasCurrency  bool   // the file says that its amounts are in the account's currency
	Total        string // of all amounts, decimal
	Since, Until string // first and last day
}

// MaxListed is how many lines LineList names.
const MaxListed = 10

// LineList names the first of a number of lines.
func LineList(first []int, count int) string {
	text := "line"
	if count > 1 {
		text = "lines"
	}
	first = first[:min(len(first), MaxListed)]
	for i, line := range first {
		if i > 0 {
			text += ","
		}
		text += fmt.Sprintf(" %d", line)
	}
	if more := count - len(first); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Column is a column, and what it becomes.
type Column struct{ Name, Becomes string }

// OptionError is an option that is wrong.
type OptionError struct{ error }

// ErrTooLarge means that a file is larger than Options.MaxBytes.
var ErrTooLarge = errors.New("the file is too large")

// titleLines is how many lines a file may have before its header.
const titleLines = 30

// Read reads a file of CSV, also packed by gzip, in any encoding and with any delimiter that leads are imported with.
// If any row is wrong the error is *Errors.
func Read(r io.Reader, o Options) (File, error) {
	if err := o.check(); err != nil {
		return File{}, &OptionError{err}
	}
	content, err := unpacked(r, o.MaxBytes)
	if err != nil {
		return File{}, err
	}
	start := leadfile.Start(string(content[:min(len(content), 512)]))
	if err := leadfile.OtherFormat(start, true); err != nil {
		return File{}, err
	}
	encoding, err := leadfile.Detect(bytes.NewReader(content))
	if err != nil {
		return File{}, err
	}
	table, columns, err := findHeader(content, encoding, o)
	if err != nil {
		return File{}, err
	}
	if err := columns.missing(o.Set); err != nil {
		return File{}, err
	}
	reading := &reader{Options: o, columns: columns}
	if err := reading.read(table); err != nil {
		return File{}, err
	}
	f := reading.file
	f.Platform, f.Encoding, f.Delimiter, f.HeaderLine = columns.platform, encoding.Name, table.Delimiter, table.Before
	for i, name := range columns.header {
		becomes := columns.fields[i]
		if !slices.Contains(Fields(), becomes) {
			becomes = leftOut
		}
		f.Columns = append(f.Columns, Column{name, becomes})
	}
	return f, nil
}

func (o Options) check() error {
	for _, name := range slices.Sorted(maps.Keys(o.Map)) {
		if field := o.Map[name]; field != leftOut && !slices.Contains(Fields(), field) {
			return fmt.Errorf("there is no field %q: a column may be %s, or nothing, to be left out", field,
				strings.Join(Fields(), ", "))
		}
	}
	for _, field := range slices.Sorted(maps.Keys(o.Set)) {
		if !slices.Contains(keyFields, field) {
			return fmt.Errorf("%q cannot be set for all rows: only %s can", field, strings.Join(keyFields, ", "))
		}
	}
	if o.Dates != "" && o.Dates != DayFirst && o.Dates != MonthFirst {
		return fmt.Errorf("dates are %s or %s", DayFirst, MonthFirst)
	}
	return nil
}

// unpacked reads all of a file.
func unpacked(r io.Reader, most int64) ([]byte, error) {
	content, err := atMost(r, most)
	if err != nil || !bytes.HasPrefix(content, []byte("\x1f\x8b")) {
		return content, err
	}
	packed, err := gzip.NewReader(bytes.NewReader(content))
	if err == nil {
		content, err = atMost(packed, most)
	}
	if err != nil && !errors.Is(err, ErrTooLarge) {
		err = fmt.Errorf("the file cannot be unpacked: %w", err)
	}
	return content, err
}

func atMost(r io.Reader, most int64) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(content)) > most {
		err = fmt.Errorf("%w: it may have %d MiB", ErrTooLarge, most>>20)
	}
	return content, err
}

// findHeader returns the table that begins with the first line that names a day, a key and an amount, or of a file
// without one with the line that names the most fields.
func findHeader(content []byte, encoding leadfile.Encoding, o Options) (*leadfile.Table, columns, error) {
	var first *leadfile.Table
	var firstColumns columns
	var failed error
	for skip := range titleLines {
		table, err := leadfile.NewTable(encoding.Decode(bytes.NewReader(content)), leadfile.Dialect{Skip: skip})
		if errors.Is(err, leadfile.ErrNoHeader) {
			if first == nil {
				return nil, columns{}, err
			}
			break
		}
		if err != nil {
			if first == nil {
				failed = cmp.Or(failed, err)
			}
			continue
		}
		found, err := mapColumns(table.Header, o.Map)
		if err == nil && found.has(amount) && found.missing(o.Set) == nil {
			return table, found, nil
		}
		// The line that names the most fields is the header that a person means.
		if score := found.score(); first == nil || score > firstColumns.score() {
			first, firstColumns, failed = table, found, err
		}
	}
	return first, firstColumns, failed
}

// score is how many columns are known.
func (c *columns) score() (known int) {
	for _, field := range c.fields {
		if field != leftOut {
			known++
		}
	}
	return known
}
