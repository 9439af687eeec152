package event

import (
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
)

// These functions return the names of streams. A stream is named after its subject. Ids are ULIDs, except those of
// accounts, which the owner of the service chooses.

// LeadStream names the history of one lead.
func LeadStream(id string) string { return LeadPrefix + id }

// TokenStream names the history of one API token.
func TokenStream(id string) string { return TokenPrefix + id }

// TokenUseStream names the usage samples of one API token on one day (UTC). They are not on the token's own stream,
// because each capture checks that the token's stream has not changed.
func TokenUseStream(id string, at time.Time) string {
	return TokenUsePrefix + id + "-" + at.UTC().Format(time.DateOnly)
}

// WebhookStream names the history of one webhook endpoint.
func WebhookStream(id string) string { return WebhookPrefix + id }

// IntakeStream names the history of one intake.
func IntakeStream(id string) string { return IntakePrefix + id }

// AccountStream names the history of one account's plan and settings.
func AccountStream(id string) string { return AccountPrefix + id }

// SpendStream names the history of what an account's advertising cost on the days of a month, such as 2026-01.
func SpendStream(account, month string) string { return SpendPrefix + account + "-" + month }

// VisitorStream names the activities of one visitor of an account's site, by a hash, because the visitor's id may be
// personal.
func VisitorStream(account, hash string) string { return VisitorPrefix + account + "-" + hash }

// RefusedStream names one refused arrival.
func RefusedStream(id string) string { return RefusedPrefix + id }

// ArrivalStream names the history of one recorded arrival.
func ArrivalStream(id string) string { return ArrivalPrefix + id }

// RecordStream names one record of an access or an import.
func RecordStream(id string) string { return RecordPrefix + id }

// ClaimKeyStream holds the identity of the key that names the log's claims.
const ClaimKeyStream = "claimkey"

// OriginStream holds the log's name in its checkpoints.
const OriginStream = "origin"

// LeadID returns the id in the name of a lead's stream.
func LeadID(stream string) string { return strings.TrimPrefix(stream, LeadPrefix) }

// TokenID returns the id in the name of a token's stream, or of a stream of its uses.
func TokenID(stream string) string {
	if day, ok := strings.CutPrefix(stream, TokenUsePrefix); ok {
		id, _, _ := strings.Cut(day, "-")
		return id
	}
	return strings.TrimPrefix(stream, TokenPrefix)
}

// WebhookID returns the id in the name of an endpoint's stream.
func WebhookID(stream string) string { return strings.TrimPrefix(stream, WebhookPrefix) }

// IntakeID returns the id in the name of an intake's stream.
func IntakeID(stream string) string { return strings.TrimPrefix(stream, IntakePrefix) }

// ArrivalID returns the id in the name of an arrival's stream.
func ArrivalID(stream string) string { return strings.TrimPrefix(stream, ArrivalPrefix) }

// RecordID returns the id in the name of a record's stream.
func RecordID(stream string) string { return strings.TrimPrefix(stream, RecordPrefix) }

// AccountID returns the id in the name of an account's stream.
func AccountID(stream string) string { return strings.TrimPrefix(stream, AccountPrefix) }

// Prefixes of stream names, for subscriptions.
const (
	LeadPrefix     = "lead-"
	TokenPrefix    = "token-"
	TokenUsePrefix = "tokenuse-"
	WebhookPrefix  = "webhook-"
	IntakePrefix   = "intake-"
	AccountPrefix  = "account-"
	SpendPrefix    = "spend-"
	RefusedPrefix  = "refused-"
	ArrivalPrefix  = "arrival-"
	VisitorPrefix  = "visitor-"
	RecordPrefix   = "record-"
	ClaimPrefix    = "claim-"
)

// ValidID reports whether a text has the form of an id.
func ValidID(id string) bool {
	if len(id) != ulid.EncodedSize {
		return false
	}
	parsed, err := ulid.ParseStrict(id)
	return err == nil && parsed.String() == id
}
