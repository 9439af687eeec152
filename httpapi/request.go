package httpapi

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/httpapi/quota"
)

// requestTimeout is how long a request may take, without the time to receive its body and to stream its answer.
const requestTimeout = 8 * time.Second

// exchange is one request and its answer.
type exchange struct {
	*api
	w         http.ResponseWriter
	r         *http.Request
	ctx       context.Context // the request's values, with a deadline of ours
	cancel    context.CancelFunc
	record    *record
	client    netip.Addr // invalid when unknown
	caller    command.Caller
	admission command.Admission // of a caller who captures
	jwt       Identity          // of one who does anything else
	kind      quota.Kind        // that the request counts as
	used      quota.Use         // of the account's quota, by the request
	dryRun    bool              // the caller asks what would happen
	charged   bool              // the request counts against the share of the caller's account
	held      int64             // bytes of the body that count as held
	place     place             // of the connection, once the caller was let in
}

// serve handles every request: it authenticates the caller, calls the route, and writes the answer.
func (a *api) serve(route route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		x := a.exchange(w, r, w.(*record)) // as observe made it
		x.ctx, x.cancel = context.WithTimeout(x.detached(), requestTimeout)
		defer func() { x.cancel() }()
		x.record.route = route.pattern
		if len(r.TransferEncoding) > 0 {
			// A request may have had a Content-Length beside it, which net/http drops: what a proxy that goes by the
			// length takes for the next request must not be read as one.
			w.Header().Set("Connection", "close")
		}
		done, err := x.takeOn(route)
		if err != nil {
			x.fail(err)
			return
		}
		defer done()
		defer x.charge()
		answer, err := x.ask(route)
		x.charge() // before the answer, so that the caller's next request meets it
		x.sample(err)
		if err != nil {
			x.fail(err)
			return
		}
		x.send(answer)
	}
}

// hasRead must be called when the body has come. If that took long, the request's timeout starts again, because a slow client is
// not a fault of the service.
func (x *exchange) hasRead() {
	if deadline, _ := x.ctx.Deadline(); time.Until(deadline) < requestTimeout/2 {
		x.cancel()
		x.ctx, x.cancel = context.WithTimeout(x.detached(), requestTimeout)
	}
}

// exchange returns the exchange of a request, with what is known of the caller before authentication.
func (a *api) exchange(w http.ResponseWriter, r *http.Request, record *record) *exchange {
	x := &exchange{
		api: a, w: w, r: r, ctx: r.Context(), record: record, client: clientAddress(r, a.TrustedProxies),
	}
	if r.Header.Get("X-Forwarded-For") != "" && !within(address(r.RemoteAddr), a.TrustedProxies) {
		a.untrusted.Do(func() {
			a.Log.Warn("X-Forwarded-For came from an address that is not in LEADLOG_TRUSTED_PROXIES, and is not used: " +
				"if that is your proxy, all its clients share the limits of one address")
		})
	}
	x.caller = command.Caller{RequestID: x.record.requestID, Correlation: x.record.ownID, TraceParent: x.record.trace, UserAgent: userAgent(r.UserAgent())}
	x.caller.FromPage = r.Header.Get("Origin") != ""
	if x.caller.TraceParent == "" {
		x.caller.TraceParent = traceParent(r.Header.Get("Traceparent"))
	}
	if x.client.IsValid() {
		x.caller.IP = x.client.String()
	}
	return x
}

// ask authenticates the caller, checks the account's quotas and calls the route.
func (x *exchange) ask(route route) (answer, error) {
	if strings.HasSuffix(route.pattern, "/{id}") && x.literal[x.path()] {
		return x.wrongMethod() // DELETE …/leads/refused is not about a lead of that id
	}
	if err := route.access(x); err != nil {
		return answer{}, err
	}
	if route.shed() {
		if x.charged = x.load.requests.of(x.caller.Account).charge(1); !x.charged {
			return answer{}, errOverloaded
		}
		x.place = letIn(x.r)
	}
	if err := x.throttle(route.kind); err != nil {
		return answer{}, err
	}
	if route.kind.Streams() {
		leave, err := x.enterStream()
		if err != nil {
			return answer{}, err
		}
		defer leave()
	}
	return route.handle(x)
}

// detached returns the request's context without cancellation, in which appended bytes are counted. net/http cancels the request's
// own when the client closes its half of the connection, but such a client may still wait for the answer.
func (x *exchange) detached() context.Context {
	return command.CountAppended(context.WithoutCancel(x.r.Context()), &x.record.appended)
}

// path returns the path that the router used: the decoded one, unless decoding lost something.
func (x *exchange) path() string { return cmp.Or(x.r.URL.RawPath, x.r.URL.Path) }

// pathID is the id in the path, decoded. It may be anything.
func (x *exchange) pathID() string {
	raw := chi.URLParam(x.r, "id")
	if x.r.URL.RawPath == "" { // the router took the decoded path
		return raw
	}
	id, err := url.PathUnescape(raw)
	if err != nil {
		return ""
	}
	return id
}

// ulidID returns the id in the path if it has the form of an id, and otherwise the error missing.
func (x *exchange) ulidID(missing error) (string, error) {
	id := x.pathID()
	if !event.ValidID(id) {
		return "", missing
	}
	return id, nil
}

func (x *exchange) unknownRoute() (answer, error) { return answer{}, errUnknownRoute }

func (x *exchange) wrongMethod() (answer, error) {
	allowed := x.methodsOf(x.path())
	if len(allowed) == 0 { // the router says this of a method it does not know, on any path
		return answer{}, errUnknownRoute
	}
	x.w.Header().Set("Allow", strings.Join(allowed, ", "))
	return answer{}, errWrongMethod
}

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

// clientAddress returns the address that a request comes from: the other end of the connection or, when that is a trusted proxy,
// the last address in X-Forwarded-For that is not one. The client itself may have written the addresses before it.
func clientAddress(r *http.Request, trusted []netip.Prefix) netip.Addr {
	client := address(r.RemoteAddr)
	if !within(client, trusted) {
		return client
	}
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, hop := range slices.Backward(hops) {
		addr := address(strings.TrimSpace(hop))
		if !addr.IsValid() { // whatever stands left of it was not written by a proxy of ours
			break
		}
		client = addr
		if !within(client, trusted) {
			break
		}
	}
	return client
}

// address reads an IP address with or without port. IPv4 in IPv6 is IPv4, and a zone means nothing elsewhere.
func address(text string) netip.Addr {
	if with, err := netip.ParseAddrPort(text); err == nil {
		return with.Addr().Unmap().WithZone("")
	}
	addr, err := netip.ParseAddr(strings.Trim(text, "[]"))
	if err != nil {
		return netip.Addr{}
	}
	return addr.Unmap().WithZone("")
}

func within(addr netip.Addr, networks []netip.Prefix) bool {
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(addr) })
}

// addressBlock returns what shares one quota of failed credentials: an IPv4 address, or the /64 network of an IPv6 address, from
// which a host can choose any address.
func addressBlock(addr netip.Addr) string {
	if addr.Is6() {
		if network, err := addr.Prefix(64); err == nil {
			return network.String()
		}
	}
	return addr.String()
}

// userAgent is a header as an event can keep it.
func userAgent(header string) string {
	return strings.ToValidUTF8(header[:min(len(header), lead.MaxUserAgent)], "\uFFFD")
}

var traceParentForm = regexp.MustCompile(`^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}$`)

// traceParent is a W3C trace context that is well formed, or nothing.
func traceParent(header string) string {
	if header == "" {
		return ""
	}
	parts := traceParentForm.FindStringSubmatch(header)
	if parts == nil || strings.HasPrefix(header, "ff") || strings.Trim(parts[1], "0") == "" || strings.Trim(parts[2], "0") == "" {
		return ""
	}
	return header
}

// cors lets pages of the listed origins capture leads and record visitors' activity. No other route can be used from another
// origin, nor can these when the list is empty. Neither * nor null, which any page can have as its origin, can be listed.
func (a *api) cors(next http.Handler) http.Handler {
	allowed := slices.DeleteFunc(slices.Clone(a.CORSOrigins), func(o string) bool { return o == "*" || o == "null" })
	if len(allowed) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		route := a.openRoute(r.URL.Path)
		if route == "" {
			next.ServeHTTP(w, r)
			return
		}
		header := w.Header()
		header.Add("Vary", "Origin")
		origin, method := r.Header.Get("Origin"), r.Method
		preflight := method == http.MethodOptions
		if preflight {
			method = r.Header.Get("Access-Control-Request-Method")
		}
		if method != http.MethodPost || !slices.Contains(allowed, origin) { // leads are listed under the path of a capture
			next.ServeHTTP(w, r)
			return
		}
		header.Set("Access-Control-Allow-Origin", origin)
		if !preflight {
			header.Set("Access-Control-Expose-Headers",
				requestIDHeader+", "+positionHeader+", "+replayedHeader+", Retry-After, RateLimit, RateLimit-Policy")
			next.ServeHTTP(w, r)
			return
		}
		header.Set("Access-Control-Allow-Methods", http.MethodPost)
		header.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Traceparent, "+idempotencyHeader+", "+requestIDHeader)
		header.Set("Access-Control-Max-Age", "600") // seconds
		w.(*record).route = route
		w.WriteHeader(http.StatusNoContent)
	})
}

// openRoute is the route of a path, if it is one that pages may be let to.
func (a *api) openRoute(path string) string {
	path, ours := strings.CutPrefix(path, a.BasePath)
	before, after, _ := strings.Cut(activityPath, "{id}")
	switch {
	case !ours:
	case path == capturePath:
		return capturePath
	case strings.HasPrefix(path, before) && strings.HasSuffix(path, after):
		return activityPath
	}
	return ""
}
