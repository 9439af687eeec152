package account

import (
	"time"

	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/eventstore/event"
)

// AdmitsJWT tells whether a JWT that was issued at a time, or does not say when, is worth something.
func (s State) AdmitsJWT(issued time.Time) bool {
	return s.JWTNotBefore.IsZero() || !issued.Before(s.JWTNotBefore)
}

// RevokeJWTs decides that JWTs issued before a time are worth nothing. The zero time asks for nothing, and a time that is
// as it was changes nothing: then there is no event. An earlier one than before takes some of a revocation back. The error
// is field.Errors for a time to come, before which nobody could get a JWT that is worth something, and for one before the year 1,
// which RFC 3339 cannot say.
func (s State) RevokeJWTs(notBefore, now time.Time) (*event.JWTsRevoked, error) {
	notBefore = notBefore.UTC().Truncate(time.Millisecond)
	if notBefore.IsZero() || notBefore.Equal(s.JWTNotBefore) {
		return nil, nil
	}
	if notBefore.After(now) {
		return nil, field.Errors{{Field: "jwtNotBefore", Message: "must not be in the future"}}
	}
	if notBefore.Before(time.Time{}) {
		return nil, field.Errors{{Field: "jwtNotBefore", Message: "must not be before the year 1"}}
	}
	return &event.JWTsRevoked{NotBefore: notBefore}, nil
}
