package httpapi

import (
	"cmp"
	"context"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/leadlog/leadlog/command"
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
