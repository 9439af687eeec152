// Package console serves the web console: pages rendered on the server, one stylesheet, and a small script that keeps a
// page up to date. Pages load nothing from other hosts.
//
// Pages use the same queries as the API, and forms the same commands. Every request is authorized by the JWT that
// the user signed in with.
package console

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/worker/forget"
	"github.com/leadlog/leadlog/command/worker/importer"
	"github.com/leadlog/leadlog/command/worker/resubmit"
	"github.com/leadlog/leadlog/eventstore/merkle"
	"github.com/leadlog/leadlog/eventstore/sealbox"
	"github.com/leadlog/leadlog/httpapi/oidc"
	"github.com/leadlog/leadlog/httpapi/quota"
	"github.com/leadlog/leadlog/query"
	"github.com/leadlog/leadlog/query/logtree"
)

// Options configure the console. All but Codes, Provider and Stopping are required.
type Options struct {
	Commands      *command.Handlers
	Eraser        forget.Eraser
	Resubmissions resubmit.Queue
	Imports       importer.Runs
	Directory     *command.Directory
	Query         *query.Reader
	Tree          *merkle.Signer // of checkpoints
	LogTree       logtree.Reader
	Gate          Gate
	Log           *slog.Logger
	Now           func() time.Time
	Base          string         // path that the console is at, such as /console
	Key           []byte         // 32 bytes; the key that seals sessions is derived from it
	Codes         *Codes         // sign-in links that were given out; nil: none
	Provider      *oidc.Provider // people can sign in at it; nil: none
	// Troubles are problems that an operator must solve.
	Troubles func(ctx context.Context) []Trouble
	// Stopping, when closed, ends the streams of live pages. It may be nil.
	Stopping <-chan struct{}
}

// Trouble is a component of the service that does not do its work.
type Trouble struct{ Name, Detail string }

// Gate is the part of the API that the console uses, so that both treat requests and errors alike.
type Gate interface {
	// SignIn verifies a JWT, within the address's limit of guesses.
	SignIn(r *http.Request, jwt string) (Identity, error)
	// Guess counts a failed attempt against the address's limit of guesses. The error reports that the limit is
	// exceeded.
	Guess(r *http.Request) error
	// MayGuess reports, as an error, that the address's limit of guesses is exceeded.
	MayGuess(r *http.Request) error
	// Caller returns the caller of a request, without account and actor.
	Caller(r *http.Request) command.Caller
	// Secure reports whether the browser uses HTTPS.
	Secure(r *http.Request) bool
	// BeginRequest counts a request with a session among those in flight, until done is called. The error reports that
	// there are too many, in all or of the account.
	BeginRequest(r *http.Request, account string) (done func(), err error)
	// Throttle counts a request of a kind against the quotas of an account. Charge charges the bytes that it has
	// appended.
	Throttle(r *http.Request, account string, kind quota.Kind) (charge func(), err error)
	// EnterStream counts a read of a stream among the account's concurrent ones, until leave is called.
	EnterStream(r *http.Request, account string) (leave func(), err error)
	// Follow counts a page among those kept up to date, until leave is called. The error reports that there are too
	// many.
	Follow(account string) (leave func(), err error)
	// Export does the same for exports in flight.
	Export(account string) (leave func(), err error)
	// TryFilter applies a filter to the last events that an endpoint asks for. It has no effect.
	TryFilter(
		r *http.Request, caller command.Caller, endpoint query.Endpoint, filter string,
	) (query.FilterPreview, error)
	// Explain returns the answer to an error.
	Explain(error) Failure
	// Note records the route, the account and the error of a request for the access log.
	Note(r *http.Request, route, account string, err error)
}

// Failure is an error as pages show it.
type Failure struct {
	Status     int
	Message    string
	Fields     field.Errors
	RetryAfter time.Duration // 0: none
}

// Console serves the pages.
type Console struct {
	Options
	box     *sealbox.Box // of sessions
	pages   templates
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

// policy lets a page load only files of the console.
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
