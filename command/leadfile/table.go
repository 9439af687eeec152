package leadfile

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
)

// maxRecord is the maximum size of a row. An unclosed quote makes the rest of a file one row.
const maxRecord = 2 << 20 // bytes

// ErrNoHeader means that a table has no first row to name its columns.
var ErrNoHeader = errors.New("the file is empty: its first row must name the columns")

const byteOrderMark = "\ufeff"

// Table reads CSV text row by row.
type Table struct {
	Header    []string
	Delimiter rune
	csv       *csv.Reader
	bound     *bound
	skipped   int // lines before the header
}

// Row is one row of a table.
type Row struct {
	Line  int      // where it begins, from 1, as an editor counts
	Cells []string // as many as there are columns
	Err   error    // why the row is invalid; it then has no cells
}

// NewTable reads the header. A delimiter of 0 is detected from it, or from the line sep=; that Excel writes first.
func NewTable(r io.Reader, delimiter rune) (*Table, error) {
	in := bufio.NewReaderSize(r, chunk)
	t := &Table{Delimiter: delimiter}
	head, err := in.Peek(chunk)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if endsInReturns(head) {
		in = bufio.NewReaderSize(returns{in}, chunk)
	}
	first, err := firstLine(in)
	if err != nil {
		return nil, err
	}
	if marked, ok := strings.CutPrefix(first, byteOrderMark); ok {
		first = marked
		if _, err := in.Discard(len(byteOrderMark)); err != nil {
			return nil, err
		}
	}
	if named, ok := strings.CutPrefix(strings.TrimRight(first, "\r\n"), "sep="); ok && len(named) == 1 {
		if _, err := in.Discard(len(first)); err != nil {
			return nil, err
		}
		t.skipped = 1
		if t.Delimiter == 0 {
			t.Delimiter = rune(named[0])
		}
		if first, err = firstLine(in); err != nil {
			return nil, err
		}
	}
	if t.Delimiter == 0 {
		t.Delimiter = mostFrequent(first)
	}
	t.bound = &bound{r: in, left: maxRecord}
	t.csv = csv.NewReader(t.bound)
	t.csv.Comma, t.csv.FieldsPerRecord, t.csv.ReuseRecord = t.Delimiter, -1, true
	header, err := t.csv.Read()
	switch {
	case errors.Is(err, io.EOF):
		return nil, ErrNoHeader
	case err != nil:
		return nil, fmt.Errorf("header: %w", err)
	}
	for _, name := range header {
		t.Header = append(t.Header, strings.TrimSpace(name))
	}
	return t, nil
}

// firstLine returns the next line, or as much of it as fits into a chunk, without consuming it.
func firstLine(in *bufio.Reader) (string, error) {
	head, err := in.Peek(chunk)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	line, _, ended := strings.Cut(string(head), "\n")
	if ended {
		line += "\n"
	}
	return line, nil
}

// endsInReturns reports whether lines end in a carriage return alone, as in Excel's "CSV (Macintosh)". Cells may still contain
// line feeds.
func endsInReturns(head []byte) bool {
	quoted, found := false, false
	for _, b := range head {
		switch {
		case b == '"':
			quoted = !quoted
		case quoted:
		case b == '\n':
			return false
		case b == '\r':
			found = true
		}
	}
	return found
}

// returns replaces carriage returns by line feeds, the only line end that encoding/csv knows. Without it, the whole file would be the
// header.
type returns struct{ r io.Reader }

func (c returns) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	for i, b := range p[:n] {
		if b == '\r' {
			p[i] = '\n'
		}
	}
	return n, err
}

// mostFrequent returns the delimiter that occurs most often in a line, outside of quotes.
func mostFrequent(line string) rune {
	const delimiters = ",;\t|"
	count := map[rune]int{}
	quoted := false
	for _, r := range line {
		if r == '"' {
			quoted = !quoted
		} else if !quoted && strings.ContainsRune(delimiters, r) {
			count[r]++
		}
	}
	best := ','
	for _, r := range delimiters {
		if count[r] > count[best] {
			best = r
		}
	}
	return best
}

// Rows yields the rows that are not blank, including those that are wrong. The second value is an error of reading the file, or of
// a row that does not end.
func (t *Table) Rows() iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		for {
			t.bound.left = maxRecord + chunk // the reader may be ahead by its buffer
			cells, err := t.csv.Read()
			var row Row
			var wrong *csv.ParseError
			switch {
			case errors.Is(err, io.EOF):
				return
			case errors.As(err, &wrong):
				row = Row{Line: wrong.StartLine + t.skipped, Err: wrong.Err}
			case err != nil:
				yield(Row{}, err)
				return
			default:
				line, _ := t.csv.FieldPos(0)
				row = t.row(line+t.skipped, cells)
			}
			if row.Err == nil && blankCells(row.Cells) {
				continue
			}
			if !yield(row, nil) {
				return
			}
		}
	}
}

// row fits cells to the columns: empty cells beyond the last column are dropped, missing ones are empty.
func (t *Table) row(line int, cells []string) Row {
	for len(cells) > len(t.Header) && cells[len(cells)-1] == "" {
		cells = cells[:len(cells)-1]
	}
	if len(cells) > len(t.Header) {
		return Row{Line: line, Err: fmt.Errorf("has %d cells under %d columns", len(cells), len(t.Header))}
	}
	whole := make([]string, len(t.Header))
	copy(whole, cells)
	return Row{Line: line, Cells: whole}
}

func blankCells(cells []string) bool {
	for _, cell := range cells {
		if strings.TrimSpace(cell) != "" {
			return false
		}
	}
	return true
}

// errEndless means that a row is longer than maxRecord.
var errEndless = errors.New("a row is longer than 2 MiB: is a closing quote missing?")

// bound is a reader that fails after left bytes.
type bound struct {
	r    io.Reader
	left int
}

func (b *bound) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errEndless
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
