package leadfile

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"unicode/utf8"

	"github.com/leadlog/leadlog/command/contact"
)

// maxRecord is the maximum size of a row.
const maxRecord = 2 << 20 // bytes

// ErrNoHeader means that a table has no first row to name its columns.
var ErrNoHeader = errors.New("the file is empty: its first row must name the columns")

// Dialect is how the text of a table is read.
type Dialect struct {
	Delimiter rune // 0: detected from the header, or from the line sep=; that Excel writes first
	Skip      int  // lines before the header
}

// Table reads CSV text row by row. Every line of the text is one of a row, of the header or before it, or blank.
type Table struct {
	Header    []string
	Delimiter rune
	Before    int // lines before the rows: skipped ones, blank ones and the header
	Blank     int // lines that were blank, or had blank cells only, among the rows read so far

	contacts []bool // which columns have contacts; nil: not known
	lines    lines
}

// Row is one row of a table.
type Row struct {
	Line  int      // where it begins, from 1, as an editor counts
	Lines int      // how many it spans
	Cells []string // as many as there are columns
	Err   error    // why the row is invalid; it then has no cells
}

// NewTable reads the header.
func NewTable(r io.Reader, dialect Dialect) (*Table, error) {
	in := bufio.NewReaderSize(r, chunk)
	head, err := in.Peek(chunk)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(head) >= len(byteOrderMark) && string(head[:len(byteOrderMark)]) == byteOrderMark {
		if _, err := in.Discard(len(byteOrderMark)); err != nil {
			return nil, err
		}
	}
	if endsInReturns(head) {
		in = bufio.NewReaderSize(returns{in}, chunk)
	}
	t := &Table{Delimiter: dialect.Delimiter, lines: lines{in: in}}
	for range dialect.Skip {
		if _, err := t.lines.next(); err != nil {
			return nil, noHeader(err)
		}
	}
	return t, t.readHeader()
}

func (t *Table) readHeader() error {
	for {
		first, err := t.lines.next()
		if err != nil {
			return noHeader(err)
		}
		if blank(first.text) {
			continue
		}
		if mark, ok := separator(string(first.text)); ok {
			if t.Delimiter == 0 {
				t.Delimiter = mark
			}
			continue
		}
		if t.Delimiter == 0 {
			t.Delimiter = mostFrequent(string(first.text))
		}
		t.lines.unread(first)
		break
	}
	row, err := t.record()
	switch {
	case err != nil:
		return noHeader(err)
	case row.Err != nil:
		return fmt.Errorf("header: %w", row.Err)
	}
	for _, name := range row.Cells {
		t.Header = append(t.Header, strings.TrimSpace(strings.ToValidUTF8(name, "\ufffd")))
	}
	t.Before = t.lines.number
	return nil
}

func noHeader(err error) error {
	if errors.Is(err, io.EOF) {
		return ErrNoHeader
	}
	return err
}

const byteOrderMark = "\ufeff"

// separator returns the delimiter of a line like sep=; in any letter case, which may be quoted.
func separator(line string) (rune, bool) {
	line = strings.Trim(strings.Trim(line, " \r"), `"`)
	const name = "sep="
	if len(line) != len(name)+1 || !strings.EqualFold(line[:len(name)], name) {
		return 0, false
	}
	return rune(line[len(name)]), true
}

// KnowContacts tells which columns have contacts. It lets Rows recognise lines that are rows in a cell that is not
// closed.
func (t *Table) KnowContacts(columns []bool) { t.contacts = columns }

// endsInReturns reports whether lines end in a carriage return alone, as in Excel's "CSV (Macintosh)". Cells may still
// contain line feeds.
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

// returns replaces carriage returns by line feeds. Without it, the whole file would be the header.
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

// Rows yields the rows that are not blank, including those that are wrong. The second value is an error of reading the
// file.
func (t *Table) Rows() iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		for {
			row, err := t.record()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(Row{}, err)
				return
			}
			if row.Err == nil {
				if blankCells(row.Cells) {
					t.Blank += row.Lines
					continue
				}
				row = t.fit(row)
			}
			if !yield(row, nil) {
				return
			}
		}
	}
}

// fit fits cells to the columns: empty cells beyond the last column are dropped, missing ones are empty.
func (t *Table) fit(row Row) Row {
	for len(row.Cells) > len(t.Header) && row.Cells[len(row.Cells)-1] == "" {
		row.Cells = row.Cells[:len(row.Cells)-1]
	}
	if len(row.Cells) > len(t.Header) {
		return row.refused("has %d cells under %d columns", len(row.Cells), len(t.Header))
	}
	for len(row.Cells) < len(t.Header) {
		row.Cells = append(row.Cells, "")
	}
	return row
}

func (r Row) refused(format string, args ...any) Row {
	return Row{Line: r.Line, Lines: r.Lines, Err: fmt.Errorf(format, args...)}
}

func blankCells(cells []string) bool {
	for _, cell := range cells {
		if strings.TrimSpace(cell) != "" {
			return false
		}
	}
	return true
}

// record reads the next row, which may span lines. If a quoted cell goes wrong, only the row's first line is refused,
// and the next row is read from the line behind it: a quote that is not closed must not take other rows with it.
func (t *Table) record() (Row, error) {
	first, err := t.lines.next()
	if err != nil {
		return Row{}, err
	}
	row := Row{Line: first.number, Lines: 1}
	if first.tooLong {
		return row.refused("is longer than 2 MiB"), nil
	}
	s := splitter{
		delimiter: []byte(string(t.Delimiter)), literal: t.Delimiter == '\t',
		cells: make([]string, 0, max(len(t.Header), 8)),
	}
	state := s.feed(first.text)
	read := []line{first}
	for size := len(first.text); state == open; {
		next, err := t.lines.next()
		if err != nil && !errors.Is(err, io.EOF) {
			return Row{}, err
		}
		if size += len(next.text); err == nil {
			read = append(read, next)
		}
		if err != nil || next.tooLong || size > maxRecord {
			break
		}
		state = s.feed(next.text)
	}
	last := read[len(read)-1].number
	switch {
	case state == open && s.literal, state == closed && len(read) > 1 && s.literal && t.swallows(read):
		t.lines.unread(read[1:]...) // the end of the quote is not there: it is a character
		s = splitter{delimiter: s.delimiter, literal: true, never: true, cells: s.cells[:0]}
		s.feed(first.text)
	case state == open:
		t.lines.unread(read[1:]...)
		return row.refused("begins a quoted cell that is not closed up to line %d: "+oneQuote, last), nil
	case state == broken:
		t.lines.unread(read[1:]...)
		return row.refused("has a quote in a quoted cell that is not doubled (lines %d to %d)", row.Line, last), nil
	case len(read) > 1 && t.swallows(read):
		t.lines.unread(read[1:]...)
		return row.refused("begins a quoted cell from line %d to %d, with lines in it that are rows: "+oneQuote,
			row.Line, last), nil
	default:
		row.Lines = len(read)
	}
	for i, cell := range s.cells {
		if !utf8.ValidString(cell) && t.Header != nil {
			return row.refused("has bytes in column %q that are not UTF-8", t.column(i)), nil
		}
		s.cells[i] = strings.ReplaceAll(cell, "\x00", "")
	}
	row.Cells = s.cells
	return row, nil
}

const oneQuote = "is a quote missing, or one too many?"

func (t *Table) column(i int) string {
	if i < len(t.Header) {
		return t.Header[i]
	}
	return fmt.Sprint(i + 1)
}

// swallows reports whether lines that became one row, by a quoted cell, are rows themselves: one within has a contact
// in the place where rows have one; or the first and another one are as long as rows, and both have an email or both
// have a phone.
func (t *Table) swallows(read []line) bool {
	first := t.alone(read[0].text)
	for i, line := range read[1:] {
		cells := t.alone(line.text)
		if i+2 < len(read) && len(cells) == len(t.Header) && t.hasContact(cells) {
			return true
		}
		if len(first) < len(t.Header) || len(cells) < len(t.Header) {
			continue
		}
		emails, phones := resembling(first)
		if others, otherPhones := resembling(cells); emails && others || phones && otherPhones {
			return true
		}
	}
	return false
}

func (t *Table) hasContact(cells []string) bool {
	for i, cell := range cells {
		if (t.contacts == nil || t.contacts[i]) && contact.Resembles(cell) {
			return true
		}
	}
	return false
}

func resembling(cells []string) (email, phone bool) {
	for _, cell := range cells {
		if contact.Resembles(cell) {
			isEmail := strings.Contains(cell, "@")
			email, phone = email || isEmail, phone || !isEmail
		}
	}
	return email, phone
}

// alone splits a line by itself.
func (t *Table) alone(text []byte) []string {
	s := splitter{delimiter: []byte(string(t.Delimiter)), literal: true}
	if s.feed(text) == open {
		s = splitter{delimiter: s.delimiter, literal: true, never: true}
		s.feed(text)
	}
	return s.cells
}

// state is what a splitter is at the end of a line.
type state int

const (
	closed state = iota // the row is complete
	open                // in a quoted cell
	broken              // a quoted cell has a quote that is not doubled
)

// splitter splits the lines of one row into cells (RFC 4180). A quote in a cell that does not begin with one is a
// character.
type splitter struct {
	delimiter []byte
	// literal is the rule of tab-separated files: a cell is quoted only if its first single quote stands before a
	// delimiter or the end of a line.
	literal bool
	never   bool // no cell is quoted
	cells   []string
	quoted  []byte // the quoted cell that the line before began; nil: none
}

func (s *splitter) feed(text []byte) state {
	if s.quoted != nil {
		s.quoted = append(s.quoted, '\n')
		rest, state := s.unquote(text)
		if state != closed {
			return state
		}
		if text = rest; text == nil {
			return closed
		}
	}
	for {
		if len(text) > 0 && text[0] == '"' && !s.never {
			s.quoted = make([]byte, 0, len(text))
			rest, state := s.unquote(text[1:])
			switch {
			case state == open:
				return open
			case state == broken && !s.literal:
				return broken
			case state == closed && rest == nil:
				return closed
			case state == closed:
				text = rest
				continue
			}
			s.quoted = nil
		}
		end := bytes.Index(text, s.delimiter)
		if end < 0 {
			s.cells = append(s.cells, string(text))
			return closed
		}
		s.cells = append(s.cells, string(text[:end]))
		text = text[end+len(s.delimiter):]
	}
}

// unquote adds text to the quoted cell up to its end. Rest is what follows behind the delimiter; nil if the line ends.
func (s *splitter) unquote(text []byte) (rest []byte, _ state) {
	for i := 0; i < len(text); i++ {
		if text[i] != '"' {
			s.quoted = append(s.quoted, text[i])
			continue
		}
		behind := text[i+1:]
		switch {
		case len(behind) > 0 && behind[0] == '"':
			s.quoted = append(s.quoted, '"')
			i++
			continue
		case len(behind) == 0:
			rest = nil
		case bytes.HasPrefix(behind, s.delimiter):
			rest = behind[len(s.delimiter):]
		default:
			return nil, broken
		}
		s.cells = append(s.cells, string(s.quoted))
		s.quoted = nil
		return rest, closed
	}
	return nil, open
}
