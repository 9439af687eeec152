package httpapi

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/leadlog/leadlog/command/leadfile"
)

// bodyLine is a line of a body, or why there are no more.
type bodyLine struct {
	leadfile.Line
	err error
}

// lineReader reads a body's lines ahead of those who work on them.
//
// Many clients send all they have before they read an answer. Would reading wait until answers are read, neither side
// went on; so it never quite waits. Once a megabyte is ahead it slows down, which is as good as waiting for a client
// that does read, and with the bound on the body as a whole there is a bound on what is held.
type lineReader struct {
	control *http.ResponseController
	body    io.Reader     // all of it
	bounded io.Reader     // as much of it as may be
	lines   chan bodyLine // has room for all lines of a batch
	ahead   atomic.Int64  // bytes
	taken   chan struct{} // holds one value when something was taken
	ended   chan struct{}
}

const (
	comfortable = 1 << 20               // bytes ahead
	hesitation  = 20 * time.Millisecond // before each read beyond that, of 64 KiB at most
	lineTime    = 30 * time.Second      // for the next part of a batch to come
)

// readAhead begins to read. The reader is to be stopped.
func readAhead(control *http.ResponseController, body io.ReadCloser) *lineReader {
	r := &lineReader{
		control: control, body: body, bounded: http.MaxBytesReader(nil, body, maxBatchBody),
		lines: make(chan bodyLine, maxBatchLines+1),
		taken: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	go r.run()
	return r
}

func (r *lineReader) run() {
	defer close(r.ended)
	defer close(r.lines)
	for line, err := range leadfile.Lines(r, maxBody) {
		switch {
		case err != nil:
			err = batchError(err)
		case line.Number > maxBatchLines:
			err = errTooManyLines
		}
		r.ahead.Add(int64(len(line.Text)))
		r.lines <- bodyLine{line, err}
		if err != nil {
			// A client that is still sending must get to read: what is closed on it may take the answers along.
			_, _ = io.CopyN(io.Discard, r.body, maxBatchBody)
			return
		}
	}
}

func batchError(err error) error {
	if err = bodyError(err); errors.Is(err, errTooLarge) {
		return errBatchTooLarge
	}
	return err
}

// Read reads from the body.
func (r *lineReader) Read(p []byte) (int, error) {
	r.hesitate()
	// A connection without deadlines, as in some tests, is read from without one.
	_ = r.control.SetReadDeadline(time.Now().Add(lineTime))
	return r.bounded.Read(p)
}

func (r *lineReader) hesitate() {
	if r.ahead.Load() <= comfortable {
		return
	}
	enough := time.NewTimer(hesitation)
	defer enough.Stop()
	for r.ahead.Load() > comfortable {
		select {
		case <-r.taken:
		case <-enough.C:
			return
		}
	}
}

// all yields the lines until there are no more, or the context ends.
func (r *lineReader) all(ctx context.Context) iter.Seq[bodyLine] {
	return func(yield func(bodyLine) bool) {
		for {
			select {
			case line, open := <-r.lines:
				if !open {
					return
				}
				r.ahead.Add(-int64(len(line.Text)))
				select {
				case r.taken <- struct{}{}:
				default:
				}
				if !yield(line) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

// stop ends the reading, which has to be over when the request is.
func (r *lineReader) stop() {
	select {
	case <-r.ended:
		return
	default:
	}
	for {
		_ = r.control.SetReadDeadline(time.Unix(1, 0)) // it may just have set one of its own
		select {
		case <-r.ended:
			return
		case <-time.After(hesitation):
		}
	}
}
