// Package httpapi answers HTTP requests: it authenticates the caller, parses the request, calls a command or a query,
// and writes the answer. It decides nothing about leads, tokens or endpoints itself.
//
// Every route is in routes.go, every error in errors.go. A request is checked, in this order, by the router (404, 405),
// its credential (401), its permissions and the account's plan (403), the rate limit (429) and the form of its body
// (415, 413, 400), before a command runs. So the body of an unauthenticated request is never parsed.
package httpapi

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/worker/forget"
	"github.com/leadlog/leadlog/command/worker/importer"
	"github.com/leadlog/leadlog/command/worker/resubmit"
	"github.com/leadlog/leadlog/eventstore/merkle"
	"github.com/leadlog/leadlog/httpapi/challenge"
	"github.com/leadlog/leadlog/httpapi/console"
	"github.com/leadlog/leadlog/httpapi/oidc"
	"github.com/leadlog/leadlog/httpapi/quota"
	"github.com/leadlog/leadlog/query"
	"github.com/leadlog/leadlog/query/logtree"
)

// Options are the parts and settings of the API. Commands, Eraser, Directory, Query, Tree and Log are required.
type Options struct {
	Commands  *command.Handlers
	Eraser    forget.Eraser
	Directory *command.Directory
	Query     *query.Reader
	// Resubmissions carries out requests to capture arrivals again.
	Resubmissions resubmit.Queue
	// Imports are the files that people upload in the console.
	Imports importer.Runs
	Uses    *command.Uses  // samples how API tokens are used; nil does not
	JWT     *Verifier      // nil refuses every JWT
	Tree    *merkle.Signer // of checkpoints
	LogTree logtree.Reader
	Log     *slog.Logger
	Now     func() time.Time // nil is the system's clock

	// RateLimit and RateBurst are the captures per second and the burst of an account without limits of its own; 0 is
	// no limit. Visitors' activity and other writes have the same limits, counted separately; reads have five times as
	// much. See limits.go.
	RateLimit float64
	RateBurst int
	// Quotas has the accounts' token buckets, shared by all processes; with nil, each process has its own.
	Quotas quota.Lender

	// MaxRequests bounds the requests in flight, BodyBytes the memory of their bodies, and BatchBytes that of batches.
	// One account may use three quarters of the requests and half of the bytes. Beyond that the answer is 503. Intakes
	// have half as many requests and a quarter of the bytes, in addition. 0 is a default.
	MaxRequests           int
	BodyBytes, BatchBytes int64
	// LivePages bounds the console's pages that are kept up to date, an account to half of them. 0 is a default.
	LivePages int
	// Exports bounds the concurrent exports, an account to half of them. 0 is a default.
	Exports int
	// Streams bounds the concurrent reads of streams, an account to an eighth of them. 0 is a default.
	Streams int
	// OwnWriteTimeout bounds, from a write on, how long reads of the account wait for the views to show it. 0 is a
	// second.
	OwnWriteTimeout time.Duration

	// Challenges verifies the challenges of forms; nil: at the providers' own addresses.
	Challenges *challenge.Verifier

	// TrustedProxies are the networks whose X-Forwarded-For is used.
	TrustedProxies []netip.Prefix
	// CORSOrigins are the origins whose pages may capture leads, exactly as browsers write them.
	CORSOrigins []string
	// BasePath is put before every route.
	BasePath string

	// ConsoleKey seals the console's sessions, 32 bytes; nil disables the console.
	ConsoleKey []byte
	// ConsoleCodes are the one-time codes that sign in to the console; nil: there are none.
	ConsoleCodes *console.Codes
	// ConsoleProvider is where people sign in to the console; nil: by JWTs alone.
	ConsoleProvider *oidc.Provider
	// Stopping, when closed, ends the streams of the console, and requests that wait for events. It may be nil.
	Stopping <-chan struct{}

	// PreviewFilter applies the filter of an endpoint to what it gets of events, when it is subscribed to types. It has
	// no effect. It waits for a turn before each message, and ends the turn after it.
	PreviewFilter func(
		ctx context.Context, events []query.FeedEvent, types []string, filter string,
		turn func(context.Context) (end func(), err error),
	) (query.FilterPreview, error)
	// Ready returns the state of the parts that the service needs, for /readyz; with nil, it is always ready.
	Ready func(context.Context) []Component
	// Trace starts the trace of a request and of its effects; nil: there are no traces.
	Trace Trace
	// Metrics gets the request metrics and is served at /metrics; nil is neither.
	Metrics *prometheus.Registry
}

// api is the state of the handler, shared by all requests.
type api struct {
	Options
	router        *chi.Mux
	literal       map[string]bool // paths of routes without an id
	quotas        *quota.Shared   // by policy and account
	confirmations *quota.Local    // by account
	failures      *quota.Local    // by address or token
	senders       *quota.Local    // by intake and address
	tokens        *existingIDs
	intakes       *existingIDs
	untrusted     sync.Once // warning of an ignored X-Forwarded-For
	lastWrites    *lastWrites
	load          *load
	metrics       *metrics
	ids           *requestIDs
	documents     documents
	readiness     singleflight.Group // one check answers all concurrent requests
}

// New returns the handler of the whole API.
func New(o Options) http.Handler {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Challenges == nil {
		o.Challenges = challenge.New("", "", o.Now)
	}
	if o.BasePath = strings.Trim(o.BasePath, "/"); o.BasePath != "" {
		o.BasePath = "/" + o.BasePath
	}
	a := &api{
		Options: o, router: chi.NewRouter(), literal: map[string]bool{}, ids: newRequestIDs(o.Now),
		quotas:        quota.NewShared(o.Quotas, 5*cachedAccounts, o.Now),
		confirmations: quota.NewLocal(cachedAccounts, o.Now), failures: quota.NewLocal(cachedAddresses, o.Now),
		senders: quota.NewLocal(cachedAddresses, o.Now), tokens: newExistingIDs(o.Query.TokenIDs),
		intakes:    newExistingIDs(o.Query.IntakeIDs),
		lastWrites: newLastWrites(o.Now, cmp.Or(o.OwnWriteTimeout, time.Second)), load: newLoad(o),
		metrics:   newMetrics(o.Metrics),
		documents: newDocuments(o.BasePath),
	}
	registerLender(o.Metrics, a.quotas)
	registerLoad(o.Metrics, a.load)
	for _, route := range a.routes() {
		a.literal[o.BasePath+route.pattern] = true
		a.router.Method(route.method, o.BasePath+route.pattern, a.serve(route))
		if route.method == http.MethodGet {
			a.router.Method(http.MethodHead, o.BasePath+route.pattern, a.serve(route))
		}
	}
	a.mountConsole()
	a.router.NotFound(a.serve(route{access: public, kind: quota.Free, handle: (*exchange).unknownRoute}))
	a.router.MethodNotAllowed(a.serve(route{access: public, kind: quota.Free, handle: (*exchange).wrongMethod}))
	return a.observe(a.cors(a.router))
}

// Sizes of the caches of quotas. The least recently used quota is dropped, and is full when it is needed again.
const (
	cachedAccounts  = 50_000
	cachedAddresses = 50_000
)
