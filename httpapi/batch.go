package httpapi

import (
	"bufio"
	"context"
	"errors"
	"iter"
	"net/http"
	"strconv"
	"sync"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
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
	if arrived.Err == nil {
		return appendCapturedLine(to, arrived), arrived.Position, nil
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

// appendCapturedLine writes the lineAnswer of a capture, as appendCaptured does.
func appendCapturedLine(to []byte, arrived *command.Arrived) []byte {
	w := event.Writer{Buffer: to}
	begin := len(to)
	w.Number(`,"line":`, int64(arrived.Line))
	w.Number(`,"status":`, int64(captureStatus(&arrived.LeadCaptured)))
	w.Buffer = appendCaptured(append(w.Buffer, ','), &arrived.LeadCaptured, false)
	w.True(`,"replayed":`, arrived.Replayed)
	return w.Object(begin)
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
