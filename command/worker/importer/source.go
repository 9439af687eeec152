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
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/contact"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/command/leadfile"
)

// csvSource is the source of leads from a CSV file. JSON lines name their own source.
const csvSource = "csv_import"

// RowMemory is how much an import keeps of each row: the hash of its content, in a map.
const RowMemory = 40

// maxLine is the bound of a request's body over HTTP.
const maxLine = 2 << 20 // bytes

// File is a file that is read more than once.
type File interface {
	io.ReadSeeker
	io.ReaderAt
}

// Options are how a person wants a file to be read. What is not set is detected.
type Options struct {
	Format    string // csv or ndjson
	Delimiter string // a character, or tab
	Encoding  string
	Skip      int // lines before the header
	Columns   leadfile.Options
}

// OptionError is an option that is wrong. Want completes "must be".
type OptionError struct{ Option, Value, Want string }

func (e *OptionError) Error() string {
	return fmt.Sprintf("%s=%q: must be %s", e.Option, e.Value, e.Want)
}

// ColumnsError is what is wrong with the options of columns.
type ColumnsError struct{ error }

// ErrOnlyCSV means that a file of JSON lines has options of CSV.
var ErrOnlyCSV = errors.New("apply only to CSV, and the file is JSON lines")

// Source is an open file of leads.
type Source struct {
	file     File
	total    uint64             // rows
	encoding *leadfile.Encoding // of CSV; nil for JSON lines
	dialect  leadfile.Dialect
	columns  *leadfile.Columns // of CSV
	rules    lead.Rules        // of the account
	before   int               // lines before the rows
	blank    int               // blank lines among them
}

// row is one row of a file.
type row struct {
	line  int
	lines int // how many it spans
	bytes int
	// read returns the lead of the row, or why the row is invalid. Several may run at once. It waits for the reads of
	// earlier rows, so it must be called for each row.
	read func() (leadfile.Record, string, error)
}

// Open finds out how to read a file, whose name may tell its format. The errors about it and about the options come
// before any row.
func Open(file File, name string, o Options) (*Source, error) {
	s := &Source{file: file}
	tabular, err := o.tabular(file, name)
	if err != nil {
		return nil, err
	}
	if tabular {
		return s, o.openTable(s)
	}
	columns := o.Columns
	if len(columns.Map)+len(columns.Keep) > 0 || columns.At+o.Delimiter+o.Encoding != "" || o.Skip != 0 {
		return nil, ErrOnlyCSV
	}
	return s, nil
}

// Report is what a file has, and whether a person must decide before its rows are imported.
type Report struct {
	Encoding  string // of CSV; empty for JSON lines
	Delimiter rune   // likewise
	Rows      uint64
	Sampled   uint64 // phones and emails of so many rows were counted; 0 is all
	Columns   []leadfile.SurveyedColumn
	Notes     []string // what a person should look at

	NoContact bool     // no column is a phone or an email: nothing can be imported
	Headless  bool     // the first row looks like a person, and does not name the columns
	Skip      int      // lines that are before one that looks like the header; 0 for none
	Contacts  []string // why columns that become custom fields look like contacts
}

// Survey reads through the whole file once, by the settings of the account, so that nothing is imported from a file
// that cannot be read to its end.
func (s *Source) Survey(settings account.State, now time.Time) (Report, error) {
	s.rules = lead.RulesOf(settings, contact.File)
	if s.encoding == nil {
		for _, err := range s.jsonTexts() {
			if err != nil {
				return Report{}, err
			}
			s.total++
		}
		return Report{Rows: s.total}, nil
	}
	table, err := s.table()
	if err != nil {
		return Report{}, err
	}
	survey := s.columns.NewSurvey(s.rules)
	if days := settings.RetentionDays; days > 0 {
		survey.CountOld(now.AddDate(0, 0, -days), now)
	}
	for row, err := range table.Rows() {
		if err != nil {
			return Report{}, err
		}
		if s.total++; row.Err == nil {
			survey.Add(row.Cells)
		}
	}
	s.before, s.blank = table.Before, table.Blank
	survey.Settle(now)
	r := Report{
		Encoding: s.encoding.Name, Delimiter: s.dialect.Delimiter, Rows: s.total, Columns: survey.Columns,
		Notes: survey.Notes(),
	}
	if survey.Sampled < survey.Rows {
		r.Sampled = uint64(survey.Sampled)
	}
	if survey.Old > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%d rows are of persons who came more than %d days ago, which is how "+
			"long the account keeps leads: they will be erased within a day, unless their stage is kept",
			survey.Old, settings.RetentionDays))
	}
	r.NoContact, r.Contacts = survey.Questions()
	r.Headless = r.NoContact && s.columns.HeaderIsRow(s.rules.Region)
	if r.NoContact && !r.Headless {
		r.Skip = s.header()
	}
	return r, nil
}

// header returns how many lines are before one that looks like the header, if that is not the first; 0 for none.
func (s *Source) header() int {
	for skip := s.before; skip < s.before+10; skip++ {
		if _, err := s.file.Seek(0, io.SeekStart); err != nil {
			return 0
		}
		table, err := leadfile.NewTable(s.encoding.Decode(s.file), leadfile.Dialect{Skip: skip})
		if err != nil {
			return 0
		}
		columns, err := leadfile.MapColumns(table.Header, leadfile.Options{})
		if err == nil && slices.Contains(columns.Contacts(), true) {
			return table.Before - 1
		}
	}
	return 0
}

// tabular reports whether the file is CSV; otherwise it is JSON lines.
func (o Options) tabular(file io.ReaderAt, name string) (bool, error) {
	head := make([]byte, 512)
	n, err := file.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	start := string(head[:n])
	start = leadfile.Start(start)
	mayBeColumn := o.Format == "csv" || strings.EqualFold(filepath.Ext(name), ".csv")
	if err := leadfile.OtherFormat(start, mayBeColumn); err != nil {
		return false, err
	}
	if o.Format != "" {
		return o.Format == "csv", nil
	}
	switch strings.ToLower(filepath.Ext(name)) {
	case ".csv", ".tsv":
		return true, nil
	case ".ndjson", ".jsonl":
		return false, nil
	}
	return !strings.HasPrefix(start, "{"), nil
}

func (o Options) openTable(s *Source) (err error) {
	if s.dialect.Delimiter, err = o.delimiter(); err != nil {
		return err
	}
	if s.dialect.Skip = o.Skip; o.Skip < 0 {
		return &OptionError{"skip", strconv.Itoa(o.Skip), "0 or more"}
	}
	found, err := o.encoding(s.file)
	if err != nil {
		return err
	}
	s.encoding = &found
	table, err := s.table()
	if err != nil {
		return err
	}
	s.dialect.Delimiter = table.Delimiter
	if s.columns, err = leadfile.MapColumns(table.Header, o.Columns); err != nil {
		return &ColumnsError{err}
	}
	return nil
}

func (o Options) encoding(file io.ReadSeeker) (leadfile.Encoding, error) {
	if o.Encoding == "" {
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			return leadfile.Encoding{}, err
		}
		return leadfile.Detect(file)
	}
	named, err := leadfile.EncodingNamed(o.Encoding)
	if err != nil {
		return named, &OptionError{"encoding", o.Encoding, "a name such as utf-8, windows-1251 or shift_jis"}
	}
	return named, nil
}

func (o Options) delimiter() (rune, error) {
	if o.Delimiter == "" {
		return 0, nil
	}
	if o.Delimiter == "tab" || o.Delimiter == `\t` {
		return '\t', nil
	}
	r, size := utf8.DecodeRuneInString(o.Delimiter)
	if size != len(o.Delimiter) || r == '"' || r == '\r' || r == '\n' || r == utf8.RuneError {
		return 0, &OptionError{"delimiter", o.Delimiter, "one character that is no quote, or tab"}
	}
	return r, nil
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

// OtherLines returns which lines of a CSV file are in no row: those up to the header, and blank ones among the rows.
func (s *Source) OtherLines() (header, blank int) { return s.before, s.blank }

// rowText is the text of one row, or the error.
type rowText struct {
	line  int
	lines int
	bytes int
	cells []string // of CSV
	json  []byte   // of JSON lines
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
			text := rowText{line: row.Line, lines: row.Lines, cells: row.Cells}
			for _, cell := range row.Cells {
				text.bytes += len(cell)
			}
			if row.Err != nil {
				text.err = badRow(row.Err)
			}
			if !yield(text, err) || err != nil {
				return
			}
		}
	}
}

func badRow(err error) error { return field.Errors{{Field: "row", Message: err.Error()}} }

// record returns the lead of a row. The error is why the row is invalid.
func (s *Source) record(text rowText) (record leadfile.Record, err error) {
	switch {
	case text.err != nil:
		return record, text.err
	case s.encoding == nil:
		record.Body, err = lead.ParseObject(text.json)
		return record, err
	}
	record, err = s.columns.Record(text.cells, s.rules)
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
			text := rowText{line: line.Number, lines: 1, bytes: len(line.Text), json: line.Text}
			if line.TooLong {
				text.err = badRow(errors.New("is longer than 2 MiB"))
			}
			if !yield(text, err) || err != nil {
				return
			}
		}
	}
}

// rows yields the rows of the file, each with its lead and the lead's key.
//
// The idempotency key is derived from the row's content and the number of equal rows before it, not from the file's
// name or the row's number. So when a file is imported again, because the import was interrupted, rows were added or
// bad rows were corrected, only new rows have an effect. Two equal rows in one file are two arrivals. That of a row
// with an id of the provider's is derived from the id and the contacts: another person under the id is another arrival.
func (s *Source) rows() iter.Seq2[row, error] {
	return func(yield func(row, error) bool) {
		seen := map[uint64]uint32{}
		last := make(chan struct{}) // closed when the row before has its key
		close(last)
		for text, err := range s.texts() {
			before, keyed := last, make(chan struct{})
			last = keyed
			read := func() (record leadfile.Record, key string, err error) {
				defer func() {
					<-before
					close(keyed)
				}()
				if record, err = s.record(text); err != nil {
					return record, "", err
				}
				sum := digest(s.name(), record)
				if s.encoding == nil {
					record.Body, record.Warnings = repaired(record.Body, s.rules)
				}
				if record.DeliveryID != "" {
					return record, fmt.Sprintf("import %s %s %s %s", s.columns.Provider, record.DeliveryID,
						record.Body["phone"], record.Body["email"]), nil
				}
				<-before
				return record, keyOf(sum, seen), nil
			}
			if !yield(row{text.line, text.lines, text.bytes, read}, err) || err != nil {
				return
			}
		}
	}
}

// name returns the source of the leads; empty when each names its own.
func (s *Source) name() string {
	if s.encoding == nil {
		return ""
	}
	return csvSource
}

// repaired returns a body, and if it is invalid, in a form that only the lack of a usable contact can make invalid.
func repaired(body map[string]jsontext.Value, rules lead.Rules) (map[string]jsontext.Value, field.Warnings) {
	if _, err := lead.ParseArrival(body, rules, lead.Client{}); err == nil {
		return body, nil
	}
	return lead.Repaired(lead.Unaliased(body), rules, false)
}

// keyOf returns the idempotency key of a row that no provider has named, by the digest of its content.
func keyOf(sum []byte, seen map[uint64]uint32) string {
	short := binary.BigEndian.Uint64(sum)
	seen[short]++
	return "import " + hex.EncodeToString(sum) + " " + strconv.FormatUint(uint64(seen[short]), 10)
}

// digest is a hash of a row's content. The order of members does not matter.
func digest(source string, record leadfile.Record) []byte {
	hash := sha256.New()
	write := func(part string) {
		hash.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part)))) // "a", "bc" must not hash like "ab", "c"
		hash.Write([]byte(part))
	}
	write(source)
	for _, name := range slices.Sorted(maps.Keys(record.Body)) {
		write(name)
		write(string(record.Body[name]))
	}
	if !record.ReceivedAt.IsZero() {
		write(record.ReceivedAt.Format(time.RFC3339Nano))
	}
	return hash.Sum(nil)[:16]
}
