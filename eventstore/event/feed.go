package event

import (
	"slices"
	"strings"
)

// Kinds of the events in an account's change feed. The kind decides which scope a reader needs.
const (
	LeadKind    = "lead"
	TokenKind   = "token"
	WebhookKind = "webhook"
	IntakeKind  = "intake"
	AccountKind = "account"
)

// FeedKinds returns all kinds.
func FeedKinds() []string { return []string{LeadKind, TokenKind, WebhookKind, IntakeKind, AccountKind} }

// FeedKind returns the kind of a type, by its stored name. It is empty for internal types, which are in no feed:
// claims, usage samples, access records, the activities of visitors, which their leads show, and most of arrivals.
func FeedKind(eventType string) string { return feedKinds[eventType] }

var feedKinds = func() map[string]string {
	kinds := map[string]string{}
	for eventType := range catalogue {
		if kind, _, _ := strings.Cut(eventType, "."); slices.Contains(FeedKinds(), kind) {
			kinds[eventType] = kind
		}
	}
	kinds[ArrivalQuarantined{}.EventType()] = IntakeKind
	for _, internal := range Types(TokenUsed{}) {
		delete(kinds, internal)
	}
	return kinds
}()
