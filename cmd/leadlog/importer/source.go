package importer

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/leadfile"
	"github.com/leadlog/leadlog/httpapi"
)

// csvSource is the source of leads from a CSV file. JSON lines name their own source.
const csvSource = "csv_import"

// maxLine is the bound of a request's body over HTTP.
const maxLine = 2 << 20 // bytes

// Source is an open file of leads.
type Source struct {
	file     *os.File
	total    uint64             // rows
	encoding *leadfile.Encoding // of CSV; nil for JSON lines
	dialect  leadfile.Dialect
	columns  leadfile.Columns
}

// File is a file of leads, and how to read it. Tags are those of a command's flags.
type File struct {
	Path      string            `arg:"" name:"file" placeholder:"FILE" help:"CSV with a header, or JSON lines."`
	Map       map[string]string `mapsep:"none" placeholder:"COLUMN=FIELD" help:"Field of a CSV column, such as phone, metadata.KEY or customFields.KEY, or nothing to leave it out. The error of an unknown field lists all. May be repeated."`
	Format    string            `enum:",csv,ndjson" default:"" placeholder:"FORMAT" help:"csv or ndjson. Default: detected from the name or the beginning of the file."`
	Delimiter string            `placeholder:"CHARACTER" help:"Delimiter of a CSV file, such as ; or tab. Default: detected from the header."`
	Skip      int               `placeholder:"N" help:"Lines before the header of a CSV file, such as a title."`
	Encoding  string            `placeholder:"NAME" help:"Encoding of a CSV file, such as windows-1251. Default: detected among UTF-8, UTF-16 and Windows-1252."`
}

// row is one lead in a file.
type row struct {
	line   int
	lines  int // how many it spans
	bytes  int
	body   map[string]jsontext.Value
	source string
	key    string
	err    error // why the row is invalid
}

// Open reads through the whole file once, so that nothing is imported from a file that cannot be read to its end.
func (f File) Open() (_ *Source, err error) {
	file, err := openRegular(f.Path)
	if err != nil {
		return nil, err
	}
	s := &Source{file: file}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	tabular, err := f.tabular(file)
	if err != nil {
		return nil, err
	}
	if tabular {
		err = f.openTable(s)
	} else if len(f.Map) > 0 || f.Delimiter != "" || f.Encoding != "" || f.Skip != 0 {
		err = cli.Usagef("--map, --delimiter, --encoding and --skip apply only to CSV, and the file is JSON lines")
	}
	if err != nil {
		return nil, err
	}
	for _, err := range s.texts() {
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Path, err)
		}
		s.total++
	}
	return s, nil
}

// Close closes the file.
func (s *Source) Close() { _ = s.file.Close() } // it was only read

const (
	saveAsCSV = "open it in the spreadsheet program, save it as CSV (in Excel: Save As, CSV UTF-8), and import that"
	exportCSV = "export the contacts as CSV from the program that it comes from, and import that"
)

// others are kinds of files that have no table or JSON lines: how they begin, in lower case, what they are, and what to do.
var others = []struct{ begin, is, remedy string }{
	{"pk\x03\x04", "a spreadsheet (XLSX), or another packed file", saveAsCSV + "; unpack a ZIP file"},
	{"\xd0\xcf\x11\xe0", "an old Excel workbook (XLS)", saveAsCSV},
	{"\x1f\x8b", "compressed by gzip", "unpack it"},
	{"%pdf-", "a PDF, which is for printing", exportCSV},
	{"{\\rtf", "a text document (RTF)", exportCSV},
	{"begin:vcard", "a file of vCards", exportCSV + ", or import it into Google Contacts and export a Google CSV there"},
	{"<?xml", "XML, as some programs export for Excel", saveAsCSV},
	{"<!doctype html", "a web page (HTML), as some programs export for Excel", saveAsCSV},
	{"<html", "a web page (HTML), as some programs export for Excel", saveAsCSV},
	{"<table", "a web page (HTML), as some programs export for Excel", saveAsCSV},
	{"[", "a JSON array", "write an object a line, as jq -c '.[]' does"},
	{"{\x00", "JSON in UTF-16", "convert it to UTF-8, as iconv -f UTF-16 -t UTF-8 does"},
	{"\x00{", "JSON in UTF-16", "convert it to UTF-8, as iconv -f UTF-16 -t UTF-8 does"},
	{"{\n", "JSON over several lines", "write an object a line, as jq -c . does"},
	{"{\r\n", "JSON over several lines", "write an object a line, as jq -c . does"},
}

// tabular reports whether the file is CSV; otherwise it is JSON lines.
func (f File) tabular(file *os.File) (bool, error) {
	head := make([]byte, 512)
	n, err := file.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	start := string(head[:n])
	for _, mark := range []string{"\ufeff", "\xff\xfe", "\xfe\xff"} {
		start = strings.TrimPrefix(start, mark)
	}
	start = strings.TrimLeft(start, " \t\r\n")
	for _, other := range others {
		if len(start) < len(other.begin) || !strings.EqualFold(start[:len(other.begin)], other.begin) {
			continue
		}
		if other.begin == "[" && (f.Format == "csv" || strings.EqualFold(filepath.Ext(f.Path), ".csv")) {
			break // a column may be called so
		}
		return false, fmt.Errorf("%s: this is %s: %s", f.Path, other.is, other.remedy)
	}
	if f.Format != "" {
		return f.Format == "csv", nil
	}
	switch strings.ToLower(filepath.Ext(f.Path)) {
	case ".csv", ".tsv":
		return true, nil
	case ".ndjson", ".jsonl":
		return false, nil
	}
	return !strings.HasPrefix(start, "{"), nil
}

func (f File) openTable(s *Source) error {
	var check cli.Checker
	if f.Delimiter != "" {
		s.dialect.Delimiter = parseDelimiter(&check, f.Delimiter)
	}
	if s.dialect.Skip = f.Skip; f.Skip < 0 {
		check.Refuse("--skip", strconv.Itoa(f.Skip), "0 or more")
	}
	found, err := f.encoding(s.file, &check)
	if err = errors.Join(err, check.Err()); err != nil {
		return err
	}
	s.encoding = &found
	table, err := s.table()
	if err != nil {
		return fmt.Errorf("%s: %w", f.Path, err)
	}
	s.dialect.Delimiter = table.Delimiter
	if s.columns, err = leadfile.MapColumns(table.Header, f.Map); err != nil {
		return cli.Usagef("%s: %w", f.Path, err)
	}
	return nil
}

func (f File) encoding(file *os.File, check *cli.Checker) (leadfile.Encoding, error) {
	if f.Encoding == "" {
		return leadfile.Detect(file)
	}
	named, err := leadfile.EncodingNamed(f.Encoding)
	if err != nil {
		check.Refuse("--encoding", f.Encoding, "a name such as utf-8, windows-1251 or shift_jis")
	}
	return named, nil
}

// table reads the file from its beginning.
func (s *Source) table() (*leadfile.Table, error) {
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return leadfile.NewTable(s.encoding.Decode(s.file), s.dialect)
}

// Describe prints how a CSV file is read: encoding, delimiter and the columns that are renamed or left out.
func (s *Source) Describe(w io.Writer) {
	if s.encoding == nil {
		return
	}
	fmt.Fprintf(w, "CSV in %s, delimiter %q\n", s.encoding.Name, s.dialect.Delimiter)
	for i, column := range s.columns.Header {
		switch target := s.columns.Fields[i]; {
		case column == "":
			fmt.Fprintf(w, "  column %d: left out, for it has no name\n", i+1)
		case target == "":
			fmt.Fprintf(w, "  %s: left out\n", cli.Printable(column))
		case target != column:
			fmt.Fprintf(w, "  %s: %s\n", cli.Printable(column), cli.Printable(target))
		}
	}
}

// rowText is one row of the file: the JSON of a capture's body, or the error.
type rowText struct {
	line  int
	lines int
	json  []byte
	err   error
}

// texts yields the rows of the file. The second value is an error of reading the file; one about a row is in the row.
func (s *Source) texts() iter.Seq2[rowText, error] {
	if s.encoding == nil {
		return s.jsonTexts()
	}
	return func(yield func(rowText, error) bool) {
		table, err := s.table()
		if err != nil {
			yield(rowText{}, err)
			return
		}
		for row, err := range table.Rows() {
			text := rowText{line: row.Line, lines: row.Lines}
			if row.Err != nil {
				text.err = badRow(row.Err)
			} else if err == nil {
				text.json, text.err = s.body(row.Cells)
			}
			if !yield(text, err) || err != nil {
				return
			}
		}
	}
}

func badRow(err error) error { return field.Errors{{Field: "row", Message: err.Error()}} }

func (s *Source) body(cells []string) ([]byte, error) {
	body, err := s.columns.Body(cells)
	var cell *leadfile.CellError
	if errors.As(err, &cell) {
		return nil, field.Errors{{Field: cell.Column, Message: cell.Err.Error()}}
	}
	return body, err
}

func (s *Source) jsonTexts() iter.Seq2[rowText, error] {
	return func(yield func(rowText, error) bool) {
		if _, err := s.file.Seek(0, io.SeekStart); err != nil {
			yield(rowText{}, err)
			return
		}
		for line, err := range leadfile.Lines(s.file, maxLine) {
			text := rowText{line: line.Number, lines: 1, json: line.Text}
			if line.TooLong {
				text.err = badRow(errors.New("is longer than 2 MiB"))
			}
			if !yield(text, err) || err != nil {
				return
			}
		}
	}
}

// rows yields the rows of the file as bodies of captures, each with its key.
//
// The idempotency key is derived from the row's content and the number of equal rows before it, not from the file's name or the row's
// number. So when a file is imported again, because the import was interrupted, rows were added or bad rows were corrected, only new
// rows have an effect. Two equal rows in one file are two arrivals.
func (s *Source) rows() iter.Seq2[row, error] {
	return func(yield func(row, error) bool) {
		seen := map[uint64]uint32{}
		for text, err := range s.texts() {
			row := row{line: text.line, lines: text.lines, bytes: len(text.json), err: text.err}
			if s.encoding != nil {
				row.source = csvSource
			}
			if err == nil && row.err == nil {
				row.body, row.err = httpapi.ParseObject(text.json)
			}
			if err == nil && row.err == nil {
				sum := digest(row.source, row.body)
				short := binary.BigEndian.Uint64(sum)
				seen[short]++
				row.key = "import " + hex.EncodeToString(sum) + " " + strconv.FormatUint(uint64(seen[short]), 10)
			}
			if !yield(row, err) || err != nil {
				return
			}
		}
	}
}

// digest is a hash of a row's content. The order of members does not matter.
func digest(source string, body map[string]jsontext.Value) []byte {
	hash := sha256.New()
	write := func(part string) {
		hash.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part)))) // "a", "bc" must not hash like "ab", "c"
		hash.Write([]byte(part))
	}
	write(source)
	for _, name := range slices.Sorted(maps.Keys(body)) {
		write(name)
		write(string(body[name]))
	}
	return hash.Sum(nil)[:16]
}

// reason describes an error in one line.
func reason(err error) string {
	var wrong field.Errors
	if !errors.As(err, &wrong) {
		return err.Error()
	}
	parts := make([]string, len(wrong))
	for i, one := range wrong {
		parts[i] = one.Field + " " + one.Message
	}
	return strings.Join(parts, "; ")
}

func parseDelimiter(c *cli.Checker, value string) rune {
	if value == "tab" || value == `\t` {
		return '\t'
	}
	r, size := utf8.DecodeRuneInString(value)
	if size != len(value) || r == '"' || r == '\r' || r == '\n' || r == utf8.RuneError {
		c.Refuse("--delimiter", value, "one character that is no quote, or tab")
	}
	return r
}

// openRegular opens a regular file, which can be read more than once.
func openRegular(path string) (*os.File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: must be a file, since it is read twice", path)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// Is reports whether a path leads to this file.
func (s *Source) Is(path string) bool {
	own, err := s.file.Stat()
	if err != nil {
		return false
	}
	other, err := os.Stat(path)
	return err == nil && os.SameFile(own, other)
}
