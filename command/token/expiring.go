package token

import (
	"time"

	"github.com/leadlog/leadlog/eventstore/event"
)

// Notice is how long before a token's end it is said that the end comes. A token that was never to live longer gets none:
// whoever created it knows.
const Notice = 7 * 24 * time.Hour

// Expiring decides whether it is time to say that the token ends. It is said once of each end: a rotation makes another.
func (s State) Expiring(now time.Time) (event.TokenExpiring, bool) {
	due := s.Phase == Live && time.Duration(s.Days)*24*time.Hour > Notice && !s.Announced.Equal(s.ExpiresAt) &&
		!now.Before(s.ExpiresAt.Add(-Notice)) && now.Before(s.ExpiresAt)
	return event.TokenExpiring{ExpiresAt: s.ExpiresAt}, due
}
