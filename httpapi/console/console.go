// Package console serves the web console: pages rendered on the server, one stylesheet, and just enough script to keep a page up to
// date. Pages load nothing from other hosts.
//
// Pages use the same queries as the API, and forms the same commands. At every request, the JWT that somebody signed in with
// decides what they may see and do.
package console

import (
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/eventstore/audit"
	"github.com/leadlog/leadlog/eventstore/sealbox"
	"github.com/leadlog/leadlog/httpapi/quota"
	"github.com/leadlog/leadlog/query"
)

// Options configure the console. All but Codes and Stopping are required.
type Options struct {
	Commands  *command.Handlers
	Directory *command.Directory
	Query     *query.Reader
	Tree      *audit.Signer // of the heads of audit trees
	Gate      Gate
	Log       *slog.Logger
	Now       func() time.Time
	Base      string // path that the console is at, such as /console
	Key       []byte // 32 bytes; what sessions are sealed with is made of it
	Codes     *Codes // sign-in links that were given out; nil: none
	// Stopping ends what is streamed for as long as somebody looks. Nil never does.
	Stopping <-chan struct{}
}

// Gate is the part of the API that the console uses, so that both treat requests and errors alike.
type Gate interface {
	// SignIn returns whose JWT this is. It limits how often an address may try.
	SignIn(r *http.Request, jwt string) (Identity, error)
	// Guess counts an attempt that was no good against the limit of the address. The error is that it was one too many.
	Guess(r *http.Request) error
	// Caller is who asks, but for the account and the actor.
	Caller(r *http.Request) command.Caller
	// Secure tells whether the browser came by HTTPS.
	Secure(r *http.Request) bool
	// TakeOn counts a visit of somebody who is signed in among the requests under way, until it is done. The error is that
	// there are too many, of all or of the account.
	TakeOn(r *http.Request, account string) (done func(), err error)
	// Throttle counts a request of a kind against the quotas of an account. What it appends is charged when charge is called.
	Throttle(r *http.Request, account string, kind quota.Kind) (charge func(), err error)
	// EnterStream takes a place among the reads of streams of an account, to be left again.
	EnterStream(r *http.Request, account string) (leave func(), err error)
	// Follow takes a place among the pages that are kept up to date, to be left again. The error is that there is none for
	// the account.
	Follow(account string) (leave func(), err error)
	// Export does so among the exports under way.
	Export(account string) (leave func(), err error)
	// Explain finds the answer to an error.
	Explain(error) Failure
	// Note tells the access log what a request was for, and why it failed.
	Note(r *http.Request, route, account string, err error)
}

// Failure is an error as people are told of it.
type Failure struct {
	Status     int
	Message    string
	Fields     field.Errors
	RetryAfter time.Duration // 0: it does not matter when
}

// Console serves the pages.
type Console struct {
	Options
	box     *sealbox.Box // of sessions
	pages   *templates
	assets  assets
	streams atomic.Int64 // pages that are kept up to date
}

// New returns the handler of everything under Base.
func New(o Options) http.Handler {
	c := &Console{Options: o, box: newBox(o.Key), assets: newAssets(o.Base)}
	c.pages = newTemplates(o.Base, c.assets)
	router := chi.NewRouter()
	for _, page := range pages() {
		router.Method(page.method, page.pattern, c.serve(page))
		if page.method == http.MethodGet {
			router.Method(http.MethodHead, page.pattern, c.serve(page))
		}
	}
	router.Get("/assets/{name}", c.serveAsset)
	router.NotFound(c.serve(page{pattern: "/*", scope: public, kind: quota.Free, show: (*visit).noSuchPage}))
	router.MethodNotAllowed(c.serve(page{pattern: "/*", scope: public, kind: quota.Free, show: (*visit).noSuchPage}))
	guarded := http.NewCrossOriginProtection()
	guarded.SetDenyHandler(c.serve(page{pattern: "/*", scope: public, kind: quota.Free, show: (*visit).crossSite}))
	return secured(guarded.Handler(router))
}

// policy lets a page load what the console serves, and nothing from anywhere else.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// secured sets the headers of every answer, besides those that all answers of the service have.
func secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("X-Frame-Options", "DENY")
		next.ServeHTTP(w, r)
	})
}
