// Package export writes the results of queries as CSV, JSON lines or Parquet. sheets.go has the columns of each list.
// It buffers few rows, so that an export of any size needs the same memory.
package export

import (
	"encoding/csv"
	"io"
	"iter"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/leadfile"
)

// Format is how rows are written.
type Format string

// Formats.
const (
	CSV      Format = "csv"
	PlainCSV Format = "plain csv" // without apostrophes before what a spreadsheet could read as a formula
	NDJSON   Format = "ndjson"
	Parquet  Format = "parquet"
)

// MediaType returns the media type of a format.
func (f Format) MediaType() string {
	switch f {
	case CSV, PlainCSV:
		return "text/csv; charset=utf-8"
	case Parquet:
		return "application/vnd.apache.parquet"
	}
	return "application/x-ndjson; charset=utf-8"
}

// Sheet defines how items of one kind become rows of CSV and Parquet. As JSON lines, they are as in the API's answers.
type Sheet[T any] struct {
	Name    string // of a file, without extension
	Columns []Column[T]
}

// Write writes items and returns how many. It calls begin once, before it writes the first byte but not before it has
// the first item, so that an early error can still be answered with a status of its own.
func (s Sheet[T]) Write(w io.Writer, format Format, items iter.Seq2[T, error], begin func()) (written int, err error) {
	var out writer[T]
	begun := false
	open := func() error {
		if begun {
			return nil
		}
		begun = true
		begin()
		out, err = s.writer(w, format)
		return err
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
	return written, out.close()
}

// While yields items until admitted, which it calls before each, returns an error, because the credential of a slow
// reader may expire during an export.
func While[T any](admitted func() error, items iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for item, err := range items {
			if err == nil {
				err = admitted()
			}
			if !yield(item, err) || err != nil {
				return
			}
		}
	}
}

// writer writes one item after another.
type writer[T any] interface {
	write(T) error
	close() error
}

func (s Sheet[T]) writer(w io.Writer, format Format) (writer[T], error) {
	switch format {
	case CSV, PlainCSV:
		lines := &lines[T]{csv.NewWriter(w), s.Columns, make([]string, len(s.Columns)), format == PlainCSV}
		for i, c := range s.Columns {
			lines.cells[i] = c.Name
		}
		return lines, lines.out.Write(lines.cells)
	case Parquet:
		return newTable(w, s), nil
	}
	return objects[T]{w}, nil
}

// lines are CSV.
type lines[T any] struct {
	out     *csv.Writer
	columns []Column[T]
	cells   []string // of one line
	plain   bool
}

func (l *lines[T]) write(item T) error {
	for i, c := range l.columns {
		if l.cells[i] = c.text(item); !l.plain {
			l.cells[i] = leadfile.Defused(l.cells[i])
		}
	}
	return l.out.Write(l.cells)
}

func (l *lines[T]) close() error {
	l.out.Flush()
	return l.out.Error()
}

// objects are JSON lines.
type objects[T any] struct{ w io.Writer }

func (o objects[T]) write(item T) error {
	line, err := json.Marshal(item, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return err
	}
	_, err = o.w.Write(append(line, '\n'))
	return err
}

func (objects[T]) close() error { return nil }
