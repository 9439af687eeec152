package event

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/oklog/ulid/v2"
)

// NonceSize is the size of a commitment's nonce in bytes.
const NonceSize = 16

// Shown is an event as callers see it, without its position, which is another one in a copy of the log, and without
// its request id.
type Shown struct {
	ID       ulid.ULID
	Stream   string
	Revision int64
	Type     string // as stored
	At       time.Time
	Actor    string
	Data     []byte // JSON
}

// Commitment returns the SHA-256, in hexadecimal, of a nonce and the canonical JSON of an event. It commits the log to
// data that the log has only sealed. Without the nonce, which is sealed with the data, nothing can be derived from it.
//
//	{"actor":"user:ann","at":"2026-11-21T07:44:02.556Z","data":{…},"id":"01M7…","revision":0,"stream":"lead-01M7…","type":"lead.created"}
func Commitment(nonce []byte, e Shown) (string, error) {
	data := jsontext.Value(e.Data).Clone()
	if err := Canonicalize(&data); err != nil {
		return "", fmt.Errorf("data of %s: %w", e.Type, err)
	}
	const size = 320 // bytes of most events without their data
	text := append(make([]byte, 0, len(data)+size), nonce...)
	text = append(text, `{"actor":`...)
	text, err := jsontext.AppendQuote(text, e.Actor)
	if err != nil {
		return "", fmt.Errorf("actor of %s: %w", e.Type, err)
	}
	text = e.At.UTC().AppendFormat(append(text, `,"at":`...), `"2006-01-02T15:04:05.000Z"`)
	text = append(append(text, `,"data":`...), data...)
	text = append(append(append(text, `,"id":"`...), e.ID.String()...), '"')
	text = strconv.AppendInt(append(text, `,"revision":`...), e.Revision, 10)
	if text, err = jsontext.AppendQuote(append(text, `,"stream":`...), e.Stream); err == nil {
		text, err = jsontext.AppendQuote(append(text, `,"type":`...), PublicName(e.Type))
	}
	if err != nil {
		return "", fmt.Errorf("name of %s: %w", e.Type, err)
	}
	return commitmentOf(append(text, '}')), nil
}

// CommitmentOf is Commitment for the canonical JSON of an event.
func CommitmentOf(nonce, canonical []byte) string {
	return commitmentOf(append(append(make([]byte, 0, len(nonce)+len(canonical)), nonce...), canonical...))
}

func commitmentOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// Canonicalize brings JSON into the form of RFC 8785, except that numbers stay as they are written: RFC 8785 rounds
// them.
func Canonicalize(value *jsontext.Value) error {
	return value.Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false))
}
