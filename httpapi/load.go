package httpapi

import (
	"cmp"
	"errors"
	"io"
	"sync"
	"sync/atomic"
)

// errOverloaded says that a limit of the service's load is reached.
var errOverloaded = errors.New("overloaded")

// Limits of a process's load when its options do not set them.
const (
	defaultRequests   = 2048
	defaultBodyBytes  = 64 << 20
	defaultBatchBytes = 128 << 20
	defaultLivePages  = 256
	defaultExports    = 64 // a few MiB each, while somebody reads them slowly
	defaultStreams    = 64
)

// load counts what the process is working on, so that more can be refused before it takes memory.
type load struct {
	requests shared // one for each that is under way
	bodies   shared // bytes read of bodies of requests that are under way
	batches  shared // bytes that batches may hold of theirs
	waiting  shared // requests that wait until a view has come to a position
	pages    shared // of the console that are kept up to date
	exports  shared // of the console too
	streams  shared // requests that read the events of a stream
}

func newLoad(o Options) *load {
	requests, pages := cmp.Or(int64(o.MaxRequests), defaultRequests), cmp.Or(int64(o.LivePages), defaultLivePages)
	bodies, batches := cmp.Or(o.BodyBytes, defaultBodyBytes), cmp.Or(o.BatchBytes, defaultBatchBytes)
	exports, streams := cmp.Or(int64(o.Exports), defaultExports), cmp.Or(int64(o.Streams), defaultStreams)
	return &load{
		requests: newShared(requests, requests-requests/4), // more than may wait: that must not keep the account's captures out
		bodies:   newShared(bodies, max(bodies/2, 2*maxBody)),
		batches:  newShared(batches, max(batches/2, 2*batchBytes)),
		waiting:  newShared(requests, max(requests/2, 1)),
		pages:    newShared(pages, max(pages/2, 1)),
		exports:  newShared(exports, max(exports/2, 1)),
		streams:  newShared(streams, max(streams/8, 1)),
	}
}

// budget bounds how much of something all requests together may use.
type budget struct {
	most int64
	used atomic.Int64
}

// take takes a part, unless too little is left.
func (b *budget) take(n int64) bool {
	if b.used.Add(n) > b.most {
		b.used.Add(-n)
		return false
	}
	return true
}

func (b *budget) giveBack(n int64) { b.used.Add(-n) }

// shared is a budget of which no account may use more than a part, so that one that sends very slowly does not keep everybody else
// out.
type shared struct {
	budget
	each int64 // what an account may have
	mu   sync.Mutex
	by   map[string]int64
}

// newShared returns a budget of which an account may use at most each.
func newShared(most, each int64) shared {
	return shared{budget: budget{most: most}, each: each, by: map[string]int64{}}
}

// of returns an account's part of the budget.
func (s *shared) of(account string) allowance { return allowance{s, account} }

// allowance is one account's part of a shared budget.
type allowance struct {
	*shared
	account string
}

// take takes a part, unless too little is left of it or of all.
func (a allowance) take(n int64) bool {
	if !a.charge(n) {
		return false
	}
	if !a.budget.take(n) {
		a.credit(n)
		return false
	}
	return true
}

func (a allowance) giveBack(n int64) {
	a.credit(n)
	a.budget.giveBack(n)
}

// charge counts as the account's what was taken from the whole budget, unless the account uses too much already.
func (a allowance) charge(n int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.by[a.account]+n > a.each {
		return false
	}
	a.by[a.account] += n
	return true
}

// enter takes one, and returns the function that gives it back. The error is a limitError when the account has all it may have, and
// errOverloaded when all accounts together do.
func (a allowance) enter() (leave func(), err error) {
	if !a.charge(1) {
		return nil, limitError{retryBehind}
	}
	if !a.budget.take(1) {
		a.credit(1)
		return nil, errOverloaded
	}
	return func() { a.giveBack(1) }, nil
}

func (a allowance) credit(n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.by[a.account] -= n; a.by[a.account] == 0 {
		delete(a.by, a.account)
	}
}

// shed reports whether a route is refused under load. The others cost next to nothing, and some report the state of the service.
func (r route) shed() bool {
	switch r.pattern {
	case "", "/healthz", "/readyz", "/metrics", "/openapi.json", "/docs":
		return false
	}
	return true
}

// takeOn counts the request as running until done is called. The error is errOverloaded.
func (x *exchange) takeOn(route route) (done func(), err error) {
	if !route.shed() {
		return func() {}, nil
	}
	if !x.load.requests.take(1) {
		return nil, errOverloaded
	}
	return func() {
		x.place.waitAgain()
		if x.charged {
			x.load.requests.of(x.caller.Account).credit(1)
		}
		x.load.requests.giveBack(1)
		if x.held > 0 {
			x.load.bodies.of(x.caller.Account).giveBack(x.held)
		}
	}, nil
}

// countedBody is the request's body. Its bytes count against the budget until the request is done, but only once they have come,
// and not when Content-Length announces them.
type countedBody struct {
	x    *exchange
	body io.Reader
}

func (b countedBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if n > 0 && !b.x.load.bodies.of(b.x.caller.Account).take(int64(n)) {
		return n, errOverloaded
	}
	b.x.held += int64(n)
	return n, err
}
