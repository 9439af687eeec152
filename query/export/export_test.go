package export

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/command/leadfile"
	"github.com/leadlog/leadlog/query"
)

func TestCSV_EscapesFormulas(t *testing.T) {
	t.Parallel()
	for _, cell := range []string{"=1", "+1", "-1", "@x", "\tx", "\rx", "'=1", "''+1", "\nx", "＝1", "＠x", `"=1`,
		"\ufeff=1", "\u200b=1", "\u00ad=1", "\u202e=1", "\u200b'\u2060=1", "\x00=1", "\ufe0f=1", "\u3164+1"} {
		require.Equal(t, "'"+cell, Defused(cell))
	}
	for _, cell := range []string{"", "x", "1", "a=b", "é", "'", "'x", "''", "a; b", "a\nb", "a;b=c", "a\r\n"} {
		require.Equal(t, cell, Defused(cell))
	}
	for cell, want := range map[string]string{
		"x;=cmd|' /c calc'!A0": "x;'=cmd|' /c calc'!A0", "x;'=1;;-1": "x;''=1;;'-1", "x\t+1": "x\t'+1",
		"x\n=1": "x\n'=1", "x\r\n@a": "x\r\n'@a", `x;"=1`: `x;'"=1`, "x;\u200b=1": "x;'\u200b=1", "x\n\n=1": "x\n\n'=1",
		"x;\u00ad\n=1": "x;\u00ad\n'=1", "x;＝1": "x;'＝1", "=1;=2": "'=1;'=2", "\t=1": "'\t'=1",
	} {
		require.Equal(t, want, Defused(cell), "a spreadsheet may split at another delimiter than the comma")
	}
}

// An import reads exported texts unchanged.
func TestCSV_ImportRestoresText(t *testing.T) {
	t.Parallel()
	columns, err := leadfile.MapColumns([]string{"Notes"}, leadfile.Options{})
	require.NoError(t, err)
	part := rapid.SampledFrom([]string{
		"=", "+", "＝", "@", "'", `"`, ";", "\n", "\r", "\t", "\ufeff", "\u200b", "\u00ad", "\u202e", "\u3164", "\x1f",
		"x", " ",
	})
	rapid.Check(t, func(t *rapid.T) {
		text := "x" + strings.Join(rapid.SliceOf(part).Draw(t, "text"), "")
		text = text[rapid.IntRange(0, 1).Draw(t, "from"):]
		if strings.TrimSpace(text) == "" {
			return
		}
		record, err := columns.Record([]string{Defused(text)}, lead.Rules{})
		require.NoError(t, err)
		var read struct{ CustomFields map[string]string }
		require.NoError(t, json.Unmarshal(record.Body, &read, json.MatchCaseInsensitiveNames(true)))
		require.Equal(t, text, read.CustomFields["Notes"])
	})
}

func TestCSV_EscapesFormulasInJSON(t *testing.T) {
	t.Parallel()
	for cell, want := range map[string]string{
		`{"k":"a;=1"}`: `{"k":"a;\u003d1"}`, `{"a;-":["x;'@y",-1]}`: `{"a;\u002d":["x;'\u0040y",-1]}`,
		`{"k":"a;＝1"}`: `{"k":"a;\uff1d1"}`, `{"k":"a; b=1;"}`: `{"k":"a; b=1;"}`, `{"k;":-1}`: `{"k;":-1}`,
		`[";",-1]`: `[";",-1]`, `{"k":"=1"}`: `{"k":"=1"}`,
	} {
		text := JSON("metadata", func(cell string) string { return cell }).text(cell)
		require.Equal(t, want, text)
		require.JSONEq(t, cell, text)
		require.Equal(t, text, Defused(text))
	}
}

// limitedWriter is a writer that fails after left bytes, like a full disk.
type limitedWriter struct{ left int }

var errFull = errors.New("no space left")

func (f *limitedWriter) Write(p []byte) (int, error) {
	if f.left -= len(p); f.left < 0 {
		return 0, errFull
	}
	return len(p), nil
}

func TestSheet_ReturnsWriteError(t *testing.T) {
	t.Parallel()
	sheet := Sheet[string]{Columns: []Column[string]{Text("name", func(name string) string { return name })}}
	for _, format := range []Format{CSV, NDJSON, Parquet} {
		for _, rows := range []int{1, 10_000} {
			items := func(yield func(string, error) bool) {
				for range rows {
					if !yield("Asha", nil) {
						return
					}
				}
			}
			fits := &limitedWriter{100_000}
			written, err := sheet.Write(fits, format, items, func() {})
			require.NoError(t, err)
			require.Equal(t, rows, written)
			_, err = sheet.Write(&limitedWriter{100_000 - fits.left - 1}, format, items, func() {})
			require.ErrorIs(t, err, errFull, "%s, %d rows", format, rows)
		}
	}
}

// The list of leads has no metadata and contacts, and shows no joined leads.
func TestLeads_ColumnOfEveryMember(t *testing.T) {
	t.Parallel()
	members := []string{"metadata", "joined", "joinedInto", "contacts"}
	for _, column := range Leads().Columns {
		members = append(members, column.Name)
	}
	var want []string
	for _, field := range reflect.VisibleFields(reflect.TypeFor[query.Lead]()) {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); !field.Anonymous && name != "-" {
			want = append(want, name)
		}
	}
	require.ElementsMatch(t, want, members)
}
