package httpapi

import (
	"math"
	"net/http"
	"strconv"

	"github.com/leadlog/leadlog/httpapi/quota"
)

// failureLimit is how many failed credentials one address may send.
var failureLimit = quota.Limit{Rate: 10, Burst: 100}

// The quotas of an account. They have the same limits but are counted separately, so that page views never use up captures.
const (
	capturePolicy  = "capture"
	activityPolicy = "activity"
)

// credentialLimit names, in metrics, the limit of addresses that send bad credentials.
const credentialLimit = "credentials"

// limitHeader says what is left of a quota, and policyHeader what is in a full one.
const (
	limitHeader  = "RateLimit"
	policyHeader = "RateLimit-Policy"
)

// What http.Header has them under, which it would find out anew at every capture.
var limitKey, policyKey = http.CanonicalHeaderKey(limitHeader), http.CanonicalHeaderKey(policyHeader)

// tellQuota sets the header that says how much is left, as in draft-ietf-httpapi-ratelimit-headers.
func tellQuota(header http.Header, policy string, use quota.Use) {
	tellLimit(header, policy, use.Limit)
	if use.Limit.Rate > 0 {
		header[limitKey] = []string{`"` + policy + `";r=` + strconv.Itoa(use.Remaining) + `;t=` + strconv.FormatInt(wholeSeconds(use.Full), 10)}
	}
}

func tellLimit(header http.Header, policy string, limit quota.Limit) {
	if limit.Rate > 0 {
		window := max(1, wholeSeconds(limit.Window()))
		header[policyKey] = []string{`"` + policy + `";q=` + strconv.Itoa(limit.Burst) + `;w=` + strconv.FormatInt(window, 10)}
	}
}

// throttle takes one from the account's quota, and sets the header that says how much is left. The error is a limitError.
func (x *exchange) throttle() error {
	use, err := x.take()
	tellQuota(x.w.Header(), x.policy, use)
	return err
}

// take takes one from the account's quota. The error is a limitError.
//
// The account's limits come from the cache. Before a refusal, the account is read from the log, but at most once a second: a caller
// who sends too many requests must not cause more work.
func (x *exchange) take() (_ quota.Use, err error) {
	defer func() {
		if err != nil {
			x.metrics.limited.WithLabelValues(x.policy).Inc()
		}
	}()
	use, err := x.takeBelieved()
	if err == nil || !x.confirmations.Take(x.caller.Account, quota.Limit{Rate: 1, Burst: 1}).Allowed {
		return use, err
	}
	before := x.admission.Account.State
	confirmed, failed := x.Directory.ConfirmAccount(x.ctx, x.caller.Account)
	if failed != nil || (same(before.RateLimit, confirmed.State.RateLimit) && same(before.RateBurst, confirmed.State.RateBurst)) {
		return use, err
	}
	x.admission.Account = confirmed
	return x.takeBelieved()
}

func same[T comparable](a, b *T) bool { return a == b || (a != nil && b != nil && *a == *b) }

// limit returns the account's limit, from the cache; the zero Limit when it has none.
func (x *exchange) limit() quota.Limit {
	settings := x.admission.Account.State
	limit, burst := x.RateLimit, x.RateBurst
	if settings.RateLimit != nil {
		limit = *settings.RateLimit
	}
	if settings.RateBurst != nil {
		burst = *settings.RateBurst
	}
	if limit <= 0 || math.IsNaN(limit) {
		return quota.Limit{}
	}
	return quota.Limit{Rate: limit, Burst: max(1, burst)}
}

func (x *exchange) takeBelieved() (quota.Use, error) {
	limit := x.limit()
	if limit.Rate == 0 {
		return quota.Use{}, nil
	}
	use := x.quotas.Take(x.ctx, x.policy+" "+x.caller.Account, limit)
	if !use.Allowed {
		return use, limitError{use.RetryAfter}
	}
	return use, nil
}

// spend takes one from the quota of the client's address, for checking a credential that is not known to be good. The error is a
// limitError.
func (x *exchange) spend() error {
	if used := x.failures.Take(addressBlock(x.client), failureLimit); !used.Allowed {
		x.metrics.limited.WithLabelValues(credentialLimit).Inc()
		return limitError{used.RetryAfter}
	}
	return nil
}
