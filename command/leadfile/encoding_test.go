package leadfile_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf16"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/leadfile"
)

func encodeUTF16(order binary.AppendByteOrder, text string) []byte {
	var out []byte
	for _, unit := range utf16.Encode([]rune(text)) {
		out = order.AppendUint16(out, unit)
	}
	return out
}

func TestEncoding_Detected(t *testing.T) {
	t.Parallel()
	const text = "Name;Straße\r\nJosé;Zürich – €\r\n"
	const devanagari = "नाम;फ़ोन;शहर\nआशा;९८७;पुणे\n"
	long := strings.Repeat("x", 64<<10-1) + "é" // crosses the end of the sample
	for name, c := range map[string]struct {
		bytes []byte
		want  string
	}{
		"UTF-8":                      {[]byte(text), text},
		"UTF-8, marked":              {[]byte("\ufeff" + text), "\ufeff" + text},
		"UTF-8, a character cut":     {[]byte(long), long},
		"UTF-8, with a NUL":          {[]byte(text + "\x00"), text + "\x00"},
		"UTF-8, replaced before":     {[]byte(text + "\ufffd"), text + "\ufffd"},
		"UTF-8, a stray byte":        {[]byte("Jos\xe9;José"), "Jos\xe9;José"},
		"UTF-8, marked, a stray one": {[]byte("\ufeffJos\xe9"), "\ufeffJos\xe9"},
		"UTF-8, cut":                 {[]byte("é\nJos\xc3"), "é\nJos\xc3"},
		"UTF-16, little, not Latin":  {encodeUTF16(binary.LittleEndian, "\ufeff"+devanagari), "\ufeff" + devanagari},
		"UTF-16, big, not Latin":     {encodeUTF16(binary.BigEndian, "\ufeff"+devanagari), "\ufeff" + devanagari},
		"UTF-16, little, marked":     {encodeUTF16(binary.LittleEndian, "\ufeff"+text), "\ufeff" + text},
		"UTF-16, big, marked":        {encodeUTF16(binary.BigEndian, "\ufeff"+text), "\ufeff" + text},
		"UTF-16, little, not marked": {encodeUTF16(binary.LittleEndian, text), text},
		"UTF-16, big, not marked":    {encodeUTF16(binary.BigEndian, text), text},
		"Windows":                    {[]byte("Name;Stra\xdfe\r\nJos\xe9;Z\xfcrich \x96 \x80\r\n"), text},
		"Windows, late": {
			append(bytes.Repeat([]byte{'x'}, 200_000), 0xe9), strings.Repeat("x", 200_000) + "é",
		},
		"Windows, early": {
			append([]byte{'x', 0xe9}, bytes.Repeat([]byte{'x'}, 200_000)...), "xé" + strings.Repeat("x", 200_000),
		},
		"Windows, at the end": {[]byte("caf\xe9"), "café"},
		"nothing":             {nil, ""},
	} {
		detected, err := leadfile.Detect(bytes.NewReader(c.bytes))
		require.NoError(t, err)
		got, err := io.ReadAll(detected.Decode(bytes.NewReader(c.bytes)))
		require.NoError(t, err)
		require.Equal(t, c.want, string(got), name)
	}
	named, err := leadfile.EncodingNamed("windows-1251")
	require.NoError(t, err)
	got, err := io.ReadAll(named.Decode(strings.NewReader("\xc0\xed\xed\xe0")))
	require.NoError(t, err)
	require.Equal(t, "Анна", string(got))
	_, err = leadfile.EncodingNamed("klingon")
	require.ErrorContains(t, err, "klingon")
}

func TestEncoding_ReadError(t *testing.T) {
	t.Parallel()
	errRead := errors.New("read failed")
	for _, read := range []string{"", strings.Repeat("x", 200_000)} {
		_, err := leadfile.Detect(io.MultiReader(strings.NewReader(read), iotest.ErrReader(errRead)))
		require.ErrorIs(t, err, errRead)
	}
}
