package httpapi

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"
)

// record is what the access log and the metrics need to know about a request.
type record struct {
	http.ResponseWriter
	requestID  string // as answered
	ownID      string // made here; the same unless the caller chose one, which may be about a person
	route      string // a pattern: paths and queries may hold what no log should
	account    string
	credential string // token or jwt
	trace      string // traceparent of the request's own span; none: it is not followed
	status     int    // 0 until the header is written
	bytes      int64
	appended   atomic.Int64 // bytes on the log that no quota was charged for yet
	err        error
}

// WriteHeader notes the status.
func (r *record) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

// Write notes the length.
func (r *record) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	n, err := r.ResponseWriter.Write(b)
	r.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (r *record) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// requestIDHeader names a request in answers, events and the log.
const requestIDHeader = "X-Request-Id"

// inEveryAnswer are headers that are the same in every answer. Their slices can be shared because they have no spare capacity:
// appending a value copies them.
var inEveryAnswer = []struct {
	name   string
	values []string
}{
	{"X-Content-Type-Options", []string{"nosniff"}},
	{"Referrer-Policy", []string{"no-referrer"}},
	{"Content-Security-Policy", []string{"default-src 'none'; frame-ancestors 'none'"}},
	{"Cache-Control", []string{"no-store"}}, // answers may hold personal data; the few public documents replace it
}

// observe wraps all other handlers: it gives the request an id, records the outcome, and turns a panic into an answer.
func (a *api) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now() // a duration, so the real clock
		note := &record{ResponseWriter: w}
		note.requestID, note.ownID = a.ids.of(r)
		header := w.Header()
		for _, always := range inEveryAnswer {
			header[always.name] = always.values
		}
		header[requestIDHeader] = []string{note.requestID}
		r, traced := a.follow(r, note)
		defer func() {
			thrown, begun := recover(), note.status != 0
			if thrown != nil {
				a.caught(note, r, thrown)
			}
			took := time.Since(start)
			traced()
			a.metrics.observe(r.Method, note.route, note.status, took)
			a.logAccess(r, note, took)
			if thrown != nil && begun {
				panic(http.ErrAbortHandler) // cuts the connection: an answer half written must not look whole
			}
		}()
		next.ServeHTTP(note, r)
	})
}

// caught answers a panic, if nothing was answered yet. The value is logged only when it comes from the runtime: any other may
// contain personal data.
func (a *api) caught(note *record, r *http.Request, thrown any) {
	if thrown == http.ErrAbortHandler {
		return
	}
	said := fmt.Sprintf("%T", thrown)
	if fault, ok := thrown.(runtime.Error); ok {
		said = fault.Error()
	}
	note.err = fmt.Errorf("panic: %s", said)
	a.Log.ErrorContext(r.Context(), "panic", slog.String("requestId", note.ownID),
		slog.String("panic", said), slog.String("stack", string(debug.Stack())))
	if note.status == 0 {
		(&exchange{api: a, w: note, r: r, record: note}).fail(note.err)
	}
}

// logAccess writes one line for a request. It has the internal error when the failure is ours, and the reason when a credential was
// refused.
func (a *api) logAccess(r *http.Request, note *record, took time.Duration) {
	failed := note.status >= http.StatusInternalServerError || (note.err != nil && note.status < http.StatusBadRequest)
	level := slog.LevelInfo
	if failed {
		level = slog.LevelWarn
	}
	if !a.Log.Enabled(r.Context(), level) {
		return
	}
	attributes := []slog.Attr{
		slog.String("method", methodLabel(r.Method)), slog.String("route", note.route),
		slog.Int("status", note.status), slog.Float64("ms", float64(took.Microseconds())/1000),
		slog.Int64("bytes", note.bytes), slog.String("requestId", note.ownID),
	}
	if note.trace != "" {
		attributes = append(attributes, slog.String("traceId", traceID(note.trace)))
	}
	if note.account != "" {
		attributes = append(attributes, slog.String("account", note.account))
	}
	if note.credential != "" {
		attributes = append(attributes, slog.String("credential", note.credential))
	}
	if note.err != nil && (failed || note.status == http.StatusUnauthorized) {
		attributes = append(attributes, slog.String("error", note.err.Error()))
	}
	a.Log.LogAttrs(r.Context(), level, "request", attributes...)
}

// requestIDs names requests.
type requestIDs struct {
	now     func() time.Time
	entropy *ulid.LockedMonotonicReader
}

func newRequestIDs(now func() time.Time) *requestIDs {
	return &requestIDs{now: now, entropy: &ulid.LockedMonotonicReader{MonotonicReader: ulid.Monotonic(rand.Reader, 0)}}
}

const maxRequestID = 128 // characters

// of returns the id to answer, which is the one that the caller sent if it is fit for a header, and one of our own.
func (ids *requestIDs) of(r *http.Request) (shown, own string) {
	if given := r.Header.Get(requestIDHeader); visible(given) && len(given) <= maxRequestID {
		return given, ids.next()
	}
	own = ids.next()
	return own, own
}

func (ids *requestIDs) next() string {
	id, err := ulid.New(ulid.Timestamp(ids.now()), ids.entropy)
	if err != nil { // the monotonic part ran over within a millisecond
		return ulid.Make().String()
	}
	return id.String()
}

// visible reports whether a text is not empty and only has visible ASCII characters.
func visible(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return s != ""
}

// Trace starts the trace of a request. It returns the request with a context that has the trace, the W3C traceparent for the
// metadata of whatever the request appends, and a function to call when the request has been answered.
type Trace func(*http.Request) (followed *http.Request, traceParent string, end func(Traced))

// Traced is what a trace may contain about a request: like the access log, no personal data and no secrets.
type Traced struct {
	Method, Route, RequestID, Account string
	Status                            int
}

// follow begins to follow a request, if anybody wants to.
func (a *api) follow(r *http.Request, note *record) (_ *http.Request, end func()) {
	if a.Trace == nil {
		return r, func() {}
	}
	followed, traceParent, done := a.Trace(r)
	note.trace = traceParent
	return followed, func() {
		done(Traced{methodLabel(r.Method), note.route, note.ownID, note.account, note.status})
	}
}

// traceID is the part of a traceparent that all of a trace shares.
func traceID(traceParent string) string {
	if parts := traceParentForm.FindStringSubmatch(traceParent); parts != nil {
		return parts[1]
	}
	return ""
}
