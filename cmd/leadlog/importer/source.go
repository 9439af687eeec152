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
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/lead"
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
	columns  *leadfile.Columns // of CSV
	rules    lead.Rules        // of the account
	before   int               // lines before the rows
	blank    int               // blank lines among them
}

// File is a file of leads, and how to read it. Tags are those of a command's flags.
type File struct {
	Path      string            `arg:"" optional:"" name:"file" placeholder:"FILE" help:"CSV with a header, or JSON lines."`
	Map       map[string]string `mapsep:"none" placeholder:"COLUMN=FIELD" help:"Field of a CSV column, such as phone, metadata.KEY or customFields.KEY, or nothing to leave it out. The error of an unknown field lists all. May be repeated."`
	Keep      []string          `sep:"none" placeholder:"COLUMN" help:"Column of a CSV file that stays a custom field, although it looks like a contact. May be repeated."`
	At        string            `placeholder:"COLUMN" help:"Column of a CSV file with the time when the person came. Default: known by its name."`
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
	record leadfile.Record // of CSV, for what is not in the body
	source string
	key    string
	err    error // why the row is invalid
}

// Open opens a file and finds out how to read it. The errors about it and about the flags come before any row.
func (f File) Open() (_ *Source, err error) {
	if f.Path == "" {
		return nil, cli.Usagef("name the file to import")
	}
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
	} else if len(f.Map) > 0 || f.Delimiter != "" || f.Encoding != "" || f.Skip != 0 || len(f.Keep) > 0 || f.At != "" {
		err = cli.Usagef("--map, --keep, --at, --delimiter, --encoding and --skip apply only to CSV, and the file " +
			"is JSON lines")
	}
	return s, err
}

// Survey reads through the whole file once, so that nothing is imported from a file that cannot be read to its end. It
// prints what each column becomes, and returns an error if a person must decide on that first. Yes is that decision.
func (s *Source) Survey(w io.Writer, rules lead.Rules, now time.Time, yes bool) error {
	s.rules = rules
	if s.encoding == nil {
		for _, err := range s.jsonTexts() {
			if err != nil {
				return err
			}
			s.total++
		}
		return nil
	}
	table, err := s.table()
	if err != nil {
		return err
	}
	survey := s.columns.NewSurvey(rules)
	for row, err := range table.Rows() {
		if err != nil {
			return err
		}
		if s.total++; row.Err == nil {
			survey.Add(row.Cells)
		}
	}
	s.before, s.blank = table.Before, table.Blank
	survey.Settle(now)
	s.describe(w, survey)
	for _, note := range survey.Notes() {
		fmt.Fprintf(w, "note: %s\n", cli.Printable(note))
	}
	none, contacts := survey.Questions()
	if none && s.columns.HeaderIsRow(rules.Region) {
		return cli.Usagef("the first row must name the columns, and looks like a person: add a row such as " +
			"name,phone,email before it")
	}
	if none {
		return cli.Usagef("no column is a phone or an email%s: name one by --map \"COLUMN=phone\"%s",
			s.hint(contacts), s.titleHint())
	}
	if len(contacts) > 0 && !yes {
		return cli.Usagef("contacts would become custom fields%s: say what the column is by --map \"COLUMN=phone\", "+
			"that it is none by "+
			"--keep \"COLUMN\", or --yes", s.hint(contacts))
	}
	return nil
}

func (s *Source) hint(contacts []string) string {
	if len(contacts) == 0 {
		return ""
	}
	return " (" + cli.Printable(strings.Join(contacts, "; ")) + ")"
}

// titleHint names the line that looks like the header, if that is not the first.
func (s *Source) titleHint() string {
	for skip := s.before; skip < s.before+10; skip++ {
		dialect := leadfile.Dialect{Skip: skip}
		if _, err := s.file.Seek(0, io.SeekStart); err != nil {
			return ""
		}
		table, err := leadfile.NewTable(s.encoding.Decode(s.file), dialect)
		if err != nil {
			return ""
		}
		columns, err := leadfile.MapColumns(table.Header, leadfile.Options{})
		if err == nil && slices.Contains(columns.Contacts(), true) {
			return fmt.Sprintf("; or, if line %d names the columns, leave out those before it by --skip %d",
				table.Before, table.Before-1)
		}
	}
	return ""
}

// describe prints how the file is read, and what each column becomes.
func (s *Source) describe(w io.Writer, survey *leadfile.Survey) {
	fmt.Fprintf(w, "CSV in %s, delimiter %q, %d rows\n", s.encoding.Name, s.dialect.Delimiter, s.total)
	if survey.Rows > survey.Sampled {
		fmt.Fprintf(w, "(emails and phones of the first %d rows)\n", survey.Sampled)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "  column\tbecomes\tfilled\temails\tphones\texamples")
	for _, column := range survey.Columns {
		becomes := column.Becomes
		if becomes == "" {
			becomes = "(left out)"
		}
		var examples []string
		for _, example := range column.Examples {
			examples = append(examples, cli.Printable(strings.ReplaceAll(example, "\t", " ")))
		}
		fmt.Fprintf(table, "  %s\t%s\t%d\t%d\t%d\t%s\n", cli.Printable(column.Name), cli.Printable(becomes),
			column.Filled, column.Emails, column.Phones, strings.Join(examples, " | "))
	}
	_ = table.Flush() // like other prints, which may fail
}

// Close closes the file.
func (s *Source) Close() { _ = s.file.Close() } // it was only read

const (
	saveAsCSV = "open it in the spreadsheet program, save it as CSV (in Excel: Save As, CSV UTF-8), and import that"
	exportCSV = "export the contacts as CSV from the program that it comes from, and import that"
)

// others are kinds of files that have no table or JSON lines: how they begin, in lower case, what they are, and what to
// do.
var others = []struct{ begin, is, remedy string }{
	{"pk\x03\x04", "a spreadsheet (XLSX), or another packed file", saveAsCSV + "; unpack a ZIP file"},
	{"\xd0\xcf\x11\xe0", "an old Excel workbook (XLS)", saveAsCSV},
	{"\x1f\x8b", "compressed by gzip", "unpack it"},
	{"%pdf-", "a PDF, which is for printing", exportCSV},
	{"{\\rtf", "a text document (RTF)", exportCSV},
	{
		"begin:vcard", "a file of vCards",
		exportCSV + ", or import it into Google Contacts and export a Google CSV there",
	},
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
	options := leadfile.Options{Map: f.Map, Keep: f.Keep, At: f.At}
	if s.columns, err = leadfile.MapColumns(table.Header, options); err != nil {
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
	table, err := leadfile.NewTable(s.encoding.Decode(s.file), s.dialect)
	if err == nil && s.columns != nil {
		table.KnowContacts(s.columns.Contacts())
	}
	return table, err
}

// Provider returns the kind of the intakes whose arrivals the rows of the file may be; empty for none.
func (s *Source) Provider() string {
	if s.columns == nil {
		return ""
	}
	return s.columns.Provider
}

// digests returns those of the file's content, and of how its columns are read.
func (s *Source) digests() (file, reading string, err error) {
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return "", "", err
	}
	hash := sha256.New()
	if _, err := io.Copy(hash, s.file); err != nil {
		return "", "", err
	}
	file = hex.EncodeToString(hash.Sum(nil)[:16])
	hash.Reset()
	if s.columns != nil {
		fmt.Fprintf(hash, "%s %q %d\n", s.encoding.Name, s.dialect.Delimiter, s.dialect.Skip)
		for _, field := range s.columns.Fields() {
			fmt.Fprintf(hash, "%q\n", field)
		}
	}
	return file, hex.EncodeToString(hash.Sum(nil)[:16]), nil
}

// accounted says which lines of a CSV file are in no row.
func (s *Source) accounted() string {
	if s.encoding == nil {
		return ""
	}
	return fmt.Sprintf("; other lines: %d up to the header, %d blank", s.before, s.blank)
}

// rowText is one row of the file: the JSON of a capture's body, or the error.
type rowText struct {
	line   int
	lines  int
	record leadfile.Record
	err    error
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
				text.record, text.err = s.record(row.Cells)
			}
			if !yield(text, err) || err != nil {
				return
			}
		}
	}
}

func badRow(err error) error { return field.Errors{{Field: "row", Message: err.Error()}} }

func (s *Source) record(cells []string) (leadfile.Record, error) {
	record, err := s.columns.Record(cells, s.rules)
	var cell *leadfile.CellError
	if errors.As(err, &cell) {
		return leadfile.Record{}, field.Errors{{Field: cell.Column, Message: cell.Err.Error()}}
	}
	return record, err
}

func (s *Source) jsonTexts() iter.Seq2[rowText, error] {
	return func(yield func(rowText, error) bool) {
		if _, err := s.file.Seek(0, io.SeekStart); err != nil {
			yield(rowText{}, err)
			return
		}
		for line, err := range leadfile.Lines(s.file, maxLine) {
			text := rowText{line: line.Number, lines: 1, record: leadfile.Record{Body: line.Text}}
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
// The idempotency key is derived from the row's content and the number of equal rows before it, not from the file's
// name or the row's number. So when a file is imported again, because the import was interrupted, rows were added or
// bad rows were corrected, only new rows have an effect. Two equal rows in one file are two arrivals.
func (s *Source) rows() iter.Seq2[row, error] {
	return func(yield func(row, error) bool) {
		seen := map[uint64]uint32{}
		for text, err := range s.texts() {
			row := row{line: text.line, lines: text.lines, record: text.record, err: text.err}
			row.bytes = len(text.record.Body)
			if s.encoding != nil {
				row.source = csvSource
			}
			if err == nil && row.err == nil {
				row.body, row.err = httpapi.ParseObject(text.record.Body)
			}
			if err == nil && row.err == nil {
				if row.record.DeliveryID != "" {
					row.key = "import " + s.columns.Provider + " " + row.record.DeliveryID
				} else {
					row.key = s.key(row, seen)
				}
			}
			if !yield(row, err) || err != nil {
				return
			}
		}
	}
}

// key returns the idempotency key of a row that no provider has named.
func (s *Source) key(row row, seen map[uint64]uint32) string {
	sum := digest(row.source, row.record, row.body)
	short := binary.BigEndian.Uint64(sum)
	seen[short]++
	return "import " + hex.EncodeToString(sum) + " " + strconv.FormatUint(uint64(seen[short]), 10)
}

// digest is a hash of a row's content. The order of members does not matter.
func digest(source string, record leadfile.Record, body map[string]jsontext.Value) []byte {
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
	if !record.ReceivedAt.IsZero() {
		write(record.ReceivedAt.Format(time.RFC3339Nano))
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
