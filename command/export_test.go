package command

import (
	"time"

	"github.com/leadlog/leadlog/eventstore"
)

// Patience sets how long recording may take, of one sample and of all that are left at the end.
func (u *Uses) Patience(d time.Duration) { u.patience = d }

// Acquainted is how many claims a test remembers at most.
const Acquainted = 256 * bucketSize

// Remembered lets a test remember leads by their claims.
func Remembered(test func(remember func(claimStream, leadID string), holder func(claimStream string) (string, bool))) {
	a := acquaintances{buckets: make([]bucket, Acquainted/bucketSize)}
	test(a.remember, a.holder)
}

// KnowAs lets handlers remember whom others remember, and what became of them.
func (h *Handlers) KnowAs(others *Handlers) {
	h.acquaintances, h.leads = others.acquaintances, others.leads
}

// RememberAll lets handlers remember leads from their first arrival on, as if it were one of many.
func (h *Handlers) RememberAll() {
	rules := leadFolds
	rules.Long = 1
	h.leads = eventstore.NewFolds(rules)
}
