package event

import "time"

// TokenCreated records that an API token was created. It contains the hash of the value, never the value.
type TokenCreated struct {
	Name      string    `json:"name"`
	Prefix    string    `json:"prefix"`    // leading characters of the value
	Hash      []byte    `json:"hash"`      // SHA-256 of the value
	Days      int       `json:"days"`      // chosen lifetime, 1 to 365
	ExpiresAt time.Time `json:"expiresAt"` // whole milliseconds, UTC
	Slot      int       `json:"slot"`      // the account's slot that it holds, from 1
}

// TokenRotated records that a token has a new value, and that the old one is refused.
type TokenRotated struct {
	Prefix            string    `json:"prefix"`
	Hash              []byte    `json:"hash"`
	ExpiresAt         time.Time `json:"expiresAt"`
	PreviousExpiresAt time.Time `json:"previousExpiresAt"`
}

// TokenExpiring records that a token expires soon, unless it is rotated.
type TokenExpiring struct {
	ExpiresAt time.Time `json:"expiresAt"`
}

// TokenDeleted records that a token was permanently deleted and its slot released.
type TokenDeleted struct{}

// TokenUsed records that a token authenticated a request. It is a sample: the first use of a minute, on a stream of
// uses.
type TokenUsed struct{}

// TokenRefused records that a current or former value of this token was refused. It is a sample: the first refusal of a
// minute, on a stream of uses.
type TokenRefused struct {
	Reason string `json:"reason"` // rotated, deleted or expired
	Prefix string `json:"prefix"` // of the refused value
}

func (TokenUsed) EventType() string     { return "token.used.v1" }
func (TokenRefused) EventType() string  { return "token.refused.v1" }
func (TokenCreated) EventType() string  { return "token.created.v1" }
func (TokenRotated) EventType() string  { return "token.rotated.v1" }
func (TokenExpiring) EventType() string { return "token.expiring.v1" }
func (TokenDeleted) EventType() string  { return "token.deleted.v1" }
