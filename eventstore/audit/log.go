package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/oklog/ulid/v2"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// LogLeaf returns the hash of an event as a leaf of the tree over the whole log: the RFC 6962 hash of its record.
func LogLeaf(stored eventstore.Recorded) (tlog.Hash, error) {
	var h LeafHasher
	return h.Leaf(&stored)
}

// LogRecord returns the bytes of an event's leaf: canonical JSON (RFC 8785) without personal data.
//
//	{"at":"2026-11-21T07:44:02.556Z","id":"01M7…","revision":0,"stored":"9f86…","stream":"lead-01M7…","type":"lead.created.v1"}
//
// stored is the SHA-256, in hexadecimal, of the other data on the log: the metadata as JSON, a newline and the data.
// The event must be in stored form, sealed, so that the leaf does not change when a person is erased. The record has no
// position, so it does not change either when the log is copied to another store.
func LogRecord(stored eventstore.Recorded) ([]byte, error) {
	var h LeafHasher
	if _, err := h.Leaf(&stored); err != nil {
		return nil, err
	}
	return h.record[1:], nil // without the prefix
}

// LeafHasher hashes the leaves of a sequence of events, and reuses its memory. The zero value is ready to use.
type LeafHasher struct {
	metadata event.Metadata // of the previous event; events of one append share it
	encoded  []byte
	at       time.Time // of the previous event, usually shared too
	moment   []byte
	content  []byte
	record   []byte
}

// Leaf is like LogLeaf.
func (h *LeafHasher) Leaf(stored *eventstore.Recorded) (leaf tlog.Hash, err error) {
	if h.encoded == nil || h.metadata != stored.Metadata {
		h.metadata = stored.Metadata
		if h.encoded, err = stored.Metadata.Encode(); err != nil {
			return leaf, err
		}
	}
	if h.moment == nil || h.at != stored.At {
		h.at, h.moment = stored.At, appendTime(h.moment[:0], stored.At)
	}
	h.content = appendContent(h.content[:0], h.encoded, stored.Data)
	if h.record, err = appendRecord(append(h.record[:0], leafPrefix), stored, h.moment, h.content); err != nil {
		return leaf, err
	}
	return sha256.Sum256(h.record), nil
}

// leafPrefix is the byte that RFC 6962 hashes before the record of a leaf.
const leafPrefix = 0

// appendRecord appends an event's record, given its formatted time and its content.
func appendRecord(record []byte, stored *eventstore.Recorded, at, content []byte) (_ []byte, err error) {
	sum := sha256.Sum256(content)
	record = append(slices.Grow(record, recordSize), `{"at":"`...)
	record = append(append(record, at...), `","id":"`...)
	start := len(record)
	record = append(record, make([]byte, ulid.EncodedSize)...)
	if err := stored.ID.MarshalTextTo(record[start:]); err != nil {
		return nil, err
	}
	record = strconv.AppendInt(append(record, `","revision":`...), int64(stored.Revision), 10)
	record = hex.AppendEncode(append(record, `,"stored":"`...), sum[:])
	if record, err = jsontext.AppendQuote(append(record, `","stream":`...), stored.Stream); err != nil {
		return nil, err
	}
	if record, err = jsontext.AppendQuote(append(record, `,"type":`...), stored.Type); err != nil {
		return nil, err
	}
	return append(record, '}'), nil
}

// recordSize exceeds the size of most records.
const recordSize = 320

// storedContent returns the data whose hash is in a leaf.
func storedContent(stored eventstore.Recorded) ([]byte, error) {
	metadata, err := stored.Metadata.Encode()
	return appendContent(nil, metadata, stored.Data), err
}

func appendContent(content, metadata, data []byte) []byte {
	return append(append(append(content, metadata...), '\n'), data...)
}

// appendTime formats a time like the API, with microseconds only if there are any: the log's times are whole
// milliseconds.
func appendTime(b []byte, t time.Time) []byte {
	const whole, finer = "2006-01-02T15:04:05.000Z", "2006-01-02T15:04:05.000000Z"
	if t.Nanosecond()/int(time.Microsecond)%1000 == 0 {
		return t.UTC().AppendFormat(b, whole)
	}
	return t.UTC().AppendFormat(b, finer)
}
