// Package audit makes the leaves of the trees of eventstore/merkle, and checks what the service proves with them: the
// receipt of an event, the certificate of an erasure, and the export of an account's token events.
//
// There is a tree over the whole log, whose leaves are all events, and one for each account. An auditor of an account
// has all leaves of its tree, and so can detect a missing one. The tree of the log proves that an event is on the log,
// but not to an auditor of an account that no event was left out.
//
// The leaves of an account's tree are the events that auditors see: token.created, token.rotated, token.expiring,
// token.deleted and token.refused. Samples of successful uses are not leaves: they only show when a token was last
// used, and would be most of the tree.
//
// The package is pure, except that it reads the export that it checks.
package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// Entry is a token event in the form for auditors. Its JSON is a line of an export.
type Entry struct {
	ID        string              `json:"id"`
	TokenID   string              `json:"tokenId"`
	Type      string              `json:"type"` // public: without version
	Position  eventstore.Position `json:"position"`
	At        string              `json:"at"` // in the format of the API
	Actor     string              `json:"actor"`
	IP        string              `json:"ip"`
	UserAgent string              `json:"userAgent"`
	RequestID string              `json:"requestId"`
	Data      jsontext.Value      `json:"data"` // without the hash of the token's value
	// Digest is the event's leaf hash in the tree of the log, which covers also what is not shown, such as the hash of
	// the token's value. It is in hexadecimal: spreadsheets treat base64 that starts with a plus sign as a formula.
	Digest string `json:"digest"`
	// Leaf is the event's index in the account's tree, from 0.
	Leaf int64 `json:"leaf"`
	// LineHash is the SHA-256 of the line without this member. It is no proof, but shows which line was changed.
	LineHash string `json:"lineHash,omitzero"`
}

// The forms of an event's data for auditors.
type (
	created struct {
		Name          string `json:"name"`
		Prefix        string `json:"prefix"`
		ExpiresInDays int    `json:"expiresInDays"`
		ExpiresAt     string `json:"expiresAt"`
	}
	rotated struct {
		Prefix            string `json:"prefix"`
		ExpiresAt         string `json:"expiresAt"`
		PreviousExpiresAt string `json:"previousExpiresAt"`
	}
	expiring struct {
		ExpiresAt string `json:"expiresAt"`
	}
	deleted struct{}
	refused struct {
		Reason string `json:"reason"`
		Prefix string `json:"prefix"`
	}
)

// shown returns the form of an event's data for auditors, or nil if the event is no leaf.
func shown(data event.Data) any {
	switch d := data.(type) {
	case event.TokenCreated:
		return created{d.Name, d.Prefix, d.Days, FormatTime(d.ExpiresAt)}
	case event.TokenRotated:
		return rotated{d.Prefix, FormatTime(d.ExpiresAt), FormatTime(d.PreviousExpiresAt)}
	case event.TokenExpiring:
		return expiring{FormatTime(d.ExpiresAt)}
	case event.TokenDeleted:
		return deleted{}
	case event.TokenRefused:
		return refused{d.Reason, d.Prefix}
	}
	return nil
}

// Shown returns the JSON of the data of a leaf event for auditors, without a token's hash.
func Shown(data event.Data) (jsontext.Value, error) { return json.Marshal(shown(data)) }

// FormatTime formats a time like the API.
func FormatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

var leafTypes = event.Types(event.TokenCreated{}, event.TokenRotated{}, event.TokenExpiring{},
	event.TokenDeleted{}, event.TokenRefused{})

// IsLeaf reports whether events of a stored type are leaves of their account's tree.
func IsLeaf(eventType string) bool { return slices.Contains(leafTypes, eventType) }

// NewEntry returns the entry of an event at a leaf index, without its line hash.
func NewEntry(e eventstore.Recorded, data event.Data, leaf int64) (Entry, error) {
	encoded, err := json.Marshal(shown(data))
	if err != nil {
		return Entry{}, err
	}
	logged, err := LogLeaf(e)
	return Entry{
		ID: e.ID.String(), TokenID: event.TokenID(e.Stream), Type: event.PublicName(e.Type), Position: e.Position,
		At: FormatTime(e.At), Actor: e.Metadata.Actor, IP: e.Metadata.IP, UserAgent: e.Metadata.UserAgent,
		RequestID: e.Metadata.RequestID, Data: encoded, Digest: hex.EncodeToString(logged[:]), Leaf: leaf,
	}, err
}

// LeafHash returns the entry's hash as a leaf of an account's tree: the RFC 6962 hash of the canonical JSON (RFC 8785)
// of the account and the line, without position, leaf and lineHash. The position changes when the log is copied to
// another store.
func (e Entry) LeafHash(account string) (tlog.Hash, error) {
	leaf, err := json.Marshal(struct {
		Account string `json:"account"`
		Entry
		Position int `json:"position,omitzero"`
		Leaf     int `json:"leaf,omitzero"`
		LineHash int `json:"lineHash,omitzero"`
	}{Account: account, Entry: e})
	if err != nil {
		return tlog.Hash{}, err
	}
	canonical := jsontext.Value(leaf)
	if err := canonical.Canonicalize(); err != nil {
		return tlog.Hash{}, fmt.Errorf("canonical form: %w", err)
	}
	return tlog.RecordHash(canonical), nil
}

// Sealed returns the entry with its line hash.
func (e Entry) Sealed() (Entry, error) {
	e.LineHash = ""
	line, err := json.Marshal(e, json.Deterministic(true))
	sum := sha256.Sum256(line)
	e.LineHash = hex.EncodeToString(sum[:])
	return e, err
}
