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
)

// requestTimeout is how long a request may take, but for what is streamed and for its body to come.
const requestTimeout = 8 * time.Second

// exchange is one request on its way to its answer.
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
	policy    string            // by which the caller's account is limited
	dryRun    bool              // the caller asks what would happen, and that nothing does
	charged   bool              // the request counts as one of the caller's account
	held      int64             // bytes of the body that count as held
	place     place             // of the connection, once the caller was let in
}

// serve handles every request: it finds out who asks, has the route answer, and writes the answer.
func (a *api) serve(route route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		x := a.exchange(w, r, w.(*record)) // as observe made it
		x.ctx, x.cancel = context.WithTimeout(detached(r), requestTimeout)
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
		answer, err := x.ask(route)
		x.sample(err)
		if err != nil {
			x.fail(err)
			return
		}
		x.send(answer)
	}
}

// hasRead says that the body has come. If that took long, the request has its time from here on: that a client is slow is no
// difficulty of the service.
func (x *exchange) hasRead() {
	if deadline, _ := x.ctx.Deadline(); time.Until(deadline) < requestTimeout/2 {
		x.cancel()
		x.ctx, x.cancel = context.WithTimeout(detached(x.r), requestTimeout)
	}
}

// exchange makes the exchange of a request, with what is known of the caller before any credential is looked at.
func (a *api) exchange(w http.ResponseWriter, r *http.Request, record *record) *exchange {
	x := &exchange{
		api: a, w: w, r: r, ctx: r.Context(), record: record, client: clientAddress(r, a.TrustedProxies), policy: capturePolicy,
	}
	x.caller = command.Caller{RequestID: x.record.requestID, TraceParent: x.record.trace, UserAgent: userAgent(r.UserAgent())}
	if x.caller.TraceParent == "" {
		x.caller.TraceParent = traceParent(r.Header.Get("Traceparent"))
	}
	if x.client.IsValid() {
		x.caller.IP = x.client.String()
	}
	return x
}

// ask has the request answered, if its credential lets it through.
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
	return route.handle(x)
}

// detached is a request's context that net/http does not end when the client closes its half of the connection: such a
// client may still wait for the answer. What was begun for one that is gone is soon done.
func detached(r *http.Request) context.Context { return context.WithoutCancel(r.Context()) }

// path is the path that the router took: the decoded one, unless its escapes say more.
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

// ulidID is the id in the path when it can be one of ours, and otherwise the error that says there is no such thing.
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
