package httpapi

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/httpapi/console"
	"github.com/leadlog/leadlog/httpapi/quota"
)

// A request passes, in this order: observe, cors, the router, serve, ask and the handler of its route. The handler
// returns an answer or an error, which send (answer.go) or fail (errors.go) writes.

// observe wraps all other handlers: it gives the request an id, records the outcome, and turns a panic into an answer.
func (a *api) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now() // for a duration, so not the configured clock
		rec := &record{ResponseWriter: w}
		rec.requestID, rec.ownID = a.ids.of(r)
		header := w.Header()
		for _, always := range inEveryAnswer {
			header[always.name] = always.values
		}
		header[requestIDHeader] = []string{rec.requestID}
		r, endTrace := a.startTrace(r, rec)
		defer func() {
			value, begun := recover(), rec.status != 0
			if value != nil {
				a.recovered(rec, r, value)
			}
			took := time.Since(start)
			endTrace()
			a.metrics.observe(r.Method, rec.route, rec.status, took)
			a.logAccess(r, rec, took)
			if value != nil && begun {
				panic(http.ErrAbortHandler) // closes the connection: an incomplete answer must not look complete
			}
		}()
		next.ServeHTTP(rec, r)
	})
}

// inEveryAnswer are headers of all answers. Their slices are shared: they have no spare capacity, so adding a value
// copies them.
var inEveryAnswer = []struct {
	name   string
	values []string
}{
	{"X-Content-Type-Options", []string{"nosniff"}},
	{"Referrer-Policy", []string{"no-referrer"}},
	{"Content-Security-Policy", []string{"default-src 'none'; frame-ancestors 'none'"}},
	{"Cache-Control", []string{"no-store"}}, // answers may hold personal data; the few public documents replace it
}

// cors lets pages of the listed origins capture leads and record visitors' activity. No other route can be used from
// another origin. The origins * and null, which any page can have, are ignored.
func (a *api) cors(next http.Handler) http.Handler {
	allowed := slices.DeleteFunc(slices.Clone(a.CORSOrigins), func(o string) bool { return o == "*" || o == "null" })
	if len(allowed) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		route := a.corsRoute(r.URL.Path)
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
		if method != http.MethodPost || !slices.Contains(allowed, origin) { // a GET of the same path lists leads
			next.ServeHTTP(w, r)
			return
		}
		header.Set("Access-Control-Allow-Origin", origin)
		if !preflight {
			header.Set("Access-Control-Expose-Headers",
				requestIDHeader+", "+positionHeader+", "+eventHeader+", "+replayedHeader+", Retry-After, RateLimit, "+
					"RateLimit-Policy")
			next.ServeHTTP(w, r)
			return
		}
		header.Set("Access-Control-Allow-Methods", http.MethodPost)
		header.Set("Access-Control-Allow-Headers",
			"Authorization, Content-Type, Traceparent, "+idempotencyHeader+", "+requestIDHeader)
		header.Set("Access-Control-Max-Age", "600") // seconds
		w.(*record).route = route
		w.WriteHeader(http.StatusNoContent)
	})
}

// corsRoute returns the route of a path that pages of other origins may call; empty for any other path.
func (a *api) corsRoute(path string) string {
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

// requestTimeout bounds a request, except for receiving its body and streaming its answer.
const requestTimeout = 8 * time.Second

// exchange is one request and its answer.
type exchange struct {
	*api
	w         http.ResponseWriter
	r         *http.Request
	ctx       context.Context // the request's values, and a timeout of its own
	cancel    context.CancelFunc
	record    *record
	client    netip.Addr // invalid when unknown
	caller    command.Caller
	admission command.Admission // of a caller that captures
	jwt       Identity          // of any other caller
	kind      quota.Kind        // that the request counts as
	used      quota.Use         // of the account's quota, by the request
	policy    string            // of the used quota
	intake    *command.Intake   // that the request posts to; nil for any other
	counted   bool              // as a post to the intake
	html      bool              // a browser shows the answer
	dryRun    bool
	charged   bool       // the request counts against the share of its account, or intake, of the requests in flight
	reserved  int64      // bytes of the body that count against the budget of bodies
	conn      connection // set once the caller is authenticated
}

// serve handles a route's requests: it authenticates the caller, calls the handler, and writes the answer.
func (a *api) serve(route route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ex := a.exchange(w, r, w.(*record)) // from observe
		ex.ctx, ex.cancel = context.WithTimeout(ex.detached(), requestTimeout)
		defer func() { ex.cancel() }()
		ex.record.route = route.pattern
		if len(r.TransferEncoding) > 0 {
			// The request may also have had a Content-Length, which net/http drops. A proxy that uses the length would
			// read the rest of this body as the next request, so the connection is closed.
			w.Header().Set("Connection", "close")
		}
		if route.kind != quota.Free { // free routes cost little, and some report the state of an overloaded service
			end, err := ex.beginRequest(route.kind)
			if err != nil {
				ex.fail(err)
				return
			}
			defer end()
		}
		defer ex.charge()
		answer, err := ex.dispatch(route)
		ex.charge() // before the answer, so that it counts when the caller sends the next request
		ex.sample(err)
		if err != nil {
			ex.fail(err)
			return
		}
		ex.send(answer)
	}
}

// dispatch authenticates the caller, checks the account's quotas and calls the handler.
func (ex *exchange) dispatch(route route) (answer, error) {
	if strings.HasSuffix(route.pattern, "/{id}") && ex.literal[ex.path()] {
		return ex.wrongMethod() // refused is a route of its own, and not the id of a lead in DELETE …/leads/refused
	}
	if err := route.access(ex); err != nil {
		return answer{}, err
	}
	if route.kind != quota.Free {
		if err := ex.chargeRequest(route.kind); err != nil {
			return answer{}, err
		}
		ex.conn = markBusy(ex.r)
	}
	if err := ex.throttle(route.kind); err != nil {
		return answer{}, err
	}
	if route.kind.Streams() {
		leave, err := ex.enterStream()
		if err != nil {
			return answer{}, err
		}
		defer leave()
	}
	return route.handle(ex)
}

// exchange returns the exchange of a request before authentication.
func (a *api) exchange(w http.ResponseWriter, r *http.Request, rec *record) *exchange {
	ex := &exchange{api: a, w: w, r: r, ctx: r.Context(), record: rec, client: clientAddress(r, a.TrustedProxies)}
	if r.Header.Get("X-Forwarded-For") != "" && !within(address(r.RemoteAddr), a.TrustedProxies) {
		a.untrusted.Do(func() {
			a.Log.Warn("X-Forwarded-For ignored: the sender is not in LEADLOG_TRUSTED_PROXIES. " +
				"If it is your proxy, all its clients share the limits of one address")
		})
	}
	ex.caller = command.Caller{
		RequestID: rec.requestID, Correlation: rec.ownID, TraceParent: rec.trace, UserAgent: userAgent(r.UserAgent()),
		FromPage: r.Header.Get("Origin") != "",
	}
	if ex.caller.TraceParent == "" {
		ex.caller.TraceParent = traceParent(r.Header.Get("Traceparent"))
	}
	if ex.client.IsValid() {
		ex.caller.IP = ex.client.String()
	}
	return ex
}

// bodyRead must be called when the body has been received. If that took long, the request's timeout starts again: a
// slow client is not a failure of the service.
func (ex *exchange) bodyRead() {
	if deadline, _ := ex.ctx.Deadline(); time.Until(deadline) < requestTimeout/2 {
		ex.cancel()
		ex.ctx, ex.cancel = context.WithTimeout(ex.detached(), requestTimeout)
	}
}

// detached returns the request's context without its cancellation, in which appended bytes are counted. net/http
// cancels the request's context when the client closes its half of the connection, but such a client may still wait for
// the answer.
func (ex *exchange) detached() context.Context {
	return command.CountAppended(context.WithoutCancel(ex.r.Context()), &ex.record.appended)
}

// path returns the path that the router matched: the decoded one, unless decoding lost something.
func (ex *exchange) path() string { return cmp.Or(ex.r.URL.RawPath, ex.r.URL.Path) }

func (ex *exchange) pathParam(name string) string { return console.PathParam(ex.r, name) }

// pathID returns the id in the path.
func (ex *exchange) pathID() string { return ex.pathParam("id") }

// ulidID returns the id in the path if it has the form of an id, and otherwise the error missing.
func (ex *exchange) ulidID(missing error) (string, error) {
	id := ex.pathID()
	if !event.ValidID(id) {
		return "", missing
	}
	return id, nil
}

func (ex *exchange) unknownRoute() (answer, error) { return answer{}, ex.unknownPath() }

// unknownPath returns the error of a path that no route has.
func (ex *exchange) unknownPath() error {
	path := ex.path()
	meant := "/" + strings.Join(strings.FieldsFunc(path, func(r rune) bool { return r == '/' }), "/")
	if meant == path || len(path) > maxShownPath || strings.ContainsFunc(path, func(r rune) bool {
		return !plainInPath(r)
	}) {
		return errUnknownRoute
	}
	if len(ex.methodsOf(meant)) == 0 {
		meant = ""
	}
	return strayPathError{path, meant}
}

// maxShownPath is the longest path that an answer repeats, in bytes.
const maxShownPath = 200

// plainInPath reports whether a character may be repeated as it is: an unreserved one of a URL (RFC 3986, 2.3), or a
// slash.
func plainInPath(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("/-._~", r)
}

func (ex *exchange) wrongMethod() (answer, error) {
	allowed := ex.methodsOf(ex.path())
	if len(allowed) == 0 { // the router reports a method that it does not know as wrong on any path
		return answer{}, ex.unknownPath()
	}
	ex.w.Header().Set("Allow", strings.Join(allowed, ", "))
	return answer{}, errWrongMethod
}

// record has the data of a request for the access log and the metrics.
type record struct {
	http.ResponseWriter
	requestID string // as answered
	// generated here; requestID is the same, unless the caller chose it: then it may identify a person
	ownID      string
	route      string // a pattern: paths and queries may have personal data
	account    string
	credential string // token, jwt or session
	trace      string // traceparent of the request's own span; empty: not traced
	status     int    // 0 until the header is written
	bytes      int64
	appended   atomic.Int64 // bytes on the log that no quota was charged for yet
	err        error
}

// WriteHeader records the status.
func (r *record) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

// Write records the length.
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

// recovered answers a panic, if no answer has begun. Only a runtime error is logged with its text: any other value may
// contain personal data.
func (a *api) recovered(rec *record, r *http.Request, value any) {
	if value == http.ErrAbortHandler {
		return
	}
	text := fmt.Sprintf("%T", value)
	if fault, ok := value.(runtime.Error); ok {
		text = fault.Error()
	}
	rec.err = fmt.Errorf("panic: %s", text)
	a.Log.ErrorContext(r.Context(), "panic", slog.String("requestId", rec.ownID),
		slog.String("panic", text), slog.String("stack", string(debug.Stack())))
	if rec.status == 0 {
		(&exchange{api: a, w: rec, r: r, record: rec}).fail(rec.err)
	}
}

// logAccess writes one line for a request, with the error of a failure of the service and the reason of a 401.
func (a *api) logAccess(r *http.Request, rec *record, took time.Duration) {
	failed := rec.status >= http.StatusInternalServerError || (rec.err != nil && rec.status < http.StatusBadRequest)
	level := slog.LevelInfo
	if failed {
		level = slog.LevelWarn
	}
	if !a.Log.Enabled(r.Context(), level) {
		return
	}
	attributes := []slog.Attr{
		slog.String("method", methodLabel(r.Method)), slog.String("route", rec.route),
		slog.Int("status", rec.status), slog.Float64("ms", float64(took.Microseconds())/1000),
		slog.Int64("bytes", rec.bytes), slog.String("requestId", rec.ownID),
	}
	if rec.trace != "" {
		attributes = append(attributes, slog.String("traceId", traceID(rec.trace)))
	}
	if rec.account != "" {
		attributes = append(attributes, slog.String("account", rec.account))
	}
	if rec.credential != "" {
		attributes = append(attributes, slog.String("credential", rec.credential))
	}
	if rec.err != nil && (failed || rec.status == http.StatusUnauthorized) {
		attributes = append(attributes, slog.String("error", rec.err.Error()))
	}
	a.Log.LogAttrs(r.Context(), level, "request", attributes...)
}

// requestIDHeader has the id of a request in answers. The id is also in events and the access log.
const requestIDHeader = "X-Request-Id"

const maxRequestID = 128 // characters

// requestIDs generates ids of requests.
type requestIDs struct {
	now     func() time.Time
	entropy *ulid.LockedMonotonicReader
}

func newRequestIDs(now func() time.Time) *requestIDs {
	return &requestIDs{now: now, entropy: &ulid.LockedMonotonicReader{MonotonicReader: ulid.Monotonic(rand.Reader, 0)}}
}

// of returns the id to answer, which is the caller's own if it is valid in a header, and a generated one.
func (ids *requestIDs) of(r *http.Request) (shown, own string) {
	own = ids.next()
	if given := r.Header.Get(requestIDHeader); visible(given) && len(given) <= maxRequestID {
		return given, own
	}
	return own, own
}

func (ids *requestIDs) next() string {
	id, err := ulid.New(ulid.Timestamp(ids.now()), ids.entropy)
	if err != nil { // the monotonic part overflowed within a millisecond
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

// Trace starts the trace of a request. It returns the request with a context that has the trace, the W3C traceparent
// for the metadata of the events that the request appends, and a function to call when the request has been answered.
type Trace func(*http.Request) (traced *http.Request, traceParent string, end func(Traced))

// Traced has the data of a request for a trace: like the access log, no personal data and no secrets.
type Traced struct {
	Method, Route, RequestID, Account string
	Status                            int
}

// startTrace starts the trace of a request, if traces are configured.
func (a *api) startTrace(r *http.Request, rec *record) (_ *http.Request, end func()) {
	if a.Trace == nil {
		return r, func() {}
	}
	traced, traceParent, done := a.Trace(r)
	rec.trace = traceParent
	return traced, func() {
		done(Traced{methodLabel(r.Method), rec.route, rec.ownID, rec.account, rec.status})
	}
}

var traceParentForm = regexp.MustCompile(`^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}$`)

// traceParent returns a valid W3C traceparent, or an empty text.
func traceParent(header string) string {
	if header == "" {
		return ""
	}
	parts := traceParentForm.FindStringSubmatch(header)
	if parts == nil || strings.HasPrefix(header, "ff") || strings.Trim(parts[1], "0") == "" ||
		strings.Trim(parts[2], "0") == "" {
		return ""
	}
	return header
}

// traceID returns the trace-id of a traceparent.
func traceID(traceParent string) string {
	if parts := traceParentForm.FindStringSubmatch(traceParent); parts != nil {
		return parts[1]
	}
	return ""
}

// clientAddress returns the address of a request's client: the peer of the connection or, if that is a trusted proxy,
// the last address in X-Forwarded-For that is not one. The client itself may have written the addresses before that.
func clientAddress(r *http.Request, trusted []netip.Prefix) netip.Addr {
	client := address(r.RemoteAddr)
	if !within(client, trusted) {
		return client
	}
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, hop := range slices.Backward(hops) {
		addr := address(strings.TrimSpace(hop))
		if !addr.IsValid() { // no trusted proxy wrote the addresses before it
			break
		}
		client = addr
		if !within(client, trusted) {
			break
		}
	}
	return client
}

// address parses an IP address with or without port. It unmaps IPv4 in IPv6 and drops a zone.
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

// address returns the key of the limits of the client's address.
func (ex *exchange) address() string { return addressBlock(ex.client) }

// addressBlock returns the key of the limits of an address: an IPv4 address, or the /64 network of an IPv6 address,
// because a host can choose any address of that.
func addressBlock(addr netip.Addr) string {
	if addr.Is6() {
		if network, err := addr.Prefix(64); err == nil {
			return network.String()
		}
	}
	return addr.String()
}

// userAgent returns a User-Agent header as events store it.
func userAgent(header string) string {
	return strings.ToValidUTF8(header[:min(len(header), lead.MaxUserAgent)], "\uFFFD")
}
