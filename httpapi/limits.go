package httpapi

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/leadlog/leadlog/httpapi/quota"
)

// failureLimit bounds how many failed credentials one address may send.
var failureLimit = quota.Limit{Rate: 10, Burst: 100}

// An account has a token bucket for each policy of quota.Kind, with the account's limits, so that page views never use
// up the captures. The bucket of reads has readShare times the limits.
//
// The bytes that the account appends have buckets of their own, which fill in seconds and, for its storage, in a day.
// The size of a request's append is known only afterwards: a request is admitted while no bucket is empty, and then
// takes its bytes, into debt if necessary.
const (
	readShare     = 5
	bytesPolicy   = "bytes"
	storagePolicy = "storage"
	// Anyone may post to a form, so posts to all forms of an account may use a part of its storage.
	formsShare = 2
	// Of storage that is low, a fifth or less is left.
	lowStorage = 5
	// An account whose limits are above the default may append proportionally more bytes.
	bytesRate    = 1 << 20 // a second
	bytesBurst   = 32 << 20
	defaultRate  = 10 // captures a second
	defaultBurst = 100
	maxTokens    = 1 << 30   // of a bucket
	streamLimit  = "streams" // label, in metrics, of the limit of concurrent reads of streams
	senderLimit  = "sender"  // label, in metrics, of the limit of an address at an intake
)

// credentialLimit is the label, in metrics, of the limit of failed credentials of an address.
const credentialLimit = "credentials"

// limits returns the labels of all limits, in metrics.
func limits() []string {
	return []string{
		quota.Capture.Policy(), quota.Activity.Policy(), quota.Arrival.Policy(), quota.Write.Policy(),
		quota.Read.Policy(), bytesPolicy, storagePolicy, streamLimit, senderLimit, credentialLimit, treeLimit,
	}
}

// limitHeader has the rest of a quota, and policyHeader its size.
const (
	limitHeader  = "RateLimit"
	policyHeader = "RateLimit-Policy"
)

// setQuotaHeaders sets the headers of draft-ietf-httpapi-ratelimit-headers.
func setQuotaHeaders(header http.Header, policy string, use quota.Use) {
	if limit := use.Limit; limit.Rate > 0 {
		policy = `"` + policy + `"`
		window := max(1, wholeSeconds(limit.Window()))
		header.Set(policyHeader, policy+`;q=`+strconv.Itoa(limit.Burst)+`;w=`+strconv.FormatInt(window, 10))
		header.Set(limitHeader,
			policy+`;r=`+strconv.Itoa(use.Remaining)+`;t=`+strconv.FormatInt(wholeSeconds(use.Full), 10))
	}
}

// throttle counts the request against the account's quotas, and sets the quota headers. The error is a limitError.
func (x *exchange) throttle(kind quota.Kind) error {
	if x.kind = kind; kind == quota.Free {
		return nil
	}
	if x.admission.Account == nil { // cached since the caller was admitted
		settings, err := x.Directory.Account(x.ctx, x.caller.Account)
		if err != nil {
			return err
		}
		x.admission.Account = settings
	}
	if kind == quota.Arrival {
		return nil // counted by its handler, once the sender has proved itself
	}
	if x.intake != nil {
		if err := x.takeSender(); err != nil {
			return err
		}
	}
	err := x.take()
	// the console's pages have no quota headers, and senders to an intake do not see an account's
	if x.w != nil && x.intake == nil {
		setQuotaHeaders(x.w.Header(), x.policy, x.used)
	}
	return err
}

// take takes a token from the account's quota of the request's kind. The error is a limitError.
//
// The account's limits are read from the cache. Before a refusal, the account is read from the log, at most once a
// second, because a caller that sends too many requests must not cause more work.
func (x *exchange) take() error {
	policy, err := x.takeCached()
	if err == nil {
		return nil
	}
	if x.confirmations.Take(x.caller.Account, quota.Limit{Rate: 1, Burst: 1}).Allowed {
		before := x.admission.Account.State
		confirmed, failed := x.Directory.ConfirmAccount(x.ctx, x.caller.Account)
		if failed == nil &&
			!(same(before.RateLimit, confirmed.State.RateLimit) && same(before.RateBurst, confirmed.State.RateBurst) &&
				before.StoragePerDay == confirmed.State.StoragePerDay) {
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

// accountLimit is the limit of an account's captures, from which its other limits are derived.
type accountLimit struct{ quota.Limit }

func (l accountLimit) reads() accountLimit {
	return accountLimit{l.Times(readShare)}
}

func (l accountLimit) bytes() quota.Limit {
	return quota.Limit{
		// faster, an empty bucket would be full again, and leased from, at once
		Rate:  min(bytesRate*max(1, l.Rate/defaultRate), maxTokens),
		Burst: int(min(bytesBurst*max(1, float64(l.Burst)/defaultBurst), maxTokens)),
	}
}

// storageLimit is the limit of a number of bytes in a day.
func storageLimit(perDay int) quota.Limit {
	return quota.Limit{Rate: float64(perDay) / (24 * time.Hour).Seconds(), Burst: perDay}
}

// meter is a bucket of appended bytes.
type meter struct {
	policy, holder string
	limit          quota.Limit
}

func (m meter) key() string { return m.policy + " " + m.holder }

// refusal is the error of a request that the empty bucket refuses.
func (m meter) refusal(left quota.Use) error {
	if m.policy == storagePolicy {
		return storageError{left.RetryAfter}
	}
	return limitError{left.RetryAfter}
}

// meters returns the account's buckets that the request's appended bytes count against.
func (x *exchange) meters() []meter {
	all := make([]meter, 0, 3)
	if limit := x.limit(); limit.Rate > 0 {
		all = append(all, meter{bytesPolicy, x.quotaHolder(), limit.bytes()})
	}
	if perDay := x.admission.Account.State.StoragePerDay; perDay > 0 && x.kind.Stores() {
		all = append(all, meter{storagePolicy, x.caller.Account, storageLimit(perDay)})
		if x.atForm() {
			all = append(all, meter{
				storagePolicy, x.caller.Account + "/forms", storageLimit(max(1, perDay/formsShare)),
			})
		}
	}
	return all
}

// limit returns the account's limit, from the cache; the zero Limit when it has none.
func (x *exchange) limit() accountLimit {
	settings := x.admission.Account.State
	return accountLimit{quota.LimitOf(settings.RateLimit, settings.RateBurst, x.RateLimit, x.RateBurst)}
}

// takeCached is take by the cached limits. It returns the policy that refused. A request refused for its bytes takes
// nothing from the other bucket.
func (x *exchange) takeCached() (policy string, err error) {
	x.policy, x.used = "", quota.Use{}
	if !x.kind.Reads() {
		for _, m := range x.meters() {
			if left := x.quotas.Left(x.ctx, m.key(), m.limit); !left.Allowed {
				x.policy, x.used = m.policy, left
				return m.policy, m.refusal(left)
			}
		}
	}
	limit := x.limit()
	switch {
	case limit.Rate == 0:
	case x.kind.Reads():
		limit = limit.reads()
	case x.intake != nil:
		limit = x.arrivalLimit(limit)
	}
	if limit.Rate == 0 {
		return "", nil
	}
	policy = x.kind.Policy()
	x.policy, x.used = policy, x.quotas.Take(x.ctx, policy+" "+x.quotaHolder(), limit.Limit)
	if !x.used.Allowed {
		return policy, limitError{x.used.RetryAfter}
	}
	return "", nil
}

// charge takes the bytes that the request has appended since its last charge from the account's bucket.
func (x *exchange) charge() {
	appended := x.record.appended.Swap(0)
	if appended == 0 {
		return
	}
	for _, m := range x.meters() {
		x.quotas.Spend(m.key(), m.limit, int(appended))
	}
	for _, m := range x.senderMeters() {
		x.senders.Spend(m.key(), m.limit, int(appended))
	}
	x.watchStorage()
}

// watchStorage records that little of the account's storage for a day is left.
func (x *exchange) watchStorage() {
	settings := x.admission.Account.State
	if settings.StoragePerDay == 0 || !x.kind.Stores() || settings.ReportStorageLow(x.Now()) == nil {
		return
	}
	// a slow body may have used up the request's
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.ctx), confirmTimeout)
	defer cancel()
	storage := meter{storagePolicy, x.caller.Account, storageLimit(settings.StoragePerDay)}
	if left := x.quotas.Left(ctx, storage.key(), storage.limit); left.Remaining > left.Limit.Burst/lowStorage {
		return
	}
	if !x.confirmations.Take(storage.key(), quota.Limit{Rate: 1. / 60, Burst: 1}).Allowed {
		return
	}
	if err := x.Commands.ReportStorageLow(ctx, x.caller.Account); err != nil {
		x.Log.Warn("low storage not recorded", slog.String("account", x.caller.Account), slog.Any("error", err))
	}
}

// enterStream counts the request among the account's concurrent reads of streams, until leave is called. The error is a
// limitError or errOverloaded.
func (x *exchange) enterStream() (leave func(), err error) {
	leave, err = x.load.streams.of(x.caller.Account).enter()
	if err != nil {
		x.metrics.limited.WithLabelValues(streamLimit).Inc()
	}
	return leave, err
}

// takeGuess counts a JWT that the issuer did not sign, or a wrong sign-in code, against the quota of the client's
// address. API tokens do not depend on this quota. The error is a limitError.
func (x *exchange) takeGuess() error { return x.allow(x.takeFromAddress("guess")) }

// guessesLeft returns the error of takeGuess without counting anything. It bounds requests to the sign-in provider,
// which only answers whether a code is valid.
func (x *exchange) guessesLeft() error {
	return x.allow(x.failures.Left("guess "+x.address(), failureLimit))
}

// takeLookup counts reading an API token from the log: against the quota of the client's address or, if that is used up
// by tokens that do not exist, against the token's own quota, if a token with this id exists. So an existing token is
// accepted regardless of other requests from its address, and the number of reads is bounded. The errors are a
// limitError and those of reading the list of tokens.
func (x *exchange) takeLookup(id string) error { return x.takeUnlessExisting("lookup", id, x.tokens) }

// takeIntakeLookup is takeLookup for an intake.
func (x *exchange) takeIntakeLookup(id string) error {
	return x.takeUnlessExisting("intake", id, x.intakes)
}

func (x *exchange) takeUnlessExisting(what, id string, known *existingIDs) error {
	used := x.takeFromAddress(what)
	if !used.Allowed {
		exists, err := known.has(x.ctx, id)
		if err != nil {
			return err
		}
		if exists {
			used = x.failures.Take(what+" of "+id, failureLimit)
		}
	}
	return x.allow(used)
}

// proofLimit bounds how many wrong proofs and origins one address may send to intakes. Each may cost a read of the
// intake's stream.
var proofLimit = quota.Limit{Rate: 50, Burst: 1000}

// takeProof counts a wrong proof or origin against the quota of the client's address. The error is a limitError.
func (x *exchange) takeProof() error {
	return x.allow(x.failures.Take("proof "+x.address(), proofLimit))
}

// proofsLeft returns the error of takeProof without counting anything.
func (x *exchange) proofsLeft() error {
	return x.allow(x.failures.Left("proof "+x.address(), proofLimit))
}

// allow returns a limitError if the quota of credentials is used up.
func (x *exchange) allow(used quota.Use) error {
	if !used.Allowed {
		x.metrics.limited.WithLabelValues(credentialLimit).Inc()
		return limitError{used.RetryAfter}
	}
	return nil
}

// networkLimits are the limits of the networks around an IPv6 address, as multiples of an address's limit. They keep
// one network from filling the cache of quotas: a further address is only remembered while its networks are below their
// limits.
var networkLimits = []struct{ bits, times int }{{32, 256}, {48, 16}}

// takeFromAddress takes a token from the quotas of the client's address and of the networks that contain it.
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
	used := x.failures.Take(what+" "+x.address(), failureLimit)
	for _, n := range networks {
		if used.Allowed {
			x.failures.Take(n.key, n.limit)
		}
	}
	return used
}

// errOverloaded reports that the service has reached one of its load limits.
var errOverloaded = errors.New("overloaded")

// Limits of a process's load that apply when its options do not set them.
const (
	defaultRequests   = 2048
	defaultBodyBytes  = 64 << 20
	defaultBatchBytes = 128 << 20
	defaultLivePages  = 256
	defaultExports    = 64 // a slowly read one holds a few MiB
	defaultStreams    = 64
	maxPolls          = 512
)

// load counts the work of the process, so that further work is refused before it takes memory.
type load struct {
	requests budget // in flight, except those at intakes
	bodies   budget // bytes read from the bodies of these requests
	batches  budget // bytes that batches may hold of their bodies
	arrivals intakeLoad
	waiting  budget // requests that wait for a view to reach a position
	pages    budget // of the console that are kept up to date
	exports  budget // of the API and the console
	streams  budget // requests that read the events of a stream
	polls    budget // requests that wait for events of the change feed
}

func newLoad(o Options) *load {
	requests, pages := cmp.Or(int64(o.MaxRequests), defaultRequests), cmp.Or(int64(o.LivePages), defaultLivePages)
	bodies, batches := cmp.Or(o.BodyBytes, defaultBodyBytes), cmp.Or(o.BatchBytes, defaultBatchBytes)
	exports, streams := cmp.Or(int64(o.Exports), defaultExports), cmp.Or(int64(o.Streams), defaultStreams)
	return &load{
		// more than may wait, so that an account whose reads wait can still capture
		requests: newBudget(requests, requests-requests/4),
		bodies:   newBudget(bodies, max(bodies/2, 2*maxBody)),
		arrivals: newIntakeLoad(requests/2, max(bodies/4, 4*maxArrival)),
		batches:  newBudget(batches, max(batches/2, 2*batchBytes)),
		waiting:  newBudget(requests, max(requests/2, 1)),
		pages:    newBudget(pages, max(pages/2, 1)),
		exports:  newBudget(exports, max(exports/2, 1)),
		streams:  newBudget(streams, max(streams/8, 1)),
		polls:    newBudget(min(maxPolls, max(requests/4, 1)), min(maxPolls/8, max(requests/16, 1))),
	}
}

// budget bounds how much of a resource all requests together use, and how much of it one holder uses, which is mostly
// an account: an account with slow clients must not keep the others out.
type budget struct {
	max, perHolder int64
	mu             sync.Mutex
	used           int64
	byHolder       map[string]int64
}

func newBudget(most, perHolder int64) budget {
	return budget{max: most, perHolder: perHolder, byHolder: map[string]int64{}}
}

// inUse returns how much all requests use.
func (b *budget) inUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// take takes n, unless less is left. It is for a request whose holder is not known yet.
func (b *budget) take(n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used+n > b.max {
		return false
	}
	b.used += n
	return true
}

func (b *budget) release(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
}

// of returns a holder's share of the budget.
func (b *budget) of(holder string) share { return share{b, holder} }

// share is one holder's part of a budget.
type share struct {
	*budget
	holder string
}

// take takes n of the share and of the budget, unless less is left of either.
func (s share) take(n int64) bool {
	if !s.charge(n) {
		return false
	}
	if !s.budget.take(n) {
		s.credit(n)
		return false
	}
	return true
}

func (s share) release(n int64) {
	s.credit(n)
	s.budget.release(n)
}

// charge assigns what was already taken from the budget to the holder, unless its share is used up.
func (s share) charge(n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byHolder[s.holder]+n > s.perHolder {
		return false
	}
	s.byHolder[s.holder] += n
	return true
}

func (s share) credit(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byHolder[s.holder] -= n; s.byHolder[s.holder] == 0 {
		delete(s.byHolder, s.holder)
	}
}

// enter takes one until leave is called. The error is a limitError if the holder's share is used up, and errOverloaded
// if the budget is.
func (s share) enter() (leave func(), err error) {
	if !s.charge(1) {
		return nil, limitError{retryBehind}
	}
	if !s.budget.take(1) {
		s.credit(1)
		return nil, errOverloaded
	}
	return func() { s.release(1) }, nil
}

// beginRequest counts the request as in flight until end is called. The error is errOverloaded or, at an intake, a
// limitError.
func (x *exchange) beginRequest(kind quota.Kind) (end func(), err error) {
	if kind.AtIntake() {
		return x.beginArrival()
	}
	if !x.load.requests.take(1) {
		return nil, errOverloaded
	}
	return func() {
		x.conn.markIdle()
		if x.charged {
			x.load.requests.of(x.caller.Account).credit(1)
		}
		x.load.requests.release(1)
		if x.reserved > 0 {
			x.load.bodies.of(x.caller.Account).release(x.reserved)
		}
	}, nil
}

// chargeRequest counts the request against the share of its account or intake. The error is errOverloaded or, at an
// intake, a limitError.
func (x *exchange) chargeRequest(kind quota.Kind) error {
	if kind.AtIntake() {
		return x.chargeArrival()
	}
	if x.charged = x.load.requests.of(x.caller.Account).charge(1); !x.charged {
		return errOverloaded
	}
	return nil
}

// countedBody is the request's body. Its bytes count against the budget from when they are received, whatever
// Content-Length announces, until the request ends.
type countedBody struct {
	x    *exchange
	body io.Reader
}

func (b countedBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if n > 0 && !b.x.hold(int64(n)) {
		return n, errOverloaded
	}
	return n, err
}

// hold counts bytes of the body, unless the budget has none left for them.
func (x *exchange) hold(n int64) bool {
	reserved := false
	if x.kind.AtIntake() {
		reserved = x.load.arrivals.bodies.take(x.address(), x.intake.ID, n)
	} else {
		reserved = x.load.bodies.of(x.caller.Account).take(n)
	}
	if reserved {
		x.reserved += n
	}
	return reserved
}
