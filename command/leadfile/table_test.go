package leadfile_test

import (
	"errors"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/leadfile"
)

func rows(t require.TestingT, text string, delimiter rune) (*leadfile.Table, []leadfile.Row) {
	table, err := leadfile.NewTable(strings.NewReader(text), delimiter)
	require.NoError(t, err)
	var all []leadfile.Row
	for row, err := range table.Rows() {
		require.NoError(t, err)
		all = append(all, row)
	}
	return table, all
}

func TestTable_Dialects(t *testing.T) {
	t.Parallel()
	want := []leadfile.Row{{Line: 2, Cells: []string{"Rao, Asha", "98;76|5"}}, {Line: 3, Cells: []string{"Ravi", ""}}}
	for name, text := range map[string]string{
		"commas":           "name,phone\n\"Rao, Asha\",98;76|5\nRavi,\n",
		"semicolons":       "name;phone\r\nRao, Asha;\"98;76|5\"\r\nRavi;\r\n",
		"tabs":             "name\tphone\nRao, Asha\t98;76|5\nRavi\t",
		"bars":             "name|phone\nRao, Asha|\"98;76|5\"\nRavi|",
		"byte order mark":  "\ufeffname,phone\n\"Rao, Asha\",98;76|5\nRavi,",
		"quoted names":     "\"name\",\"phone\"\n\"Rao, Asha\",98;76|5\nRavi,",
		"too many or few":  "name,phone\n\"Rao, Asha\",98;76|5,\nRavi\n",
		"padded names":     " name , phone \n\"Rao, Asha\",98;76|5\nRavi,",
		"blanks elsewhere": "name,phone\n\"Rao, Asha\",98;76|5\nRavi,\n\n,,\n  , \n",
	} {
		table, got := rows(t, text, 0)
		require.Equal(t, []string{"name", "phone"}, table.Header, name)
		require.Equal(t, want, got, name)
	}
	_, got := rows(t, "a:b\n1:2", ':')
	require.Equal(t, []leadfile.Row{{Line: 2, Cells: []string{"1", "2"}}}, got)
	table, _ := rows(t, "\"name, first and last, as it is\";phone\n", 0)
	require.Equal(t, []string{"name, first and last, as it is", "phone"}, table.Header)
}

func TestTable_SeparatorLine(t *testing.T) {
	t.Parallel()
	const text = "\ufeffsep=;\nname, or so, or so;phone\nAsha;1,2,3,4\nRavi;\"9\"8\n"
	table, got := rows(t, text, 0)
	require.Equal(t, []string{"name, or so, or so", "phone"}, table.Header)
	require.Len(t, got, 2)
	require.Equal(t, leadfile.Row{Line: 3, Cells: []string{"Asha", "1,2,3,4"}}, got[0])
	require.Equal(t, 4, got[1].Line)
	require.Error(t, got[1].Err)
	table, _ = rows(t, text, ',')
	require.Equal(t, []string{"name", "or so", "or so;phone"}, table.Header, "an explicit delimiter takes precedence")
	for _, header := range []string{"sep=", "n"} { // column names
		table, got = rows(t, header+"\nAsha\n", 0)
		require.Equal(t, []string{header}, table.Header)
		require.Equal(t, []leadfile.Row{{Line: 2, Cells: []string{"Asha"}}}, got)
	}
}

// The length of a row is limited, the length of a file is not.
func TestTable_LongFile(t *testing.T) {
	t.Parallel()
	const row = "Asha Rao,9876543210\n"
	const count = 5 << 20 / len(row)
	_, got := rows(t, "name,phone\n"+strings.Repeat(row, count), 0)
	require.Len(t, got, count)
	require.Equal(t, leadfile.Row{Line: count + 1, Cells: []string{"Asha Rao", "9876543210"}}, got[count-1])
}

// A file of Excel's "CSV (Macintosh)" was once read as one long header: no row was imported, and no error was reported.
func TestTable_CarriageReturns(t *testing.T) {
	t.Parallel()
	for _, mark := range []string{"", "\ufeff", "sep=;\r"} {
		table, got := rows(t, mark+"name;phone\r\"Asha\nRao\";98765\r\rRavi;98766", 0)
		require.Equal(t, []string{"name", "phone"}, table.Header)
		require.Len(t, got, 2)
		require.Equal(t, []string{"Asha\nRao", "98765"}, got[0].Cells)
		require.Equal(t, []string{"Ravi", "98766"}, got[1].Cells)
	}
	_, got := rows(t, "name,phone\nAsha\rRao,98765\n", 0)
	require.Equal(t, []leadfile.Row{{Line: 2, Cells: []string{"Asha\rRao", "98765"}}}, got, "a carriage return in a file with line feeds is data")
}

func TestTable_BadRow(t *testing.T) {
	t.Parallel()
	_, got := rows(t, "a,b\n1,\"two\nlines\"\n1,2,3\nx\"y,2\n\"x\"y,2\n3,4\n1,2,,3\n", 0)
	var lines []int
	for _, row := range got {
		lines = append(lines, row.Line)
		require.Equal(t, row.Err == nil, row.Cells != nil)
	}
	require.Equal(t, []int{2, 4, 5, 6, 7, 8}, lines)
	require.Equal(t, []string{"1", "two\nlines"}, got[0].Cells)
	require.EqualError(t, got[1].Err, "has 3 cells under 2 columns")
	require.Error(t, got[2].Err)
	require.Error(t, got[3].Err)
	require.Equal(t, []string{"3", "4"}, got[4].Cells)
	require.EqualError(t, got[5].Err, "has 4 cells under 2 columns", "only empty trailing cells are ignored")
}

func TestTable_ReadError(t *testing.T) {
	t.Parallel()
	_, err := leadfile.NewTable(strings.NewReader(""), 0)
	require.ErrorIs(t, err, leadfile.ErrNoHeader)
	errRead := errors.New("read failed")
	_, err = leadfile.NewTable(iotest.ErrReader(errRead), 0)
	require.ErrorIs(t, err, errRead)

	table, err := leadfile.NewTable(strings.NewReader("a,b\n1,2\n\"never closed"+strings.Repeat(",x\n", 1<<20)), 0)
	require.NoError(t, err)
	var failed error
	for _, err := range table.Rows() {
		failed = err
	}
	require.ErrorContains(t, failed, "is a closing quote missing?")
}

// FuzzTable requires that rows are as wide as the header and that line numbers increase.
func FuzzTable(f *testing.F) {
	f.Add("sep=;\na;b\n1;\"2\n3\"\n")
	f.Add("a,b\n\"\",\"\"\"\"\n'=x,\"\n")
	f.Fuzz(func(t *testing.T, text string) {
		table, err := leadfile.NewTable(strings.NewReader(text), 0)
		if err != nil {
			return
		}
		line := 0
		for row, err := range table.Rows() {
			require.NoError(t, err)
			require.Greater(t, row.Line, line)
			line = row.Line
			if row.Err == nil {
				require.Len(t, row.Cells, len(table.Header))
			}
		}
		columns, err := leadfile.MapColumns(table.Header, nil)
		if err != nil {
			return
		}
		for row := range table.Rows() {
			if row.Err == nil {
				_, _ = columns.Body(row.Cells)
			}
		}
	})
}
