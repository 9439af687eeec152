// Package claim decides who owns a value that only one may own: a phone number or an email address of an account's
// leads, one of its slots for API tokens or webhook endpoints, a key that makes a request safe to repeat.
//
// A claim is a uniqueness constraint made of the log itself. Its stream is named by a keyed hash of account, kind
// and value, so that whoever comes first appends to it expecting no stream, and everybody else meets a conflict.
// The claim names its holder; what the holder's own stream says of itself (not born yet, abandoned, deleted)
// decides whether the claim still counts, and that is for the caller to find out.
package claim

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/eventstore/event"
)

// Kind says what a claim is on.
type Kind string

// The kinds of claims.
const (
	Phone       Kind = "phone"        // an E.164 number of an account's leads
	Email       Kind = "email"        // a canonical address of an account's leads
	TokenSlot   Kind = "token-slot"   // one of the account's places for API tokens
	WebhookSlot Kind = "webhook-slot" // one of the account's places for webhook endpoints
	Idempotency Kind = "idempotency"  // a key that a caller gave to a request
)

// Names makes stream names of claims. Its key never rotates: with another key every claim would be forgotten.
type Names struct{ keyed hash.Cloner } // an HMAC with the key, before any data

// NewNames returns names under a secret key of 32 bytes. The key keeps who reads the log from finding out, by
// trying numbers, whose claim a stream is.
func NewNames(key []byte) Names {
	mac := hmac.New(sha256.New, key)
	mac.Reset() // has it keep what it makes of the key
	return Names{keyed: mac.(hash.Cloner)}
}

// sum appends the HMAC of data.
func (n Names) sum(to, data []byte) []byte {
	mac, err := n.keyed.Clone()
	if err != nil {
		panic(err) // SHA-256 has a clone
	}
	mac.Write(data)
	return mac.Sum(to)
}

// hashLength is how many bytes of the HMAC name a stream. 128 bits make a collision between any two values as
// good as impossible, and the index on stream names is what a large log pays for.
const hashLength = 16

// Stream names the claim on a value.
func (n Names) Stream(account string, kind Kind, value string) string {
	return n.name(event.ClaimPrefix, account, string(kind), value)
}

// Visitor names the stream of a visitor, which tells as little of the id as the name of a claim does of its value.
func (n Names) Visitor(account, id string) string {
	return n.name(event.VisitorStream(account, ""), account, "visitor", id)
}

// name puts a hash of the three parts behind a prefix. No part contains NUL, so no two triples run together. The parts, the
// hash and the name pass through the same memory: every capture has two names made.
func (n Names) name(prefix, account, kind, value string) string {
	text := make([]byte, 0, 64)
	for _, part := range [...]string{account, kind, value} {
		text = append(append(text, part...), 0)
	}
	sum := n.sum(text[:0], text)[:hashLength]
	return string(hex.AppendEncode(append(sum, prefix...), sum)[hashLength:])
}

// Slot names the claim on a numbered place, counted from 1.
func (n Names) Slot(account string, kind Kind, slot int) string {
	return n.Stream(account, kind, strconv.Itoa(slot))
}

// Digest tells one request body of an account from another without giving it away. The order of members at any depth, how
// strings are escaped and white space do not count: programs that keep objects in hash tables write them anew each time.
func (n Names) Digest(account string, body map[string]jsontext.Value) []byte {
	var data []byte
	write := func(part string) {
		data = append(binary.BigEndian.AppendUint64(data, uint64(len(part))), part...) // so that no two parts run together
	}
	write("leadlog request body")
	write(account)
	for _, name := range slices.Sorted(maps.Keys(body)) {
		write(name)
		value := body[name].Clone()
		_ = value.Format(jsontext.ReorderRawObjects(true)) // it was read as JSON before
		write(string(value))
	}
	return n.sum(nil, data)
}

// Fingerprint tells one key from another without giving it away.
func (n Names) Fingerprint() []byte {
	return n.sum(nil, []byte("leadlog claim key"))[:hashLength]
}

// State is what a claim's stream says.
type State struct {
	Kind      Kind
	Account   string
	Holder    string           // id of the one that has the value; empty when it is free
	Bound     event.ClaimBound // of an idempotency key; zero when it is free
	UpdatedAt time.Time        // of the latest fact
}

// Evolve folds one fact into the state.
func Evolve(s State, fact event.Fact) State {
	s.UpdatedAt = fact.At
	switch data := fact.Data.(type) {
	case event.ClaimTaken:
		s.Kind, s.Account, s.Holder = Kind(data.Kind), fact.Metadata.Account, data.Holder
	case event.ClaimBound:
		s.Kind, s.Account, s.Bound = Kind(data.Kind), fact.Metadata.Account, data
	case event.ClaimReleased:
		s.Holder, s.Bound = "", event.ClaimBound{}
	}
	return s
}
