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
func (ex *exchange) throttle(kind quota.Kind) error {
	if ex.kind = kind; kind == quota.Free {
		return nil
	}
	if ex.admission.Account == nil { // cached since the caller was admitted
		settings, err := ex.Directory.Account(ex.ctx, ex.caller.Account)
		if err != nil {
			return err
		}
		ex.admission.Account = settings
	}
	if kind == quota.Arrival {
		return nil // counted by its handler, once the sender has proved itself
	}
	if ex.intake != nil {
		if err := ex.takeSender(); err != nil {
			return err
		}
	}
	err := ex.take()
	// the console's pages have no quota headers, and senders to an intake do not see an account's
	if ex.w != nil && ex.intake == nil {
		setQuotaHeaders(ex.w.Header(), ex.policy, ex.used)
	}
	return err
}

// take takes a token from the account's quota of the request's kind. The error is a limitError.
//
// The account's limits are read from the cache. Before a refusal, the account is read from the log, at most once a
// second, because a caller that sends too many requests must not cause more work.
func (ex *exchange) take() error {
	policy, err := ex.takeCached()
	if err == nil {
		return nil
	}
	if ex.confirmations.Take(ex.caller.Account, quota.Limit{Rate: 1, Burst: 1}).Allowed {
		before := ex.admission.Account.State
		confirmed, failed := ex.Directory.ConfirmAccount(ex.ctx, ex.caller.Account)
		if failed == nil &&
			!(same(before.RateLimit, confirmed.State.RateLimit) && same(before.RateBurst, confirmed.State.RateBurst) &&
				before.StoragePerDay == confirmed.State.StoragePerDay) {
			ex.admission.Account = confirmed
			policy, err = ex.takeCached()
		}
	}
	if err != nil {
		ex.metrics.limited.WithLabelValues(policy).Inc()
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
func (ex *exchange) meters() []meter {
	all := make([]meter, 0, 3)
	if limit := ex.limit(); limit.Rate > 0 {
		all = append(all, meter{bytesPolicy, ex.quotaHolder(), limit.bytes()})
	}
	if perDay := ex.admission.Account.State.StoragePerDay; perDay > 0 && ex.kind.Stores() {
		all = append(all, meter{storagePolicy, ex.caller.Account, storageLimit(perDay)})
		if ex.atForm() {
			all = append(all, meter{
				storagePolicy, ex.caller.Account + "/forms", storageLimit(max(1, perDay/formsShare)),
			})
		}
	}
	return all
}

// limit returns the account's limit, from the cache; the zero Limit when it has none.
func (ex *exchange) limit() accountLimit {
	settings := ex.admission.Account.State
	return accountLimit{quota.LimitOf(settings.RateLimit, settings.RateBurst, ex.RateLimit, ex.RateBurst)}
}

// takeCached is take by the cached limits. It returns the policy that refused. A request refused for its bytes takes
// nothing from the other bucket.
func (ex *exchange) takeCached() (policy string, err error) {
	ex.policy, ex.used = "", quota.Use{}
	if !ex.kind.Reads() {
		for _, m := range ex.meters() {
			if left := ex.quotas.Left(ex.ctx, m.key(), m.limit); !left.Allowed {
				ex.policy, ex.used = m.policy, left
				return m.policy, m.refusal(left)
			}
		}
	}
	limit := ex.limit()
	switch {
	case limit.Rate == 0:
	case ex.kind.Reads():
		limit = limit.reads()
	case ex.intake != nil:
		limit = ex.arrivalLimit(limit)
	}
	if limit.Rate == 0 {
		return "", nil
	}
	policy = ex.kind.Policy()
	ex.policy, ex.used = policy, ex.quotas.Take(ex.ctx, policy+" "+ex.quotaHolder(), limit.Limit)
	if !ex.used.Allowed {
		return policy, limitError{ex.used.RetryAfter}
	}
	return "", nil
}

// charge takes the bytes that the request has appended since its last charge from the account's bucket.
func (ex *exchange) charge() {
	appended := ex.record.appended.Swap(0)
	if appended == 0 {
		return
	}
	for _, m := range ex.meters() {
		ex.quotas.Spend(m.key(), m.limit, int(appended))
	}
	for _, m := range ex.senderMeters() {
		ex.senders.Spend(m.key(), m.limit, int(appended))
	}
	ex.watchStorage()
}

// watchStorage records that little of the account's storage for a day is left.
func (ex *exchange) watchStorage() {
	settings := ex.admission.Account.State
	if settings.StoragePerDay == 0 || !ex.kind.Stores() || settings.ReportStorageLow(ex.Now()) == nil {
		return
	}
	// a slow body may have used up the request's
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ex.ctx), confirmTimeout)
	defer cancel()
	storage := meter{storagePolicy, ex.caller.Account, storageLimit(settings.StoragePerDay)}
	if left := ex.quotas.Left(ctx, storage.key(), storage.limit); left.Remaining > left.Limit.Burst/lowStorage {
		return
	}
	if !ex.confirmations.Take(storage.key(), quota.Limit{Rate: 1. / 60, Burst: 1}).Allowed {
		return
	}
	if err := ex.Commands.ReportStorageLow(ctx, ex.caller.Account); err != nil {
		ex.Log.Warn("low storage not recorded", slog.String("account", ex.caller.Account), slog.Any("error", err))
	}
}

// enterStream counts the request among the account's concurrent reads of streams, until leave is called. The error is a
// limitError or errOverloaded.
func (ex *exchange) enterStream() (leave func(), err error) {
	leave, err = ex.load.streams.of(ex.caller.Account).enter()
	if err != nil {
		ex.metrics.limited.WithLabelValues(streamLimit).Inc()
	}
	return leave, err
}

// takeGuess counts a JWT that the issuer did not sign, or a wrong sign-in code, against the quota of the client's
// address. API tokens do not depend on this quota. The error is a limitError.
func (ex *exchange) takeGuess() error { return ex.allow(ex.takeFromAddress("guess")) }

// guessesLeft returns the error of takeGuess without counting anything. It bounds requests to the sign-in provider,
// which only answers whether a code is valid.
func (ex *exchange) guessesLeft() error {
	return ex.allow(ex.failures.Left("guess "+ex.address(), failureLimit))
}

// takeLookup counts reading an API token from the log: against the quota of the client's address or, if that is used up
// by tokens that do not exist, against the token's own quota, if a token with this id exists. So an existing token is
// accepted regardless of other requests from its address, and the number of reads is bounded. The errors are a
// limitError and those of reading the list of tokens.
func (ex *exchange) takeLookup(id string) error {
	return ex.takeUnlessExisting("lookup", id, ex.tokens)
}

// takeIntakeLookup is takeLookup for an intake.
func (ex *exchange) takeIntakeLookup(id string) error {
	return ex.takeUnlessExisting("intake", id, ex.intakes)
}

func (ex *exchange) takeUnlessExisting(what, id string, known *existingIDs) error {
	used := ex.takeFromAddress(what)
	if !used.Allowed {
		exists, err := known.has(ex.ctx, id)
		if err != nil {
			return err
		}
		if exists {
			used = ex.failures.Take(what+" of "+id, failureLimit)
		}
	}
	return ex.allow(used)
}

// proofLimit bounds how many wrong proofs and origins one address may send to intakes. Each may cost a read of the
// intake's stream.
var proofLimit = quota.Limit{Rate: 50, Burst: 1000}

// takeProof counts a wrong proof or origin against the quota of the client's address. The error is a limitError.
func (ex *exchange) takeProof() error {
	return ex.allow(ex.failures.Take("proof "+ex.address(), proofLimit))
}

// proofsLeft returns the error of takeProof without counting anything.
func (ex *exchange) proofsLeft() error {
	return ex.allow(ex.failures.Left("proof "+ex.address(), proofLimit))
}

// allow returns a limitError if the quota of credentials is used up.
func (ex *exchange) allow(used quota.Use) error {
	if !used.Allowed {
		ex.metrics.limited.WithLabelValues(credentialLimit).Inc()
		return limitError{used.RetryAfter}
	}
	return nil
}

// networkLimits are the limits of the networks around an IPv6 address, as multiples of an address's limit. They keep
// one network from filling the cache of quotas: a further address is only remembered while its networks are below their
// limits.
var networkLimits = []struct{ bits, times int }{{32, 256}, {48, 16}}

// takeFromAddress takes a token from the quotas of the client's address and of the networks that contain it.
func (ex *exchange) takeFromAddress(what string) quota.Use {
	type bucket struct {
		key   string
		limit quota.Limit
	}
	var networks []bucket
	if ex.client.Is6() {
		for _, n := range networkLimits {
			network := netip.PrefixFrom(ex.client, n.bits).Masked()
			limit := quota.Limit{Rate: failureLimit.Rate * float64(n.times), Burst: failureLimit.Burst * n.times}
			networks = append(networks, bucket{what + " " + network.String(), limit})
		}
	}
	for _, n := range networks {
		if left := ex.failures.Left(n.key, n.limit); !left.Allowed {
			return left
		}
	}
	used := ex.failures.Take(what+" "+ex.address(), failureLimit)
	for _, n := range networks {
		if used.Allowed {
			ex.failures.Take(n.key, n.limit)
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

// reserve takes n of the budget, unless less is left. It is for a request whose holder is not known yet.
func (b *budget) reserve(n int64) bool {
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

// reserve takes n of the share and of the budget, unless less is left of either.
func (s share) reserve(n int64) bool {
	if !s.charge(n) {
		return false
	}
	if !s.budget.reserve(n) {
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
	if !s.budget.reserve(1) {
		s.credit(1)
		return nil, errOverloaded
	}
	return func() { s.release(1) }, nil
}

// beginRequest counts the request as in flight until end is called. The error is errOverloaded or, at an intake, a
// limitError.
func (ex *exchange) beginRequest(kind quota.Kind) (end func(), err error) {
	if kind.AtIntake() {
		return ex.beginArrival()
	}
	if !ex.load.requests.reserve(1) {
		return nil, errOverloaded
	}
	return func() {
		ex.conn.markIdle()
		if ex.charged {
			ex.load.requests.of(ex.caller.Account).credit(1)
		}
		ex.load.requests.release(1)
		if ex.reserved > 0 {
			ex.load.bodies.of(ex.caller.Account).release(ex.reserved)
		}
	}, nil
}

// chargeRequest counts the request against the share of its account or intake. The error is errOverloaded or, at an
// intake, a limitError.
func (ex *exchange) chargeRequest(kind quota.Kind) error {
	if kind.AtIntake() {
		return ex.chargeArrival()
	}
	if ex.charged = ex.load.requests.of(ex.caller.Account).charge(1); !ex.charged {
		return errOverloaded
	}
	return nil
}

// countedBody is the request's body. Its bytes count against the budget from when they are received, whatever
// Content-Length announces, until the request ends.
type countedBody struct {
	ex   *exchange
	body io.Reader
}

func (b countedBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if n > 0 && !b.ex.reserve(int64(n)) {
		return n, errOverloaded
	}
	return n, err
}

// reserve counts bytes of the body, unless the budget has none left for them.
func (ex *exchange) reserve(n int64) bool {
	reserved := false
	if ex.kind.AtIntake() {
		reserved = ex.load.arrivals.bodies.reserve(ex.address(), ex.intake.ID, n)
	} else {
		reserved = ex.load.bodies.of(ex.caller.Account).reserve(n)
	}
	if reserved {
		ex.reserved += n
	}
	return reserved
}
