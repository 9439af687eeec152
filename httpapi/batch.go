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
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/command/leadfile"
	"github.com/leadlog/leadlog/eventstore"
)

// Limits of a batch. A line has those of a single capture's body.
const (
	maxBatchLines = 10_000
	maxBatchBody  = 32 << 20 // bytes
)

// mediaLines are the media types of JSON lines.
var mediaLines = []string{mediaNDJSON, "application/ndjson", "application/jsonl", mediaJSON}

// lineAnswer is the answer to one line: that of a single capture, with the values of its headers.
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

// captureBatch captures leads, one per line, and answers lines while it reads more. A line that fails does not affect
// the others: once the answer has begun, its status is 200.
func (ex *exchange) captureBatch() (answer, error) {
	if err := ex.admission.Confirm(ex.ctx, ex.Directory); err != nil { // there may be no line whose append checks it
		return answer{}, err
	}
	if encoded(ex.r.Header) {
		return answer{}, errCoding
	}
	if !acceptable(ex.r.Header, mediaLines...) {
		return answer{}, errLinesType
	}
	if ex.r.ContentLength > maxBatchBody {
		return answer{}, errBatchTooLarge
	}
	key, err := idempotencyKey(ex.r.Header)
	if err != nil {
		return answer{}, err
	}
	if ex.params().values.Has("dryRun") { // not ignored: the lines would be captured
		return answer{}, bad("dryRun", "is only for single captures")
	}
	return answer{stream: func() error { return ex.answerLines(key) }}, nil
}

func (ex *exchange) answerLines(key string) error {
	control := http.NewResponseController(ex.w)
	if err := control.EnableFullDuplex(); err != nil {
		return err
	}
	ex.ctx = ex.detached() // without a timeout: each line has its own
	out := lineWriter{control: control, buffer: bufio.NewWriterSize(&deadlineWriter{w: ex.w, control: control}, 32<<10)}
	lines, err := newLineReader(control, ex.r.Body, ex.load.batches.of(ex.caller.Account))
	if err != nil {
		return err
	}
	defer lines.stop()

	ex.w.Header().Set("Content-Type", mediaNDJSON+"; charset=utf-8")
	ex.w.Header().Set("Trailer", positionHeader+", "+limitHeader)
	// The rest of an unread body must not be parsed as the next request. net/http prevents that only when it reads the
	// body before it answers.
	ex.w.Header().Set("Connection", "close")
	// The status is written after the first read: that read sends 100 Continue to a client that waits for it, which is
	// impossible after another status.
	begin := sync.OnceFunc(func() { ex.w.WriteHeader(http.StatusOK) })
	arrivals := func(ctx context.Context) iter.Seq[command.BatchArrival] { return ex.arrivals(ctx, lines, key) }
	var last eventstore.Position
	for arrived := range ex.Commands.CaptureLeads(ex.ctx, arrivals, out.flush) {
		begin()
		line, position, err := ex.appendLine(out.buffer.AvailableBuffer(), &arrived)
		if position > last {
			last = position
			ex.lastWrites.note(ex.caller.Account, last)
		}
		if err := out.write(line, err); err != nil {
			return err // the client has disconnected; lines without an answer may or may not be captured
		}
	}
	begin()
	out.flush()
	setQuotaHeaders(ex.w.Header(), ex.policy, ex.used)
	ex.wrote(last)
	return out.err
}

// arrivals yields the lines as captures, and counts each against the account's limits. The request itself was counted
// as the first.
func (ex *exchange) arrivals(ctx context.Context, lines *lineReader, key string) iter.Seq[command.BatchArrival] {
	return func(yield func(command.BatchArrival) bool) {
		counted := true
		for line := range lines.all(ctx) {
			failed := line.err
			if failed == nil && !counted {
				ex.charge()
				failed = ex.take()
			}
			counted = false
			if failed == nil && line.TooLong {
				failed = errTooLarge
			}
			// The cached account may have been updated. With an outdated one the append would be refused and repeated.
			if admission, err := ex.Directory.Admit(ctx, ex.caller); err == nil {
				ex.admission.Account = admission.Account
			}
			if !yield(ex.batchArrival(line, failed, ex.admission, key)) {
				return
			}
		}
	}
}

// batchArrival returns one line as a capture. Lines are captured concurrently, so each has its own copy of the
// admission.
func (ex *exchange) batchArrival(
	line bodyLine, failed error, admission command.Admission, key string,
) command.BatchArrival {
	return command.BatchArrival{Line: line.Number, Bytes: len(line.Text),
		Read: func(ctx context.Context) (command.CaptureLead, error) {
			if _, limited := errors.AsType[limitError](failed); limited {
				return command.CaptureLead{}, failed
			}
			cmd := command.CaptureLead{Admission: admission, Quarantine: true, EnterStream: ex.enterStream}
			if failed == nil {
				cmd.Body, failed = lead.ParseObject(line.Text)
			}
			if failed != nil {
				if revoked := admission.Confirm(ctx, ex.Directory); revoked != nil {
					failed = revoked
				}
				return command.CaptureLead{}, failed
			}
			if key != "" {
				cmd.IdempotencyKey = key + " " + strconv.Itoa(line.Number) // the key of a single capture has no space
			}
			return cmd, nil
		}}
}

// appendLine appends the answer to one line, and returns the position of the line's events.
func (ex *exchange) appendLine(to []byte, arrived *command.BatchOutcome) ([]byte, eventstore.Position, error) {
	if captured := &arrived.LeadCaptured; arrived.Err == nil {
		encoded, err := encode(capturedLine{
			arrived.Line, captureStatus(captured), newCapturedEnvelope(captured, false), captured.Replayed,
		})
		return append(to, encoded...), captured.Position, err
	}
	f := describe(arrived.Err)
	if f.status >= http.StatusInternalServerError {
		ex.record.err = arrived.Err
	}
	encoded, err := encode(lineAnswer{
		Line: arrived.Line, Status: f.status, envelope: f.envelope, RetryAfter: wholeSeconds(f.retryAfter),
		Replayed: replayed(&arrived.LeadCaptured, arrived.Err),
	})
	return append(to, encoded...), f.position, err
}

// lineWriter buffers answers until flush.
type lineWriter struct {
	control *http.ResponseController
	buffer  *bufio.Writer
	err     error // the first
}

// write buffers an encoded line, which may be in the buffer's own spare capacity, or keeps the error of encoding it.
func (w *lineWriter) write(line []byte, err error) error {
	if w.err == nil && err == nil {
		_, err = w.buffer.Write(append(line, '\n'))
	}
	if w.err == nil {
		w.err = err
	}
	return w.err
}

// flush sends the buffered answers.
func (w *lineWriter) flush() {
	if w.err != nil || w.buffer.Buffered() == 0 {
		return
	}
	if w.err = w.buffer.Flush(); w.err == nil {
		w.err = w.control.Flush()
	}
}

// bodyLine is a line of a body, or the error that ended it.
type bodyLine struct {
	leadfile.Line
	err error
}

// lineReader reads the lines of a body ahead of the captures.
//
// Many clients send their whole body before they read an answer. If reading waited until the answers are read, such a
// client and the service would wait for each other. So reading does not stop, but slows down when it is 1 MiB ahead: a
// client that reads its answers then holds 1 MiB of memory instead of up to 32. All batches share a budget for the
// lines that they have read ahead. When it is used up, reading does wait, and a client that does not read its answers
// is disconnected.
type lineReader struct {
	control  *http.ResponseController
	body     io.Reader     // without the limit
	limited  io.Reader     // up to maxBatchBody
	lines    chan bodyLine // with capacity for all lines of a batch
	ahead    atomic.Int64  // bytes read and not consumed yet
	budget   share
	reserved int64         // of the budget
	consumed chan struct{} // signals that a line was consumed
	stopped  chan struct{} // closed by stop
	ended    chan struct{} // closed when reading has ended
}

const (
	// batchBytes is the part of the budget of every batch: for its longest line, the captures in flight, and
	// aheadLimit.
	batchBytes  = 4 << 20
	aheadLimit  = 1 << 20               // bytes ahead at full speed
	readSize    = 64 << 10              // maximum bytes per read
	readPause   = 20 * time.Millisecond // before each read beyond aheadLimit
	readTimeout = 30 * time.Second      // of one read, and of waiting for the budget
)

// newLineReader starts reading. The caller must stop the reader. The error is errOverloaded when the budget is used up.
func newLineReader(control *http.ResponseController, body io.ReadCloser, all share) (*lineReader, error) {
	if !all.reserve(batchBytes) {
		return nil, errOverloaded
	}
	r := &lineReader{
		budget: all, reserved: batchBytes,
		control: control, body: body, limited: http.MaxBytesReader(nil, body, maxBatchBody),
		lines:    make(chan bodyLine, maxBatchLines+1),
		consumed: make(chan struct{}, 1), stopped: make(chan struct{}), ended: make(chan struct{}),
	}
	go r.run()
	return r, nil
}

func (r *lineReader) run() {
	defer close(r.ended)
	defer close(r.lines)
	defer func() { r.budget.release(r.reserved) }()
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
			// The client may still be sending: closing the connection now could discard the answers that it has not
			// read.
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

// Read reads from the body, slowed down by backpressure.
func (r *lineReader) Read(p []byte) (int, error) {
	if err := r.backpressure(); err != nil {
		return 0, err
	}
	// An error: the connection has no deadlines, as in some tests.
	_ = r.control.SetReadDeadline(time.Now().Add(readTimeout))
	return r.limited.Read(p[:min(len(p), readSize)])
}

// backpressure waits until less than aheadLimit is read ahead, or for readPause while the budget allows more. The error
// is errOverloaded after readTimeout.
func (r *lineReader) backpressure() error {
	pause, deadline := time.NewTicker(readPause), time.Now().Add(readTimeout)
	defer pause.Stop()
	for r.ahead.Load() > aheadLimit {
		select {
		case <-r.stopped:
			return errOverloaded
		case <-r.consumed:
		case <-pause.C:
			if r.reserve() {
				return nil
			}
			if time.Now().After(deadline) {
				return errOverloaded
			}
		}
	}
	r.reserve()
	return nil
}

// reserve adjusts the batch's part of the budget to the bytes that it has read ahead.
func (r *lineReader) reserve() bool {
	more := batchBytes + max(0, r.ahead.Load()-aheadLimit) - r.reserved
	if more > 0 && !r.budget.reserve(more) {
		return false
	}
	if more < 0 {
		r.budget.release(-more)
	}
	r.reserved += more
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
				case r.consumed <- struct{}{}:
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

// stop ends the reading: net/http allows none after the request.
func (r *lineReader) stop() {
	close(r.stopped)
	select {
	case <-r.ended:
		return
	default:
	}
	for {
		_ = r.control.SetReadDeadline(time.Unix(1, 0)) // again if Read has just set its own
		select {
		case <-r.ended:
			return
		case <-time.After(readPause):
		}
	}
}
