package httpapi

import (
	"fmt"
	"math"
	"net/http"

	"github.com/leadlog/leadlog/httpapi/quota"
)

// failureLimit is how many failed credentials one address may send.
var failureLimit = quota.Limit{Rate: 10, Burst: 100}

// An account's quotas by what they are for. They have the same limits and are apart: page views never cost a lead.
const (
	capturePolicy  = "capture"
	activityPolicy = "activity"
)

// tellQuota says what is left in the structured fields of draft-ietf-httpapi-ratelimit-headers.
func tellQuota(header http.Header, policy string, use quota.Use) {
	header.Set("RateLimit-Policy", fmt.Sprintf(`"%s";q=%d;w=%d`, policy, use.Limit.Burst, max(1, wholeSeconds(use.Limit.Window()))))
	header.Set("RateLimit", fmt.Sprintf(`"%s";r=%d;t=%d`, policy, use.Remaining, wholeSeconds(use.Full)))
}

// throttle takes one from the account's quota. The error is a limitError.
//
// The account's limits are as this process believes them. A refusal rests on that belief, so it is confirmed first,
// but once a second at most: a caller who asks too often must not make work.
func (x *exchange) throttle() error {
	err := x.take()
	if err == nil || !x.confirmations.Take(x.caller.Account, quota.Limit{Rate: 1, Burst: 1}).Allowed {
		return err
	}
	before := x.admission.Account.State
	confirmed, failed := x.Directory.ConfirmAccount(x.ctx, x.caller.Account)
	if failed != nil || (same(before.RateLimit, confirmed.State.RateLimit) && same(before.RateBurst, confirmed.State.RateBurst)) {
		return err
	}
	x.admission.Account = confirmed
	return x.take()
}

func same[T comparable](a, b *T) bool { return a == b || (a != nil && b != nil && *a == *b) }

func (x *exchange) take() error {
	header, settings := x.w.Header(), x.admission.Account.State
	header.Del("RateLimit-Policy")
	header.Del("RateLimit")
	limit, burst := x.RateLimit, x.RateBurst
	if settings.RateLimit != nil {
		limit = *settings.RateLimit
	}
	if settings.RateBurst != nil {
		burst = *settings.RateBurst
	}
	if limit <= 0 || math.IsNaN(limit) {
		return nil
	}
	used := x.quotas.Take(x.ctx, x.policy+" "+x.caller.Account, quota.Limit{Rate: limit, Burst: max(1, burst)})
	tellQuota(header, x.policy, used)
	if !used.Allowed {
		return limitError{used.RetryAfter}
	}
	return nil
}

// spend takes one look-up of a credential that is not known to be good from the quota of the client's address.
// The error is a limitError.
func (x *exchange) spend() error {
	if used := x.failures.Take(neighbourhood(x.client), failureLimit); !used.Allowed {
		return limitError{used.RetryAfter}
	}
	return nil
}
