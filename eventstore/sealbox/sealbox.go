// Package sealbox encrypts stored secrets: persons' keys, signing secrets of webhook endpoints, sessions of the
// console.
//
// A [Box] has a current key, which seals, and older ones, which only open. To rotate, put a new key first, rewrap the
// secrets of the older ones, and remove them. The cipher is AES-256-GCM with a random nonce before the ciphertext.
package sealbox

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// KeySize is the length of a key in bytes.
const KeySize = 32

var (
	// ErrNoKey means that the box has no keys.
	ErrNoKey = errors.New("no sealing key")

	// ErrUnknownKey means that a secret is sealed with a key that the box does not have.
	ErrUnknownKey = errors.New("sealed with an unknown key")

	// ErrDamaged means that a sealed secret cannot be opened: it was changed, or copied from another owner.
	ErrDamaged = errors.New("damaged: it does not open with its key")
)

// Sealed is an encrypted secret and the id of the key that sealed it.
type Sealed struct {
	KeyID string
	Data  []byte
}

// String returns the sealed secret as text, for [Parse].
func (s Sealed) String() string {
	return s.KeyID + "." + base64.RawURLEncoding.EncodeToString(s.Data)
}

// Parse parses the result of Sealed.String. The error is ErrDamaged.
func Parse(text string) (Sealed, error) {
	id, encoded, ok := strings.Cut(text, ".")
	data, err := base64.RawURLEncoding.DecodeString(encoded)
	if !ok || err != nil {
		return Sealed{}, ErrDamaged
	}
	return Sealed{id, data}, nil
}

// Box seals and opens secrets. It is safe for concurrent use. The zero Box has no keys.
type Box struct {
	current string
	ciphers map[string]cipher.AEAD // by key id
}

// New returns a box that seals with the first key and opens secrets of all keys.
func New(keys ...[]byte) (*Box, error) {
	b := &Box{ciphers: map[string]cipher.AEAD{}}
	for i, key := range keys {
		aead, err := NewCipher(key)
		if err != nil {
			return nil, err
		}
		id := keyID(key)
		if b.ciphers[id] = aead; i == 0 {
			b.current = id
		}
	}
	return b, nil
}

// NewCipher returns the cipher of a single key, for secrets that are stored without a key id. It fails if the key has
// another length.
func NewCipher(key []byte) (cipher.AEAD, error) {
	if len(key) != KeySize {
		return nil, fmt.Errorf("a sealing key has %d bytes, want %d", len(key), KeySize)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// keyID identifies a key without revealing it.
func keyID(key []byte) string {
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:4])
}

// Current returns the id of the key that seals; empty without keys.
func (b *Box) Current() string { return b.current }

// KeyIDs returns the ids of all keys, in no order.
func (b *Box) KeyIDs() []string { return slices.Collect(maps.Keys(b.ciphers)) }

// Seal encrypts a secret with the current key and binds it to its owner: only the same owner can open it. The error is
// ErrNoKey.
func (b *Box) Seal(secret, owner []byte) (Sealed, error) {
	if b.current == "" {
		return Sealed{}, ErrNoKey
	}
	return Sealed{b.current, b.ciphers[b.current].Seal(nil, nil, secret, owner)}, nil
}

// Open decrypts a secret of an owner. The errors are ErrNoKey, ErrUnknownKey and ErrDamaged.
func (b *Box) Open(s Sealed, owner []byte) ([]byte, error) {
	aead, known := b.ciphers[s.KeyID]
	switch {
	case b.current == "":
		return nil, ErrNoKey
	case !known:
		return nil, fmt.Errorf("%w (key %s)", ErrUnknownKey, s.KeyID)
	}
	secret, err := aead.Open(nil, nil, s.Data, owner)
	if err != nil {
		return nil, fmt.Errorf("%w (key %s)", ErrDamaged, s.KeyID)
	}
	return secret, nil
}

// Rewrap seals a secret again with the current key. The errors are those of Open.
func (b *Box) Rewrap(s Sealed, owner []byte) (Sealed, error) {
	secret, err := b.Open(s, owner)
	if err != nil {
		return Sealed{}, err
	}
	return b.Seal(secret, owner)
}
