package httpapi

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/httpapi/console"
	"github.com/leadlog/leadlog/httpapi/quota"
	"github.com/leadlog/leadlog/query"
)

const consolePath = "/console"

// mountConsole adds the console's routes. The console authenticates callers and explains errors as the API does,
// through gate.
func (a *api) mountConsole() {
	if a.ConsoleKey == nil {
		return
	}
	pages := console.New(console.Options{
		Commands: a.Commands, Eraser: a.Eraser, Resubmissions: a.Resubmissions, Imports: a.Imports,
		Directory: a.Directory, Query: a.Query,
		Tree: a.Tree, LogTree: a.LogTree, Gate: gate{a}, Log: a.Log, Now: a.Now, Base: a.BasePath + consolePath,
		Key: a.ConsoleKey, Codes: a.ConsoleCodes, Provider: a.ConsoleProvider, Stopping: a.Stopping,
		Troubles: a.troubles,
	})
	a.router.Mount(a.BasePath+consolePath, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		record := w.(*record)
		ctx := command.CountAppended(context.WithValue(r.Context(), recordKey{}, record), &record.appended)
		pages.ServeHTTP(w, r.WithContext(ctx))
	}))
}

// troubles are the components of the service that are not ready, or are an alarm.
func (a *api) troubles(ctx context.Context) (troubles []console.Trouble) {
	if a.Ready == nil {
		return nil
	}
	for _, c := range a.Ready(ctx) {
		if !c.Ready || c.Alarm {
			troubles = append(troubles, console.Trouble{Name: c.Name, Detail: c.Detail})
		}
	}
	return troubles
}

// recordKey is the context key of a request's record, because the console passes only requests to the gate.
type recordKey struct{}

func recordOf(r *http.Request) *record {
	record, _ := r.Context().Value(recordKey{}).(*record)
	return record
}

// gate implements console.Gate.
type gate struct{ api *api }

// exchange is an exchange of a page, which writes its own response.
func (g gate) exchange(r *http.Request) *exchange { return g.api.exchange(nil, r, recordOf(r)) }

func (g gate) SignIn(r *http.Request, jwt string) (console.Identity, error) {
	identity, err := g.exchange(r).verify(jwt, command.NoCache)
	if err != nil {
		return console.Identity{}, err
	}
	return console.Identity{
		Account: identity.Account, Subject: identity.Subject, Scopes: identity.Scopes(), Issued: identity.Issued,
		Expires: identity.Expires,
	}, nil
}

func (g gate) Guess(r *http.Request) error { return g.exchange(r).takeGuess() }

func (g gate) MayGuess(r *http.Request) error { return g.exchange(r).guessesLeft() }

func (g gate) Caller(r *http.Request) command.Caller { return g.exchange(r).caller }

// Secure implements console.Gate. X-Forwarded-Proto of a trusted proxy counts.
func (g gate) Secure(r *http.Request) bool {
	return r.TLS != nil || within(address(r.RemoteAddr), g.api.TrustedProxies) &&
		strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
}

func (g gate) Explain(err error) console.Failure {
	f := describe(err)
	return console.Failure{
		Status: f.status, Message: f.envelope.Message, Fields: f.envelope.Errors, RetryAfter: f.retryAfter,
	}
}

// BeginRequest implements console.Gate. Requests without a session are not counted, because slow unauthenticated
// clients must not occupy slots.
func (g gate) BeginRequest(r *http.Request, account string) (done func(), err error) {
	requests := g.api.load.requests.of(account)
	if !requests.reserve(1) {
		return nil, errOverloaded
	}
	connection := markBusy(r)
	return func() {
		connection.markIdle()
		requests.release(1)
	}, nil
}

// Throttle implements console.Gate.
func (g gate) Throttle(r *http.Request, account string, kind quota.Kind) (charge func(), err error) {
	ex := g.exchange(r)
	ex.caller.Account = account
	return ex.charge, ex.throttle(kind)
}

func (g gate) EnterStream(r *http.Request, account string) (leave func(), err error) {
	ex := g.exchange(r)
	ex.caller.Account = account
	return ex.enterStream()
}

func (g gate) Follow(account string) (leave func(), err error) {
	return g.api.load.pages.of(account).enter()
}

func (g gate) Export(account string) (leave func(), err error) {
	return g.api.load.exports.of(account).enter()
}

func (g gate) TryFilter(
	r *http.Request, caller command.Caller, endpoint query.Endpoint, filter string,
) (query.FilterPreview, error) {
	ex := g.exchange(r)
	ex.caller = caller
	return ex.tryFilter(endpoint, filter, time.Time{})
}

func (g gate) Note(r *http.Request, route, account string, err error) {
	record := recordOf(r)
	record.route, record.account, record.err = route, account, err
	if account != "" {
		record.credential = "session"
	}
}
