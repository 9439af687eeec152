package leadfile_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/leadfile"
)

func all(r io.Reader, limit int) (lines []leadfile.Line, err error) {
	for line, failed := range leadfile.Lines(r, limit) {
		if failed != nil {
			return append(lines, line), failed
		}
		lines = append(lines, line)
	}
	return lines, nil
}

func TestLines_Numbered(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]leadfile.Line{
		"":             nil,
		"\n \r\n\t":    nil,
		"a":            {{Number: 1, Text: []byte("a")}},
		"a\nb\n":       {{Number: 1, Text: []byte("a")}, {Number: 2, Text: []byte("b")}},
		"\n\na\r\n\nb": {{Number: 3, Text: []byte("a\r")}, {Number: 5, Text: []byte("b")}},
		"abcd\nabcde\nx\nabcdefghij": {
			{Number: 1, Text: []byte("abcd")}, {Number: 2, TooLong: true}, {Number: 3, Text: []byte("x")},
			{Number: 4, TooLong: true},
		},
	} {
		for name, r := range map[string]io.Reader{
			"at once": strings.NewReader(text), "byte by byte": iotest.OneByteReader(strings.NewReader(text)),
		} {
			got, err := all(r, 4)
			require.NoError(t, err)
			require.Equal(t, want, got, "%q %s", text, name)
		}
	}
}

func TestLines_Truncated(t *testing.T) {
	t.Parallel()
	errRead := errors.New("read failed")
	lines, err := all(io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(errRead)), 100)
	require.ErrorIs(t, err, errRead)
	require.Equal(t, []leadfile.Line{{Number: 1, Text: []byte("a")}, {Number: 2}}, lines)
}

func TestLines_TooLong(t *testing.T) {
	t.Parallel()
	const limit = 200_000
	text := strings.Repeat("x", limit) + "\n" + strings.Repeat("x", limit+1) + "\n" + strings.Repeat("x", 2*limit) +
		"\nend"
	lines, err := all(strings.NewReader(text), limit)
	require.NoError(t, err)
	require.Len(t, lines[0].Text, limit)
	require.Equal(t,
		[]leadfile.Line{{Number: 2, TooLong: true}, {Number: 3, TooLong: true}, {Number: 4, Text: []byte("end")}},
		lines[1:])
}

func FuzzLines(f *testing.F) {
	f.Add([]byte("a\n\nb\r\n"), 3)
	f.Fuzz(func(t *testing.T, text []byte, limit int) {
		limit = max(0, limit%1000)
		lines, err := all(bytes.NewReader(text), limit)
		require.NoError(t, err)
		parts := bytes.Split(text, []byte("\n"))
		for _, line := range lines {
			part := parts[line.Number-1]
			require.Equal(t, len(part) > limit, line.TooLong)
			if !line.TooLong {
				require.Equal(t, part, line.Text)
			}
			parts[line.Number-1] = nil
		}
		for _, part := range parts {
			require.Empty(t, strings.Trim(string(part), " \t\r"), "a line is missing")
		}
	})
}
