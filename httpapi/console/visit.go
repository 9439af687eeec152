package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/worker/importer"
	"github.com/leadlog/leadlog/eventstore"
)

// screen is the result of a visit.
type screen struct {
	name     string // of the template
	title    string
	status   int // 0 is 200
	data     any
	live     bool         // the browser keeps it up to date
	redirect string       // another page, instead
	send     func() error // writes a file, instead
	sent     bool         // the answer is written
	calls    []call       // that return the data of the page
	reason   error        // of a refused sign-in, for the access log
	reveals  []string     // ids of the leads that it shows unmasked
}

// pageTimeout bounds the answer of a page that is not streamed.
const pageTimeout = 8 * time.Second

// visit is one request and its answer.
type visit struct {
	*Console
	w        http.ResponseWriter
	r        *http.Request
	ctx      context.Context
	page     page
	identity Identity
	signedIn bool
	caller   command.Caller
	rows     int             // that were exported
	complete bool            // none was left out
	revealed map[string]bool // leads of which this visit has recorded that they are shown
	done     func()          // ends the request's count among those in flight; nil: not counted
}

var (
	errNoPage    = errors.New("no such page of the console")
	errCrossSite = errors.New("form of another site")
)

// scopeError reports a scope that the session lacks.
type scopeError string

func (e scopeError) Error() string { return "Scope " + string(e) + " required" }

// serve handles every request: it checks the session and its scope, and writes the page.
func (c *Console) serve(p page) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), pageTimeout)
		defer cancel()
		v := &visit{Console: c, w: w, r: r, ctx: ctx, page: p, revealed: map[string]bool{}}
		defer v.leave()
		shown, err := v.answer()
		reason := err
		if reason == nil {
			reason = shown.reason
		}
		c.Gate.Note(r, c.Base+strings.TrimSuffix(p.pattern, "/"), v.identity.Account, reason)
		switch {
		case err != nil:
			v.fail(err)
		case shown.sent:
		case shown.send != nil:
			if err := shown.send(); err != nil {
				c.Gate.Note(r, c.Base+p.pattern, v.identity.Account, err)
			}
		case shown.redirect != "":
			http.Redirect(w, r, shown.redirect, http.StatusSeeOther)
		case shown.live && wantsStream(r):
			v.stream()
		default:
			v.write(shown)
		}
	}
}

// answer authenticates the caller, checks the account's quotas and shows the page.
func (v *visit) answer() (screen, error) {
	v.caller = v.Gate.Caller(v.r)
	v.identity, v.signedIn = v.Console.identity(v.r)
	if v.signedIn {
		v.caller.Account = v.identity.Account
		v.caller.Actor, v.caller.Credential = "user:"+v.identity.Subject, "jwt:"+v.identity.Subject
		v.caller.ReadsLeads = v.identity.May("leads:read")
	}
	if v.page.scope == public {
		return v.page.show(v)
	}
	if !v.signedIn {
		if v.reads() && !wantsStream(v.r) {
			return screen{redirect: v.path("/sign-in") + "?next=" + url.QueryEscape(v.cameFrom())}, nil
		}
		return screen{}, command.ErrUnauthorized
	}
	done, err := v.Gate.BeginRequest(v.r, v.identity.Account)
	if err != nil {
		v.w.Header().Set("Connection", "close") // the body is not read, and another process may answer the next request
		return screen{}, err
	}
	v.done = done
	if err := v.admit(); err != nil {
		return screen{}, err
	}
	charge, err := v.Gate.Throttle(v.r, v.identity.Account, v.page.kind)
	if err != nil {
		return screen{}, err
	}
	defer charge()
	return v.show()
}

// show calls the page, within the account's limit of concurrent reads of streams if the page reads one.
func (v *visit) show() (screen, error) {
	if v.page.kind.Streams() {
		leave, err := v.Gate.EnterStream(v.r, v.identity.Account)
		if err != nil {
			return screen{}, err
		}
		defer leave()
	}
	return v.page.show(v)
}

func (v *visit) leave() {
	if v.done != nil {
		v.done()
	}
}

func (v *visit) reads() bool { return v.r.Method == http.MethodGet || v.r.Method == http.MethodHead }

// admit checks the session: its expiry, a revocation of its JWT, and the scopes that the page requires.
func (v *visit) admit() error {
	if !v.Now().Before(v.identity.Expires) {
		return command.ErrUnauthorized
	}
	age := command.NoCache
	if v.reads() {
		age = command.Brief
	}
	if err := v.Directory.AdmitJWT(v.ctx, v.identity.Account, v.identity.Issued, age); err != nil {
		return err
	}
	for _, scope := range strings.Fields(v.page.scope) {
		if !v.identity.May(scope) {
			return scopeError(scope)
		}
	}
	return nil
}

// stillAdmitted checks the session again during a long answer.
func (v *visit) stillAdmitted() error {
	later := *v
	later.ctx = v.r.Context()
	return later.admit()
}

// path returns the path of a page of the console.
func (c *Console) path(to string) string { return pathAt(c.Base, to) }

func pathAt(base, to string) string { return base + strings.TrimSuffix(to, "/") }

// PathParam returns a parameter of the path that a router matched, decoded; empty when its pattern does not have it. It
// may be any text.
func PathParam(r *http.Request, name string) string {
	raw := chi.URLParam(r, name)
	if r.URL.RawPath == "" { // the router matched the decoded path
		return raw
	}
	value, err := url.PathUnescape(raw)
	if err != nil {
		return ""
	}
	return value
}

// id returns a parameter of the path.
func (v *visit) id(name string) string { return PathParam(v.r, name) }

func (v *visit) noSuchPage() (screen, error) { return screen{}, errNoPage }

func (v *visit) crossSite() (screen, error) { return screen{}, errCrossSite }

// fail shows an error. Its internal details only go to the log.
func (v *visit) fail(err error) {
	f := v.explain(err)
	if f.RetryAfter > 0 {
		v.w.Header().Set("Retry-After", formatInt(int64((f.RetryAfter+time.Second-1)/time.Second)))
	}
	if f.Status == http.StatusUnauthorized {
		v.end(v.w, v.r)
		v.forgetIDToken()
		v.signedIn = false
		v.write(screen{name: "signin", title: "Sign in", status: f.Status, data: signIn{
			Next: v.destination(v.cameFrom()), Message: "Your session has ended. Sign in again.",
			Provider: v.Provider != nil,
		}})
		return
	}
	v.write(screen{
		name: "failure", title: f.Message, status: f.Status, data: failurePage{f, v.r.Method != http.MethodPost},
	})
}

// cameFrom returns the address of the requested page, or of the page with the submitted form or the link to the export.
func (v *visit) cameFrom() string {
	extension := path.Ext(v.page.pattern)
	at, pattern := strings.TrimSuffix(v.r.URL.EscapedPath(), extension), strings.TrimSuffix(v.page.pattern, extension)
	if !slices.ContainsFunc(pages(), func(p page) bool { return p.method == http.MethodGet && p.pattern == pattern }) {
		at = path.Dir(at)
	}
	if v.reads() && v.r.URL.RawQuery != "" {
		at += "?" + v.r.URL.RawQuery
	}
	return at
}

// failurePage is the page that shows an error.
type failurePage struct {
	Failure
	Reading bool // the request was a read
}

// Unsure reports whether the action may have been carried out in spite of the error.
func (f failurePage) Unsure() bool { return f.Status >= http.StatusInternalServerError }

// explain returns the answer to an error: the console's own ones here, all others as the API answers them.
func (v *visit) explain(err error) Failure {
	var scope scopeError
	var notText notTextError
	var large largeFormError
	switch {
	case errors.As(err, &scope):
		return Failure{Status: http.StatusForbidden, Message: scope.Error()}
	case errors.Is(err, errNoPage):
		return Failure{Status: http.StatusNotFound, Message: "Page not found"}
	case errors.Is(err, errNoDelivery):
		return Failure{Status: http.StatusNotFound, Message: "Delivery not found"}
	case errors.Is(err, importer.ErrNoRun):
		return Failure{Status: http.StatusNotFound, Message: "Import not found"}
	case errors.Is(err, importer.ErrBusy), errors.Is(err, importer.ErrState):
		return Failure{Status: http.StatusConflict, Message: "Not now: " + err.Error()}
	case errors.Is(err, errBadForm):
		return Failure{Status: http.StatusBadRequest, Message: "The form could not be read"}
	case errors.As(err, &large):
		return Failure{Status: http.StatusRequestEntityTooLarge, Message: large.Error()}
	case errors.As(err, &notText):
		return Failure{Status: http.StatusBadRequest, Message: notText.Error()}
	case errors.Is(err, errCrossSite):
		return Failure{Status: http.StatusForbidden, Message: "The form was sent from another site and was rejected"}
	}
	return v.Gate.Explain(err)
}

// wrong returns the field errors of a form, if err has them. The form is then shown again.
func wrong(err error) (field.Errors, bool) {
	return errors.AsType[field.Errors](err)
}

// within calls do with a visit that has a timeout of its own.
func (v *visit) within(do func(*visit) ([]byte, error)) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(v.r.Context()), pageTimeout)
	defer cancel()
	inner := *v
	inner.ctx = ctx
	return do(&inner)
}

// viewTimeout bounds how long the answer to a form waits for the views to show its effect.
const viewTimeout = 2 * time.Second

// waitForViews waits until views have reached the position of a command's event, for viewTimeout at most.
func (v *visit) waitForViews(position eventstore.Position, views ...string) {
	ctx, cancel := context.WithTimeout(v.ctx, viewTimeout)
	defer cancel()
	_ = v.Query.WaitFor(ctx, position, views...) // the page is shown in any case
}
