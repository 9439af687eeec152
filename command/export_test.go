package command

import (
	"time"

	"github.com/leadlog/leadlog/eventstore"
)

// Patience sets how long recording may take, of one sample and of all that are left at the end.
func (u *Uses) Patience(d time.Duration) { u.patience = d }

// CachedClaims is how many claims a test remembers at most.
const CachedClaims = 256 * bucketSize

// Remembered lets a test remember leads by their claims.
func Remembered(test func(remember func(claimStream, leadID string), holder func(claimStream string) (string, bool))) {
	c := holderCache{buckets: make([]bucket, CachedClaims/bucketSize)}
	test(c.remember, c.holder)
}

// KnowAs lets handlers remember whom others remember, and what became of them.
func (h *Handlers) KnowAs(others *Handlers) {
	h.holders, h.leads = others.holders, others.leads
}

// RememberAll lets handlers remember leads from their first arrival on, as if it were one of many.
func (h *Handlers) RememberAll() {
	rules := leadFolds
	rules.Long = 1
	h.leads = eventstore.NewFolds(rules)
}
