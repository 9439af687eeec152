package httpapi

import (
	"bufio"
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/leadfile"
	"github.com/leadlog/leadlog/eventstore"
)

// Bounds of a batch. A line has those of a single capture's body.
const (
	maxBatchLines = 10_000
	maxBatchBody  = 32 << 20 // bytes
)

// mediaLines are the types that a body of JSON lines may have.
var mediaLines = []string{mediaNDJSON, "application/ndjson", "application/jsonl", mediaJSON}

// lineAnswer is the answer to one line: that of a single capture, together with what would have been in its header.
type lineAnswer struct {
	Line   int `json:"line"`
	Status int `json:"status"`
	envelope
	RetryAfter int64 `json:"retryAfter,omitzero"` // seconds
	Replayed   bool  `json:"replayed,omitzero"`
}

// capturedLine is the lineAnswer of a capture that succeeded.
type capturedLine struct {
	Line   int `json:"line"`
	Status int `json:"status"`
	capturedEnvelope
	Replayed bool `json:"replayed,omitzero"`
}

// captureBatch captures leads, one a line, and answers lines while it reads more. A line that fails does not affect the others:
// once reading has begun, the status of the whole answer is 200.
func (x *exchange) captureBatch() (answer, error) {
	if err := x.admission.Confirm(x.ctx, x.Directory); err != nil { // there may be no line that would find out
		return answer{}, err
	}
	if encoded(x.r.Header) {
		return answer{}, errCoding
	}
	if !acceptable(x.r.Header, mediaLines...) {
		return answer{}, errLinesType
	}
	if x.r.ContentLength > maxBatchBody {
		return answer{}, errBatchTooLarge
	}
	key, err := idempotencyKey(x.r.Header)
	if err != nil {
		return answer{}, err
	}
	if x.params().values.Has("dryRun") { // whoever asks for one must not get a batch
		return answer{}, bad("dryRun", "is for single captures")
	}
	return answer{stream: func() error { return x.answerLines(key) }}, nil
}

func (x *exchange) answerLines(key string) error {
	control := http.NewResponseController(x.w)
	if err := control.EnableFullDuplex(); err != nil {
		return err
	}
	x.ctx = x.detached() // as long as lines come; each has its own bounds
	out := lineWriter{control: control, buffer: bufio.NewWriterSize(&patient{w: x.w, control: control}, 32<<10)}
	lines, err := readAhead(control, x.r.Body, x.load.batches.of(x.caller.Account))
	if err != nil {
		return err
	}
	defer lines.stop()

	x.w.Header().Set("Content-Type", mediaNDJSON+"; charset=utf-8")
	x.w.Header().Set("Trailer", positionHeader+", "+limitHeader)
	// A body that was not read to its end must not be taken for the next request. net/http sees to that when it reads
	// all of a body before it answers, and that is not so here.
	x.w.Header().Set("Connection", "close")
	// Not before something was read: at the first read, net/http has a client go on that waits with its body for 100 Continue,
	// but not behind another status.
	begin := sync.OnceFunc(func() { x.w.WriteHeader(http.StatusOK) })
	arrivals := func(ctx context.Context) iter.Seq[command.Arriving] { return x.arrivals(ctx, lines, key) }
	var last eventstore.Position
	for arrived := range x.Commands.CaptureLeads(x.ctx, arrivals, out.flush) {
		begin()
		line, position, err := x.appendLine(out.buffer.AvailableBuffer(), &arrived)
		if position > last {
			last = position
			x.lastWrites.note(x.caller.Account, last)
		}
		if err := out.write(line, err); err != nil {
			return err // a client that has gone: what is not answered may be on the log, or not
		}
	}
	begin()
	out.flush()
	tellQuota(x.w.Header(), x.kind, x.used)
	x.wrote(last)
	return out.err
}

// arrivals yields the lines as captures, each counted against the account's limits when it is its turn. The request itself was
// counted as the first.
func (x *exchange) arrivals(ctx context.Context, lines *lineReader, key string) iter.Seq[command.Arriving] {
	return func(yield func(command.Arriving) bool) {
		counted := true
		for line := range lines.all(ctx) {
			failed := line.err
			if failed == nil && !counted {
				x.charge()
				failed = x.take()
			}
			counted = false
			if failed == nil && line.TooLong {
				failed = errTooLarge
			}
			// What other lines found out about the account meanwhile saves an append that would only find it out again.
			if admission, err := x.Directory.Admit(ctx, x.caller); err == nil {
				x.admission.Account = admission.Account
			}
			if !yield(x.arriving(line, failed, x.admission, key)) {
				return
			}
		}
	}
}

// arriving returns one line as a capture. Lines are decided on concurrently, so each has its own copy of the admission.
func (x *exchange) arriving(line bodyLine, failed error, admission command.Admission, key string) command.Arriving {
	return command.Arriving{Line: line.Number, Bytes: len(line.Text), Read: func(ctx context.Context) (command.CaptureLead, error) {
		if _, limited := errors.AsType[limitError](failed); limited {
			return command.CaptureLead{}, failed
		}
		cmd := command.CaptureLead{Admission: admission, EnterStream: x.enterStream}
		if failed == nil {
			cmd.Body, failed = ParseObject(line.Text)
		}
		if failed != nil {
			if revoked := admission.Confirm(ctx, x.Directory); revoked != nil {
				failed = revoked
			}
			return command.CaptureLead{}, failed
		}
		if key != "" {
			cmd.IdempotencyKey = key + " " + strconv.Itoa(line.Number) // no key of a single capture has a space
		}
		return cmd, nil
	}}
}

// appendLine appends the answer to one line, and returns the position of what the line wrote.
func (x *exchange) appendLine(to []byte, arrived *command.Arrived) ([]byte, eventstore.Position, error) {
	if captured := &arrived.LeadCaptured; arrived.Err == nil {
		encoded, err := encode(capturedLine{arrived.Line, captureStatus(captured), newCapturedEnvelope(captured, false), captured.Replayed})
		return append(to, encoded...), captured.Position, err
	}
	f := describe(arrived.Err)
	if f.status >= http.StatusInternalServerError {
		x.record.err = arrived.Err
	}
	encoded, err := encode(lineAnswer{
		Line: arrived.Line, Status: f.status, envelope: f.envelope, RetryAfter: wholeSeconds(f.retryAfter),
		Replayed: replayed(&arrived.LeadCaptured, arrived.Err),
	})
	return append(to, encoded...), f.position, err
}

// lineWriter writes answers, several at once when they come fast.
type lineWriter struct {
	control *http.ResponseController
	buffer  *bufio.Writer
	err     error // the first
}

// write takes a line, which may be in the buffer's own room, and why there is none.
func (w *lineWriter) write(line []byte, err error) error {
	if w.err == nil && err == nil {
		_, err = w.buffer.Write(append(line, '\n'))
	}
	if w.err == nil {
		w.err = err
	}
	return w.err
}

// flush hands on what is written.
func (w *lineWriter) flush() {
	if w.err != nil || w.buffer.Buffered() == 0 {
		return
	}
	if w.err = w.buffer.Flush(); w.err == nil {
		w.err = w.control.Flush()
	}
}

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
