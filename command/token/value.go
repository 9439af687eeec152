package token

import (
	"crypto/sha256"
	"errors"
	"hash/crc32"
	"io"
	"log/slog"
	"strings"

	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/eventstore/event"
)

// A token's value is
//
//	leadlog_ + 26 characters: the token's id, a ULID
//	         + 32 characters: the secret, base62, 190 bits
//	         +  6 characters: CRC-32 of all before it, base62
//
// The fixed prefix and the checksum let a secret scanner recognise a leaked value, and let us refuse a typing error
// without looking anything up.
const (
	valuePrefix    = "leadlog_"
	secretLength   = 32
	checksumLength = 6
	valueLength    = len(valuePrefix) + ulid.EncodedSize + secretLength + checksumLength
	// shownLength is how much of the value is stored so that people recognise it: the id and the first four characters
	// of the secret, which differ after each rotation. 166 bits stay secret.
	shownLength = len(valuePrefix) + ulid.EncodedSize + 4
)

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// ErrMalformed means that a text is not the value of any token.
var ErrMalformed = errors.New("not the value of a token")

// Value is the plaintext of a token. It is shown once and stored nowhere. Formatting or logging it does not reveal it,
// not even as an unexported field of another struct: fmt cannot call String there, but it does not follow the pointer
// either.
type Value struct{ text *string }

// NewValue makes a value for the token of an id, with randomness from random, which must be a cryptographic source.
func NewValue(id string, random io.Reader) (Value, error) {
	secret, err := randomBase62(random, secretLength)
	if err != nil {
		return Value{}, err
	}
	text := valuePrefix + id + secret
	text += checksum(text)
	return Value{&text}, nil
}

// LooksLikeValue reports whether a credential is meant to be an API token, well-formed or not.
func LooksLikeValue(text string) bool { return strings.HasPrefix(text, valuePrefix) }

// ParseValue checks the form of a value: length, alphabet and checksum. The error is ErrMalformed.
func ParseValue(text string) (Value, error) {
	if len(text) != valueLength || !LooksLikeValue(text) {
		return Value{}, ErrMalformed
	}
	body, sum := text[:valueLength-checksumLength], text[valueLength-checksumLength:]
	if sum != checksum(body) {
		return Value{}, ErrMalformed
	}
	if !event.ValidID(text[len(valuePrefix) : len(valuePrefix)+ulid.EncodedSize]) {
		return Value{}, ErrMalformed
	}
	for _, c := range []byte(body[len(valuePrefix)+ulid.EncodedSize:]) {
		if strings.IndexByte(base62, c) < 0 {
			return Value{}, ErrMalformed
		}
	}
	return Value{&text}, nil
}

// TokenID returns the id of the token that the value is for.
func (v Value) TokenID() string {
	return v.Reveal()[len(valuePrefix) : len(valuePrefix)+ulid.EncodedSize]
}

// Prefix returns the beginning of the value, by which people recognise it.
func (v Value) Prefix() string { return v.Reveal()[:shownLength] }

// Hash returns the stored form of the value. A secret of 190 random bits needs no slow hash.
func (v Value) Hash() [32]byte {
	// on the stack: every capture has one hashed
	return sha256.Sum256(append(make([]byte, 0, valueLength), v.Reveal()...))
}

// Reveal returns the plaintext, for the one answer that shows it.
func (v Value) Reveal() string { return *v.text }

// String hides the secret.
func (v Value) String() string { return "leadlog_…" }

// GoString hides the secret.
func (v Value) GoString() string { return v.String() }

// LogValue hides the secret.
func (v Value) LogValue() slog.Value { return slog.StringValue(v.String()) }

func checksum(text string) string {
	sum := crc32.ChecksumIEEE([]byte(text))
	digits := make([]byte, checksumLength)
	for i := checksumLength - 1; i >= 0; i-- {
		digits[i] = base62[sum%62]
		sum /= 62
	}
	return string(digits)
}

// randomBase62 returns n characters, all equally likely: bytes from 248 on, which would favour some, are thrown away.
func randomBase62(random io.Reader, n int) (string, error) {
	const even = 256 - 256%62
	text := make([]byte, 0, n)
	buffer := make([]byte, n)
	for len(text) < n {
		if _, err := io.ReadFull(random, buffer); err != nil {
			return "", err
		}
		for _, b := range buffer {
			if b < even && len(text) < n {
				text = append(text, base62[b%62])
			}
		}
	}
	return string(text), nil
}
