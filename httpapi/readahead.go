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

// lineReader reads the lines of a body ahead of the captures.
//
// Many clients send their whole body before they read an answer. If reading waited until answers are read, neither side would
// continue. So reading does not stop, but slows down when it is a megabyte ahead. For a client that reads its answers this is as
// good as waiting; for one that does not, the size of the whole body is the bound. All batches together have a budget for what
// they have read ahead. When it is used up, reading does wait, and a client that does not read its answers is cut off.
type lineReader struct {
	control *http.ResponseController
	body    io.Reader     // all of it
	bounded io.Reader     // as much of it as may be
	lines   chan bodyLine // has room for all lines of a batch
	ahead   atomic.Int64  // bytes
	budget  allowance
	held    int64         // of the budget
	taken   chan struct{} // holds one value when something was taken
	stopped chan struct{} // closed when nobody will take any more
	ended   chan struct{}
}

const (
	// batchBytes is what a batch holds at least: its line of the longest kind, the captures under way, and what is ahead.
	batchBytes  = 4 << 20
	comfortable = 1 << 20               // bytes ahead
	portion     = 64 << 10              // bytes that are read at a time, at most
	readPause   = 20 * time.Millisecond // before each read beyond that
	lineTime    = 30 * time.Second      // for the next part of a batch to come
)

// readAhead starts reading, if the budget has room for a batch. The caller must stop the reader. The error is errOverloaded.
func readAhead(control *http.ResponseController, body io.ReadCloser, all allowance) (*lineReader, error) {
	if !all.take(batchBytes) {
		return nil, errOverloaded
	}
	r := &lineReader{
		budget: all, held: batchBytes,
		control: control, body: body, bounded: http.MaxBytesReader(nil, body, maxBatchBody),
		lines: make(chan bodyLine, maxBatchLines+1),
		taken: make(chan struct{}, 1), stopped: make(chan struct{}), ended: make(chan struct{}),
	}
	go r.run()
	return r, nil
}

func (r *lineReader) run() {
	defer close(r.ended)
	defer close(r.lines)
	defer func() { r.budget.giveBack(r.held) }()
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
	if err := r.backpressure(); err != nil {
		return 0, err
	}
	// A connection without deadlines, as in some tests, is read from without one.
	_ = r.control.SetReadDeadline(time.Now().Add(lineTime))
	return r.bounded.Read(p[:min(len(p), portion)])
}

// backpressure waits until little is read ahead or, when the budget has room for more, only for readPause. The error is
// errOverloaded after a long time without either.
func (r *lineReader) backpressure() error {
	enough, tooLong := time.NewTicker(readPause), time.Now().Add(lineTime)
	defer enough.Stop()
	for r.ahead.Load() > comfortable {
		select {
		case <-r.stopped:
			return errOverloaded
		case <-r.taken:
		case <-enough.C:
			if r.hold() {
				return nil
			}
			if time.Now().After(tooLong) {
				return errOverloaded
			}
		}
	}
	r.hold()
	return nil
}

// hold takes from the budget what is needed for what is ahead, or gives back what is not needed.
func (r *lineReader) hold() bool {
	more := batchBytes + max(0, r.ahead.Load()-comfortable) - r.held
	if more > 0 && !r.budget.take(more) {
		return false
	}
	if more < 0 {
		r.budget.giveBack(-more)
	}
	r.held += more
	return true
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
	close(r.stopped)
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
		case <-time.After(readPause):
		}
	}
}
