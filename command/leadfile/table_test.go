package leadfile_test

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/leadfile"
)

func rows(t require.TestingT, text string, delimiter rune) (*leadfile.Table, []leadfile.Row) {
	table, err := leadfile.NewTable(strings.NewReader(text), leadfile.Dialect{Delimiter: delimiter})
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
	want := []leadfile.Row{{Line: 2, Lines: 1, Cells: []string{"Rao, Asha", "98;76|5"}}, {
		Line: 3, Lines: 1, Cells: []string{"Ravi", ""},
	}}
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
	require.Equal(t, []leadfile.Row{{Line: 2, Lines: 1, Cells: []string{"1", "2"}}}, got)
	table, _ := rows(t, "\"name, first and last, as it is\";phone\n", 0)
	require.Equal(t, []string{"name, first and last, as it is", "phone"}, table.Header)
}

func TestTable_SeparatorLine(t *testing.T) {
	t.Parallel()
	const text = "\ufeffsep=;\nname, or so, or so;phone\nAsha;1,2,3,4\nRavi;\"9\"8\n"
	table, got := rows(t, text, 0)
	require.Equal(t, []string{"name, or so, or so", "phone"}, table.Header)
	require.Len(t, got, 2)
	require.Equal(t, leadfile.Row{Line: 3, Lines: 1, Cells: []string{"Asha", "1,2,3,4"}}, got[0])
	require.Equal(t, 4, got[1].Line)
	require.Error(t, got[1].Err)
	table, _ = rows(t, text, ',')
	require.Equal(t, []string{"name", "or so", "or so;phone"}, table.Header, "an explicit delimiter takes precedence")
	for _, header := range []string{"sep=", "n"} { // column names
		table, got = rows(t, header+"\nAsha\n", 0)
		require.Equal(t, []string{header}, table.Header)
		require.Equal(t, []leadfile.Row{{Line: 2, Lines: 1, Cells: []string{"Asha"}}}, got)
	}
}

// The length of a row is limited, the length of a file is not.
func TestTable_LongFile(t *testing.T) {
	t.Parallel()
	const row = "Asha Rao,9876543210\n"
	const count = 5 << 20 / len(row)
	_, got := rows(t, "name,phone\n"+strings.Repeat(row, count), 0)
	require.Len(t, got, count)
	require.Equal(t, leadfile.Row{Line: count + 1, Lines: 1, Cells: []string{"Asha Rao", "9876543210"}}, got[count-1])
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
	require.Equal(t, []leadfile.Row{{Line: 2, Lines: 1, Cells: []string{"Asha\rRao", "98765"}}}, got,
		"a carriage return in a file with line feeds is data")
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
	require.Equal(t, []string{"x\"y", "2"}, got[2].Cells, "a quote within a cell is a character")
	require.ErrorContains(t, got[3].Err, "not doubled")
	require.Equal(t, []string{"3", "4"}, got[4].Cells)
	require.EqualError(t, got[5].Err, "has 4 cells under 2 columns", "only empty trailing cells are ignored")
}

func TestTable_ReadError(t *testing.T) {
	t.Parallel()
	_, err := leadfile.NewTable(strings.NewReader(""), leadfile.Dialect{})
	require.ErrorIs(t, err, leadfile.ErrNoHeader)
	errRead := errors.New("read failed")
	_, err = leadfile.NewTable(iotest.ErrReader(errRead), leadfile.Dialect{})
	require.ErrorIs(t, err, errRead)
}

func texts(rows []leadfile.Row) (out []string) {
	for _, row := range rows {
		text := strings.Join(row.Cells, "|")
		if row.Err != nil {
			text = row.Err.Error()
		}
		out = append(out, fmt.Sprintf("%d+%d %s", row.Line, row.Lines, text))
	}
	return out
}

// A note that was cut before its closing quote once gave one person the phone of another, and three did not exist.
func TestTable_QuoteSwallowsRows(t *testing.T) {
	t.Parallel()
	const header = "Name,Note,Phone\n"
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"up to a quote": {
			"Binu,\"cut note,9876585002\nChitra,x,9876585003\nDev,x,9876585004\nEsha,TV 42\",9876585005\n",
			[]string{
				"2+1 begins a quoted cell from line 2 to 5, with lines in it that are rows: is a quote missing, or " +
					"one too many?",
				"3+1 Chitra|x|9876585003", "4+1 Dev|x|9876585004", "5+1 Esha|TV 42\"|9876585005",
			},
		},
		"up to the next line": {
			"Binu,\"cut note,9876585002\nEsha,TV 42\",9876585005\n",
			[]string{
				"2+1 begins a quoted cell from line 2 to 3, with lines in it that are rows: is a quote missing, or " +
					"one too many?",
				"3+1 Esha|TV 42\"|9876585005",
			},
		},
		"up to the end": {
			"Binu,\"cut note,9876585002\nChitra,x,9876585003\n",
			[]string{
				"2+1 begins a quoted cell that is not closed up to line 3: is a quote missing, or one too many?",
				"3+1 Chitra|x|9876585003",
			},
		},
		"up to a quote in a cell": {
			"Binu,\"cut note,9876585002\nChitra,5\" pipe,9876585003\n",
			[]string{
				"2+1 has a quote in a quoted cell that is not doubled (lines 2 to 3)", "3+1 Chitra|5\" pipe|9876585003",
			},
		},
		"a note of lines": {
			"Binu,\"first, or not\n\nthird, of three\",9876585002\n\"Chi\ntra\",x,9876585003\n",
			[]string{"2+3 Binu|first, or not\n\nthird, of three|9876585002", "5+2 Chi\ntra|x|9876585003"},
		},
		"a quoted note with phones": {
			"Binu,\"call\n9876500001\nor 9876500002, please\",9876585002\n",
			[]string{"2+3 Binu|call\n9876500001\nor 9876500002, please|9876585002"},
		},
	} {
		_, got := rows(t, header+c.text, 0)
		require.Equal(t, c.want, texts(got), name)
	}
	long := "Binu,\"" + strings.Repeat("x", 3<<20) + "\nChitra,x,9876585003\n"
	_, got := rows(t, header+long, 0)
	require.Equal(t, []string{"2+1 is longer than 2 MiB", "3+1 Chitra|x|9876585003"}, texts(got))
	_, got = rows(t, header+"Binu,\""+strings.Repeat("note\n", 1<<20), 0)
	require.Len(t, got, 1<<20, "each line of a cell that is not closed is read by itself")
}

func TestTable_TabsHaveCharacters(t *testing.T) {
	t.Parallel()
	_, got := rows(t,
		"name\tphone\tnote\nAsha \"CJ\" R\t9876587011\t5\" pipe\n\"CJ\" Rao\t9876587012\t\"a \"\"b\"\"\"\n"+
			"\"Line\none\"\t9876587013\tx\n\"Open\t9876587014\tx\nLast\t9876587015\tx\"\n", 0)
	require.Equal(t, []string{
		`2+1 Asha "CJ" R|9876587011|5" pipe`, `3+1 "CJ" Rao|9876587012|a "b"`, "4+2 Line\none|9876587013|x",
		`6+1 "Open|9876587014|x`, `7+1 Last|9876587015|x"`,
	}, texts(got))
}

func TestTable_InvalidBytes(t *testing.T) {
	t.Parallel()
	_, got := rows(t, "name,city\nJosé,पुणे\nRen\xe9,Paris\nAs\x00ha,x\n", 0)
	require.Equal(t,
		[]string{"2+1 José|पुणे", `3+1 has bytes in column "name" that are not UTF-8`, "4+1 Asha|x"},
		texts(got))
}

func TestTable_LinesBeforeHeader(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"Leads of May\n\"sep=;\"\n\nname;phone\nAsha;1\n", "Leads of May\nSEP=;\n\nname;phone\nAsha;1\n",
	} {
		table, err := leadfile.NewTable(strings.NewReader(text), leadfile.Dialect{Skip: 1})
		require.NoError(t, err)
		require.Equal(t, []string{"name", "phone"}, table.Header)
		require.Equal(t, 4, table.Before)
	}
	_, err := leadfile.NewTable(strings.NewReader("a\n"), leadfile.Dialect{Skip: 2})
	require.ErrorIs(t, err, leadfile.ErrNoHeader)
}

// FuzzTable requires that rows are as wide as the header, and that rows, the header and blank lines are all lines of
// the file, in order.
func FuzzTable(f *testing.F) {
	f.Add("sep=;\na;b\n1;\"2\n3\"\n", 0)
	f.Add("a,b\n\"\",\"\"\"\"\n'=x,\"\n", 0)
	f.Add("title\na\tb\n\"x\ty\n1\t\"2\n3\"", 1)
	f.Fuzz(func(t *testing.T, text string, skip int) {
		table, err := leadfile.NewTable(strings.NewReader(text), leadfile.Dialect{Skip: max(0, skip%10)})
		if err != nil {
			return
		}
		next, lines := table.Before+1, table.Before
		for row, err := range table.Rows() {
			require.NoError(t, err)
			require.GreaterOrEqual(t, row.Line, next)
			next, lines = row.Line+row.Lines, lines+row.Lines
			if row.Err == nil {
				require.Len(t, row.Cells, len(table.Header))
			}
		}
		text = strings.TrimPrefix(text, "\ufeff")
		whole := strings.Count(text, "\n")
		if !strings.HasSuffix(text, "\n") {
			whole++
		}
		if !strings.Contains(text, "\r") { // which ends lines in some files
			require.Equal(t, whole, lines+table.Blank)
		}
	})
}

// FuzzTable_ContactsStayApart damages a table whose rows have the contacts of one person each, and requires that no row
// has those of two.
func FuzzTable_ContactsStayApart(f *testing.F) {
	f.Add(uint16(20), byte(0), byte(4))
	f.Add(uint16(60), byte(1), byte(0))
	f.Add(uint16(100), byte(2), byte(9))
	f.Fuzz(func(t *testing.T, at uint16, damage, second byte) {
		var text strings.Builder
		text.WriteString("Email,Note,Name,Phone\n")
		const persons = 9
		for i := range persons {
			note := []string{"x", `"a, b"`, `""`, `"say ""hi"""`}[i%4]
			fmt.Fprintf(&text, "p%d@example.com,%s,Asha,987650000%d\n", i, note, i)
		}
		damaged := []byte(text.String())
		for _, index := range []int{int(at), int(at) + int(second)*7} {
			index %= len(damaged)
			damaged = slices.Insert(damaged, index, []byte(`"`)...)
			// which row it is must stay recognisable
			if damage%2 == 1 && !strings.ContainsAny(string(damaged[index+1]), ",\n") {
				damaged = slices.Delete(damaged, index+1, index+2)
			}
		}
		table, err := leadfile.NewTable(bytes.NewReader(damaged), leadfile.Dialect{})
		if err != nil {
			return
		}
		for row, err := range table.Rows() {
			require.NoError(t, err)
			text := strings.Join(row.Cells, "|")
			seen := map[byte]bool{}
			for _, found := range regexp.MustCompile(`p(\d)@example|987650000(\d)`).FindAllString(text, -1) {
				found = strings.TrimSuffix(found, "@example")
				seen[found[len(found)-1]] = true
			}
			require.LessOrEqual(t, len(seen), 1, "%q in\n%s", text, damaged)
		}
	})
}
