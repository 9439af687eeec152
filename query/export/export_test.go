package export

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/leadfile"
	"github.com/leadlog/leadlog/query"
)

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
		require.Equal(t, text, leadfile.Defused(text))
	}
}

func TestPlainCSV_KeepsText(t *testing.T) {
	t.Parallel()
	sheet := Sheet[string]{Columns: []Column[string]{Text("phone", func(phone string) string { return phone })}}
	for format, want := range map[Format]string{CSV: "phone\n'+919876543210\n", PlainCSV: "phone\n+919876543210\n"} {
		var out strings.Builder
		_, err := sheet.Write(&out, format, func(yield func(string, error) bool) { yield("+919876543210", nil) }, func() {})
		require.NoError(t, err)
		require.Equal(t, want, out.String())
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
