// Package leadfile reads files of leads as people and programs write them: CSV of any dialect, and JSON lines. It turns rows into
// bodies of captures, and does not check whether they are valid: package lead does.
package leadfile

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"iter"
)

// Line is one line of a text, without its end.
type Line struct {
	Number  int // from 1; blank lines count
	Text    []byte
	TooLong bool // Text is not kept
}

// chunk is how much is read at a time, at most.
const chunk = 64 << 10 // bytes

// Lines yields the lines of a text that are not blank. Of a line of more than most bytes it yields only that it is too long, so
// that memory stays bounded. Text after the last line feed is a line too. If reading fails, the last item is the error, with the
// number of the line it happened in.
func Lines(r io.Reader, most int) iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		in := bufio.NewReaderSize(r, chunk)
		for number := 1; ; number++ {
			text, tooLong, err := readLine(in, most)
			if err != nil && !errors.Is(err, io.EOF) {
				yield(Line{Number: number}, err)
				return
			}
			if tooLong || !blank(text) {
				if !yield(Line{Number: number, Text: text, TooLong: tooLong}, nil) {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}
}

func readLine(in *bufio.Reader, most int) (text []byte, tooLong bool, err error) {
	for {
		part, err := in.ReadSlice('\n')
		ended := err == nil
		if ended {
			part = part[:len(part)-1]
		}
		if tooLong = tooLong || len(text)+len(part) > most; tooLong {
			text = nil
		} else {
			text = append(text, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return text, tooLong, err
		}
	}
}

func blank(text []byte) bool { return len(bytes.Trim(text, " \t\r")) == 0 }
