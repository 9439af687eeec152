package token

import (
	"crypto/subtle"
	"time"

	"github.com/leadlog/leadlog/eventstore/event"
)

// Reason is why a value that is, or was, a token's value does not let its bearer in.
type Reason string

// Reasons. A value that was replaced before its token was deleted was rotated.
const (
	ReasonRotated Reason = "rotated"
	ReasonDeleted Reason = "deleted"
	ReasonExpired Reason = "expired"
)

// Presented is a token together with how one presented value relates to it.
type Presented struct {
	State
	known  bool // the value is, or was, the token's
	newest bool // the value is the token's latest
}

// EvolveFor folds a token's stream for the bearer of a value with this hash.
func EvolveFor(hash [32]byte) func(Presented, event.Fact) Presented {
	return func(p Presented, fact event.Fact) Presented {
		switch data := fact.Data.(type) {
		case event.TokenCreated:
			p.see(data.Hash, hash)
		case event.TokenRotated:
			p.see(data.Hash, hash)
		}
		p.State = Evolve(p.State, fact)
		return p
	}
}

func (p *Presented) see(issued []byte, hash [32]byte) {
	p.newest = subtle.ConstantTimeCompare(issued, hash[:]) == 1
	p.known = p.known || p.newest
}

// Refusal returns why the value does not let its bearer in now. It is empty when it does, or when it never was the
// token's.
func (p Presented) Refusal(now time.Time) Reason {
	switch {
	case !p.known:
		return ""
	case !p.newest:
		return ReasonRotated
	case p.Deleted:
		return ReasonDeleted
	case !now.Before(p.ExpiresAt):
		return ReasonExpired
	}
	return ""
}
