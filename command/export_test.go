package command

import "time"

// Patience sets how long recording may take, of one sample and of all that are left at the end.
func (u *Uses) Patience(d time.Duration) { u.patience = d }

// CachedClaims is how many claims a test remembers at most.
const CachedClaims = 256 * bucketSize

// Remembered lets a test remember leads by their claims.
func Remembered(test func(remember func(claimStream, leadID string), holder func(claimStream string) (string, bool))) {
	c := holderCache{buckets: make([]bucket, CachedClaims/bucketSize)}
	test(c.remember, c.holder)
}
