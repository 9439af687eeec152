// Package token decides on API tokens: their state, when they authenticate a caller, and their changes. It is pure. The
// values of tokens, the secrets themselves, are generated and parsed here, and not stored.
package token

import (
	"crypto/subtle"
	"errors"
	"time"

	"github.com/leadlog/leadlog/eventstore/event"
)

const (
	// MaxPerAccount is how many tokens an account may hold. An expired one counts until it is deleted,
	// because rotating it would bring it back.
	MaxPerAccount = 5
	// MinDays and MaxDays bound the lifetime that is chosen at creation.
	MinDays, MaxDays = 1, 365
	// MaxName is the longest name in characters.
	MaxName = 100
)

var (
	// ErrNotFound means that there is no such token, or no longer.
	ErrNotFound = errors.New("token not found or already deleted")
	// ErrLimit means that the account's slots are all taken.
	ErrLimit = errors.New("an account may hold at most 5 active tokens")
)

// State is a fold of a token's stream.
type State struct {
	Account   string // empty: not created
	Deleted   bool
	Name      string
	Prefix    string
	Hash      []byte // SHA-256 of the value that counts
	Days      int
	Slot      int
	ExpiresAt time.Time
	Announced time.Time // the expiry that was announced; a rotation may have postponed it since
	UpdatedAt time.Time // of the latest fact
}

// Live reports whether the token was created and not deleted. Expiry is not recorded by an event.
func (s State) Live() bool { return s.Account != "" && !s.Deleted }

// Evolve folds one fact into the state.
func Evolve(s State, fact event.Fact) State {
	s.UpdatedAt = fact.At
	switch data := fact.Data.(type) {
	case event.TokenCreated:
		s.Account = fact.Metadata.Account
		s.Name, s.Prefix, s.Hash = data.Name, data.Prefix, data.Hash
		s.Days, s.Slot, s.ExpiresAt = data.Days, data.Slot, data.ExpiresAt
	case event.TokenRotated:
		s.Prefix, s.Hash, s.ExpiresAt = data.Prefix, data.Hash, data.ExpiresAt
	case event.TokenExpiring:
		s.Announced = data.ExpiresAt
	case event.TokenDeleted:
		s.Deleted, s.Hash = true, nil
	}
	return s
}

// Admits reports whether a value with this hash authenticates now. It takes the same time whatever the hash.
func (s State) Admits(hash [32]byte, now time.Time) bool {
	same := subtle.ConstantTimeCompare(s.Hash, hash[:]) == 1
	return same && s.Live() && now.Before(s.ExpiresAt)
}

// Create decides on a new token.
func Create(name string, days, slot int, value Value, now time.Time) event.TokenCreated {
	hash := value.Hash()
	return event.TokenCreated{
		Name: name, Prefix: value.Prefix(), Hash: hash[:],
		Days: days, Slot: slot, ExpiresAt: expiry(now, days),
	}
}

// Rotate decides on a new value for a token of the account. The lifetime chosen at creation starts again from now.
func (s State) Rotate(account string, value Value, now time.Time) (event.TokenRotated, error) {
	if !s.Live() || s.Account != account {
		return event.TokenRotated{}, ErrNotFound
	}
	hash := value.Hash()
	return event.TokenRotated{
		Prefix: value.Prefix(), Hash: hash[:],
		ExpiresAt: expiry(now, s.Days), PreviousExpiresAt: s.ExpiresAt,
	}, nil
}

// Delete decides on the end of a token of the account.
func (s State) Delete(account string) (event.TokenDeleted, error) {
	if !s.Live() || s.Account != account {
		return event.TokenDeleted{}, ErrNotFound
	}
	return event.TokenDeleted{}, nil
}

func expiry(now time.Time, days int) time.Time { return now.Add(time.Duration(days) * 24 * time.Hour) }

// Notice is the time before a token's expiry at which the expiry is announced. It is not announced for a token whose
// lifetime is no longer than this.
const Notice = 7 * 24 * time.Hour

// Expiring decides whether to announce now that the token expires. It is announced once per expiry; a rotation sets a
// new one.
func (s State) Expiring(now time.Time) (event.TokenExpiring, bool) {
	due := s.Live() && time.Duration(s.Days)*24*time.Hour > Notice && !s.Announced.Equal(s.ExpiresAt) &&
		!now.Before(s.ExpiresAt.Add(-Notice)) && now.Before(s.ExpiresAt)
	return event.TokenExpiring{ExpiresAt: s.ExpiresAt}, due
}
