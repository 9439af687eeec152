package leadfile_test

import (
	"bytes"
	"encoding/csv"
	"errors"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/command/leadfile"
)

// FuzzCells reads back cells that encoding/csv wrote in each dialect.
func FuzzCells(f *testing.F) {
	f.Add("Rao, Asha", "98;76|5", "line\none", " \"quoted\" ")
	f.Add("sep=;", "=1+1", "\ufeff", "\\.")
	f.Add("a\nb@example.com\t", "\t", "2\n", "3\t")
	f.Fuzz(func(t *testing.T, one, two, three, four string) {
		// A carriage return before a line feed is part of the line end, as in every reader of CSV. A lead has no NUL.
		cells := []string{one, two, three, four}
		for i, cell := range cells {
			cells[i] = strings.NewReplacer("\r", "", "\x00", "").Replace(strings.ToValidUTF8(cell, ""))
		}
		for _, delimiter := range []rune{',', ';', '\t', '|'} {
			var file bytes.Buffer
			w := csv.NewWriter(&file)
			w.Comma = delimiter
			require.NoError(t, w.WriteAll([][]string{{"name", "a", "b", "metadata"}, cells}))
			table, rows := rows(t, file.String(), delimiter)
			if strings.TrimSpace(strings.Join(cells, "")) == "" {
				require.Empty(t, rows)
				continue
			}
			// If a line of a cell looks like a row, the cell is refused with its lines; in a TSV file its quote is a
			// character, and each line is a row.
			several := strings.Contains(strings.Join(cells, ""), "\n")
			if several && (rows[0].Err != nil || delimiter == '\t' && len(rows) > 1) {
				continue
			}
			require.Len(t, rows, 1, "%q", file.String())
			require.NoError(t, rows[0].Err)
			require.Equal(t, cells, rows[0].Cells)
			requireBody(t, table, rows[0])
		}
	})
}

// requireBody requires that a row yields strict JSON or a CellError.
func requireBody(t *testing.T, table *leadfile.Table, row leadfile.Row) {
	t.Helper()
	columns, err := leadfile.MapColumns(table.Header, leadfile.Options{})
	require.NoError(t, err)
	record, err := columns.Record(row.Cells, lead.Rules{Region: "IN"})
	var wrong *leadfile.CellError
	if err != nil {
		require.ErrorAs(t, err, &wrong)
		return
	}
	body, err := lead.ParseObject([]byte(bodyOf(t, record)))
	require.NoError(t, err)
	require.Equal(t, body, record.Body, "values have the form in which bodies are read")
}

// FuzzEncoding requires that any file decodes to valid UTF-8, and that valid UTF-8 is unchanged.
func FuzzEncoding(f *testing.F) {
	for _, file := range []string{
		"name,phone\n", "\xff\xfen\x00a\x00", "\xfe\xff\x00n", "caf\xe9", "\xef\xbb\xbfname", "\x00\xd8\x00\xd8", "é",
	} {
		f.Add([]byte(file))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		encoding, err := leadfile.Detect(bytes.NewReader(file))
		require.NoError(t, err)
		text, err := io.ReadAll(encoding.Decode(bytes.NewReader(file)))
		require.NoError(t, err)
		require.True(t, encoding.Name == "UTF-8" || utf8.Valid(text))
		require.LessOrEqual(t, len(text), 4*len(file)+4)
		if encoding.Name == "UTF-8" {
			require.Equal(t, string(file), string(text))
		}
	})
}

// FuzzRecord requires that a row with a contact that can be used becomes a valid arrival, whatever else it has.
func FuzzRecord(f *testing.F) {
	f.Add("Status", "open", "Rating", "x", "Value", "1.5 Cr", "Created", "soon", "IP Address", "1")
	f.Add("utm_source", "a\tb", "User Agent", "\x01", "visitorId", "v", "Name", "{{x}}", "Country", "IN")
	f.Add(strings.Repeat("question ", 20), "x", strings.Repeat("question ", 20), "y", "", "z", "Note",
		strings.Repeat("é", 2500), "Email", "x;y")
	f.Fuzz(func(t *testing.T, h1, c1, h2, c2, h3, c3, h4, c4, h5, c5 string) {
		names := []string{"Phone", h1, h2, h3, h4, h5}
		cells := []string{"+919876543210", c1, c2, c3, c4, c5}
		for i := range names {
			names[i] = strings.TrimSpace(strings.ToValidUTF8(names[i], ""))
			cells[i] = strings.ReplaceAll(strings.ToValidUTF8(cells[i], ""), "\x00", "")
		}
		columns, err := leadfile.MapColumns(names, leadfile.Options{})
		require.NoError(t, err)
		survey := columns.NewSurvey(rules)
		survey.Add(cells)
		survey.Settle(now)
		record, err := columns.Record(cells, rules)
		var wrong *leadfile.CellError
		if errors.As(err, &wrong) {
			return // a cell of metadata or custom fields that is no object
		}
		require.NoError(t, err)
		body := record.Body
		if body["phone"] == nil && body["email"] == nil {
			return
		}
		_, err = lead.ParseArrival(body, rules, lead.Client{})
		require.NoError(t, err, "%q", record.Body)
	})
}
