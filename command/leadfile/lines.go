// Package leadfile reads files of leads as people and programs write them: CSV of any dialect, and JSON lines. It turns
// rows into bodies of captures, and does not check whether they are valid: package lead does.
package leadfile

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"iter"
	"slices"
)

// Line is one line of a text, without its end.
type Line struct {
	Number  int // from 1; blank lines count
	Text    []byte
	TooLong bool // Text is not kept
}

// chunk is how much is read at a time, at most.
const chunk = 64 << 10 // bytes

// Lines yields the lines of a text that are not blank. Of a line of more than most bytes it yields only that it is too
// long, so that memory stays bounded. Text after the last line feed is a line too. If reading fails, the last item is
// the error, with the number of the line it happened in.
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

// line is one line of a table.
type line struct {
	number  int
	text    []byte // without its end
	tooLong bool   // text is not kept
}

// lines reads the lines of a table, of which some may be given back.
type lines struct {
	in     *bufio.Reader
	number int    // of the line that next returned last
	back   []line // given back, the next one last
	ended  bool
}

// next returns the next line; io.EOF after the last. Text after the last line feed is a line too.
func (l *lines) next() (line, error) {
	if n := len(l.back); n > 0 {
		next := l.back[n-1]
		l.back = l.back[:n-1]
		l.number = next.number
		return next, nil
	}
	if l.ended {
		return line{}, io.EOF
	}
	text, tooLong, err := readLine(l.in, maxRecord)
	if err != nil {
		if l.ended = true; !errors.Is(err, io.EOF) {
			return line{}, err
		}
		if len(text) == 0 && !tooLong {
			return line{}, io.EOF
		}
	}
	l.number++
	return line{l.number, bytes.TrimSuffix(text, []byte{'\r'}), tooLong}, nil
}

// unread gives lines back, so that next returns them again.
func (l *lines) unread(read ...line) {
	for _, line := range slices.Backward(read) {
		l.back = append(l.back, line)
		l.number = line.number - 1
	}
}

func blank(text []byte) bool { return len(bytes.Trim(text, " \t\r")) == 0 }
