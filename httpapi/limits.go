package httpapi

import (
	"cmp"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/leadlog/leadlog/httpapi/quota"
)

// failureLimit is how many failed credentials one address may send.
var failureLimit = quota.Limit{Rate: 10, Burst: 100}

// An account has a bucket for each policy of quota.Kind, with the account's limits: page views never use up captures. Reads have
// readShare times the limits.
//
// The bytes that the account appends have a bucket of their own. How many a request will append is known afterwards, so a request is
// let in while the bucket is not empty, and then takes from it what it appended, into debt if need be.
const (
	readShare   = 5
	bytesPolicy = "bytes"
	// An account whose limits are above the usual ones may append as many more bytes.
	bytesRate   = 1 << 20 // a second
	bytesBurst  = 32 << 20
	usualRate   = 10 // captures a second
	usualBurst  = 100
	maxTokens   = 1 << 30   // of a bucket
	streamLimit = "streams" // names, in metrics, the limit of concurrent reads of streams
)

// credentialLimit names, in metrics, the limit of addresses that send bad credentials.
const credentialLimit = "credentials"

// limits are the names of all limits, in metrics.
func limits() []string {
	return []string{
		quota.Capture.Policy(), quota.Activity.Policy(), quota.Write.Policy(), quota.Read.Policy(), bytesPolicy, streamLimit, credentialLimit,
	}
}

// limitHeader says what is left of a quota, and policyHeader what is in a full one.
const (
	limitHeader  = "RateLimit"
	policyHeader = "RateLimit-Policy"
)

// tellQuota sets the header that says how much is left, as in draft-ietf-httpapi-ratelimit-headers.
func tellQuota(header http.Header, kind quota.Kind, use quota.Use) {
	if limit := use.Limit; limit.Rate > 0 {
		policy := `"` + kind.Policy() + `"`
		window := max(1, wholeSeconds(limit.Window()))
		header.Set(policyHeader, policy+`;q=`+strconv.Itoa(limit.Burst)+`;w=`+strconv.FormatInt(window, 10))
		header.Set(limitHeader, policy+`;r=`+strconv.Itoa(use.Remaining)+`;t=`+strconv.FormatInt(wholeSeconds(use.Full), 10))
	}
}

// throttle counts the request against the account's quotas, and sets the header that says how much is left. The error is a
// limitError.
func (x *exchange) throttle(kind quota.Kind) error {
	if x.kind = kind; kind == quota.Free {
		return nil
	}
	if x.admission.Account == nil { // read when the caller was let in, and so in the cache
		settings, err := x.Directory.Account(x.ctx, x.caller.Account)
		if err != nil {
			return err
		}
		x.admission.Account = settings
	}
	err := x.take()
	if x.w != nil { // the console's pages have no such header
		tellQuota(x.w.Header(), kind, x.used)
	}
	return err
}

// take takes one from the account's quota of the request's kind. The error is a limitError.
//
// The account's limits come from the cache. Before a refusal, the account is read from the log, but at most once a second: a caller
// who sends too many requests must not cause more work.
func (x *exchange) take() error {
	policy, err := x.takeCached()
	if err == nil {
		return nil
	}
	if x.confirmations.Take(x.caller.Account, quota.Limit{Rate: 1, Burst: 1}).Allowed {
		before := x.admission.Account.State
		confirmed, failed := x.Directory.ConfirmAccount(x.ctx, x.caller.Account)
		if failed == nil && !(same(before.RateLimit, confirmed.State.RateLimit) && same(before.RateBurst, confirmed.State.RateBurst)) {
			x.admission.Account = confirmed
			policy, err = x.takeCached()
		}
	}
	if err != nil {
		x.metrics.limited.WithLabelValues(policy).Inc()
	}
	return err
}

func same[T comparable](a, b *T) bool { return a == b || (a != nil && b != nil && *a == *b) }

// accountLimit is the limit of an account's captures, from which all its others follow.
type accountLimit struct{ quota.Limit }

func (l accountLimit) reads() accountLimit {
	return accountLimit{l.Times(readShare)}
}

func (l accountLimit) bytes() quota.Limit {
	return quota.Limit{
		Rate:  min(bytesRate*max(1, l.Rate/usualRate), maxTokens), // or an empty bucket would be full, and leased from again, in no time
		Burst: int(min(bytesBurst*max(1, float64(l.Burst)/usualBurst), maxTokens)),
	}
}

// limit returns the account's limit, from the cache; the zero Limit when it has none.
func (x *exchange) limit() accountLimit {
	settings := x.admission.Account.State
	return accountLimit{quota.LimitOf(settings.RateLimit, settings.RateBurst, x.RateLimit, x.RateBurst)}
}

// takeCached is take by the cached limits. It returns the policy that refused. A request that is refused for its bytes takes
// nothing from the other bucket.
func (x *exchange) takeCached() (policy string, err error) {
	limit := x.limit()
	x.used = quota.Use{}
	if limit.Rate == 0 {
		return "", nil
	}
	if !x.kind.Reads() {
		if left := x.quotas.Left(x.ctx, bytesPolicy+" "+x.caller.Account, limit.bytes()); !left.Allowed {
			return bytesPolicy, limitError{left.RetryAfter}
		}
	} else {
		limit = limit.reads()
	}
	policy = x.kind.Policy()
	x.used = x.quotas.Take(x.ctx, policy+" "+x.caller.Account, limit.Limit)
	if !x.used.Allowed {
		return policy, limitError{x.used.RetryAfter}
	}
	return "", nil
}

// charge takes from the account's bucket what the request has appended since it was last charged.
func (x *exchange) charge() {
	appended := x.record.appended.Swap(0)
	if appended == 0 {
		return
	}
	if limit := x.limit(); limit.Rate > 0 {
		x.quotas.Spend(bytesPolicy+" "+x.caller.Account, limit.bytes(), int(appended))
	}
}

// enterStream counts the request among those of the account that read streams, until leave is called. The error is a limitError, or
// errOverloaded.
func (x *exchange) enterStream() (leave func(), err error) {
	leave, err = x.load.streams.of(x.caller.Account).enter()
	if err != nil {
		x.metrics.limited.WithLabelValues(streamLimit).Inc()
	}
	return leave, err
}

// spend takes one from the quota of guesses of the client's address: JWTs that the issuer did not sign, and wrong codes. It keeps no
// API token out. The error is a limitError.
func (x *exchange) spend() error { return x.takeOf(x.takeFromAddress("guess")) }

// spendLookup takes one for reading a token from the log: from the quota of the client's address or, when others there have used
// that up with tokens that do not exist, from that of the token, if there is a token with this id. So whatever is sent from an
// address, a token that exists is still let in, and look-ups stay bounded. The error is a limitError.
func (x *exchange) spendLookup(id string) error {
	used := x.takeFromAddress("lookup")
	if !used.Allowed && x.tokens.has(x.ctx, id, x.Query.TokenIDs) {
		used = x.failures.Take("token "+id, failureLimit)
	}
	return x.takeOf(used)
}

func (x *exchange) takeOf(used quota.Use) error {
	if !used.Allowed {
		x.metrics.limited.WithLabelValues(credentialLimit).Inc()
		return limitError{used.RetryAfter}
	}
	return nil
}

// networkLimits are how many times the limit of an address the networks around an IPv6 address have. They keep one network from
// taking the memory of all quotas: one address more is only remembered while its networks have something left.
var networkLimits = []struct{ bits, times int }{{32, 256}, {48, 16}}

// takeFromAddress takes one from the quota of the client's address, and of the networks around it.
func (x *exchange) takeFromAddress(what string) quota.Use {
	type bucket struct {
		key   string
		limit quota.Limit
	}
	var networks []bucket
	if x.client.Is6() {
		for _, n := range networkLimits {
			network := netip.PrefixFrom(x.client, n.bits).Masked()
			limit := quota.Limit{Rate: failureLimit.Rate * float64(n.times), Burst: failureLimit.Burst * n.times}
			networks = append(networks, bucket{what + " " + network.String(), limit})
		}
	}
	for _, n := range networks {
		if left := x.failures.Left(n.key, n.limit); !left.Allowed {
			return left
		}
	}
	used := x.failures.Take(what+" "+addressBlock(x.client), failureLimit)
	for _, n := range networks {
		if used.Allowed {
			x.failures.Take(n.key, n.limit)
		}
	}
	return used
}

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
