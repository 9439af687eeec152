// Package claim decides on the owners of unique values: the phone numbers and email addresses of an account's leads,
// its slots for API tokens and webhook endpoints, the idempotency keys of requests.
//
// A claim is a uniqueness constraint on the log. Its stream is named by a keyed hash of account, kind and value. The
// first caller appends to it expecting no stream, and all others get a conflict. The claim names its holder, and is
// appended together with the holder's own events. A claim whose holder has ended counts as free.
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
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/contact"
	"github.com/leadlog/leadlog/eventstore/event"
)

// Kind is the kind of value that a claim is on.
type Kind string

// The kinds of claims.
const (
	Phone       Kind = "phone"        // an E.164 number of an account's leads
	Email       Kind = "email"        // a canonical address of an account's leads
	TokenSlot   Kind = "token-slot"   // one of the account's slots for API tokens
	WebhookSlot Kind = "webhook-slot" // one of the account's slots for webhook endpoints
	IntakeSlot  Kind = "intake-slot"  // one of the account's slots for intakes
	Idempotency Kind = "idempotency"  // a key that a caller gave to a request
	Delivery    Kind = "delivery"     // the sender's id of a delivery to an intake
)

// Names makes the stream names of claims. Its key never rotates: with another key, no claim would be found again.
type Names struct{ keyed hash.Cloner } // an HMAC with the key, before any data

// NewNames returns names under a secret key of 32 bytes. Without the key, a reader of the log cannot find out whose
// claim a stream is by trying phone numbers.
func NewNames(key []byte) Names {
	mac := hmac.New(sha256.New, key)
	mac.Reset() // makes it store its state after the key, which Clone copies
	return Names{keyed: mac.(hash.Cloner)}
}

// sum appends the HMAC of data to a slice.
func (n Names) sum(to, data []byte) []byte {
	mac, err := n.keyed.Clone()
	if err != nil {
		panic(err) // SHA-256 has a clone
	}
	mac.Write(data)
	return mac.Sum(to)
}

// hashLength is how many bytes of the HMAC name a stream. With 128 bits a collision is practically impossible, and a
// longer name would make the index on stream names larger, which is expensive on a large log.
const hashLength = 16

// Stream returns the name of the claim on a value. All forms of one phone number have the same.
func (n Names) Stream(account string, kind Kind, value string) string {
	if kind == Phone {
		value = contact.FoldPhone(value)
	}
	return n.name(event.ClaimPrefix, account, string(kind), value)
}

// Visitor returns the name of a visitor's stream. Like the name of a claim, it does not give away the id.
func (n Names) Visitor(account, id string) string {
	return n.name(event.VisitorStream(account, ""), account, "visitor", id)
}

// name returns a prefix followed by a hash of three parts. The parts are separated by NUL, which no part contains. The
// parts, the hash and the name share one buffer, because every capture needs two names.
func (n Names) name(prefix, account, kind, value string) string {
	text := make([]byte, 0, 64)
	for _, part := range [...]string{account, kind, value} {
		text = append(append(text, part...), 0)
	}
	sum := n.sum(text[:0], text)[:hashLength]
	return string(hex.AppendEncode(append(sum, prefix...), sum)[hashLength:])
}

// Slot returns the name of the claim on a slot; slots are numbered from 1.
func (n Names) Slot(account string, kind Kind, slot int) string {
	return n.Stream(account, kind, strconv.Itoa(slot))
}

// Digest returns a keyed hash of a request body of an account. The order of members at any depth, escapes in strings
// and white space do not matter: programs with objects in hash tables may write the same body differently each time.
func (n Names) Digest(account string, body map[string]jsontext.Value) []byte {
	var data []byte
	write := func(part string) {
		// "a", "bc" must not hash like "ab", "c"
		data = append(binary.BigEndian.AppendUint64(data, uint64(len(part))), part...)
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

// Tag returns a keyed hash of an account's text. It authenticates what an account is given and gives back, such as a
// cursor, and names what the text must not be found out from.
func (n Names) Tag(account, text string) []byte {
	data := []byte("leadlog tag\x00" + account + "\x00" + text)
	return n.sum(nil, data)[:hashLength]
}

// Fingerprint identifies the key without giving it away.
func (n Names) Fingerprint() []byte {
	return n.sum(nil, []byte("leadlog claim key"))[:hashLength]
}

// State is the fold of a claim's stream.
type State struct {
	Kind    Kind
	Account string
	Holder  string           // id of the lead, token or endpoint that has the value; empty when it is free
	Bound   event.ClaimBound // of an idempotency key or a delivery id; zero when it is free
	// requests with an idempotency key that were quarantined; the key stays free for other bodies
	Quarantined []event.ClaimBound
	UpdatedAt   time.Time // of the latest fact
}

// Evolve folds one fact into the state.
func Evolve(s State, fact event.Fact) State {
	s.UpdatedAt = fact.At
	switch data := fact.Data.(type) {
	case event.ClaimTaken:
		s.Kind, s.Account, s.Holder = Kind(data.Kind), fact.Metadata.Account, data.Holder
	case event.ClaimBound:
		s.Kind, s.Account = Kind(data.Kind), fact.Metadata.Account
		if s.Kind == Idempotency && strings.HasPrefix(data.Stream, event.ArrivalPrefix) {
			s.Quarantined = append(s.Quarantined, data)
		} else {
			s.Bound = data
		}
	case event.ClaimReleased:
		s.Holder, s.Bound = "", event.ClaimBound{}
	}
	return s
}
