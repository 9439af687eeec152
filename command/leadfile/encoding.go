package leadfile

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
)

// Encoding is the character encoding of a file.
type Encoding struct {
	Name     string
	encoding encoding.Encoding
}

var (
	utf8Encoding = Encoding{"UTF-8", unicode.UTF8}
	utf16Little  = Encoding{"UTF-16LE", unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM)}
	utf16Big     = Encoding{"UTF-16BE", unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM)}
	windows      = Encoding{"Windows-1252", charmap.Windows1252}
)

// EncodingNamed returns an encoding by a name that browsers know, such as windows-1251 or shift_jis.
func EncodingNamed(name string) (Encoding, error) {
	found, err := htmlindex.Get(name)
	if err != nil {
		return Encoding{}, fmt.Errorf("%q is not a known encoding; examples are windows-1252 and utf-16le", name)
	}
	return Encoding{name, found}, nil
}

// Detect reads a whole file to find its encoding: by its byte order mark, by the zero bytes that UTF-16 has between
// Latin letters, and then UTF-8, also with some bytes that are not valid in it. A file with more of those than of its
// other characters is read as Windows-1252, which Excel writes in western countries.
func Detect(r io.Reader) (Encoding, error) {
	in := bufio.NewReaderSize(r, chunk)
	head, err := in.Peek(chunk)
	if err != nil && !errors.Is(err, io.EOF) {
		return Encoding{}, err
	}
	switch little, big := zeros(head); {
	case bytes.HasPrefix(head, []byte("\xff\xfe")) || little:
		return utf16Little, nil
	case bytes.HasPrefix(head, []byte("\xfe\xff")) || big:
		return utf16Big, nil
	}
	valid, invalid, err := countUTF8(in)
	if err != nil {
		return Encoding{}, err
	}
	if invalid == 0 || bytes.HasPrefix(head, []byte(byteOrderMark)) || valid >= invalid {
		return utf8Encoding, nil
	}
	return windows, nil
}

// zeros recognises UTF-16 without a byte order mark, and its byte order: one byte of each pair is mostly zero.
func zeros(head []byte) (little, big bool) {
	var count [2]int
	for i, b := range head {
		if b == 0 {
			count[i%2]++
		}
	}
	enough := len(head) / 8 // of the half that would be zero in plain English, a quarter
	return count[1] > enough && count[1] > 4*count[0], count[0] > enough && count[0] > 4*count[1]
}

// countUTF8 counts the characters beyond ASCII, and the bytes that are not valid.
func countUTF8(in *bufio.Reader) (valid, invalid int, _ error) {
	for {
		// The end of the examined part may cut a character in two.
		part, err := in.Peek(chunk)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, 0, err
		}
		length := 0
		for length < len(part) {
			if part[length] < utf8.RuneSelf {
				length++
				continue
			}
			r, size := utf8.DecodeRune(part[length:])
			if r == utf8.RuneError && size == 1 {
				if err == nil && !utf8.FullRune(part[length:]) {
					break
				}
				invalid++
			} else {
				valid++
			}
			length += size
		}
		if _, failed := in.Discard(length); failed != nil {
			return 0, 0, failed
		}
		if err != nil {
			return valid, invalid, nil
		}
	}
}

// Decode returns a reader of a file in this encoding as UTF-8. Bytes of a UTF-8 file that are not valid stay: a table
// refuses their rows.
func (e Encoding) Decode(r io.Reader) io.Reader {
	if e.encoding == unicode.UTF8 {
		return r
	}
	return transform.NewReader(r, e.encoding.NewDecoder())
}
