package sealed

import (
	"strings"

	"github.com/leadlog/leadlog/eventstore/event"
)

// About reports whether a stream is about a person. Each such stream has its own key.
func About(stream string) bool {
	return strings.HasPrefix(stream, event.LeadPrefix) || strings.HasPrefix(stream, event.VisitorPrefix) ||
		strings.HasPrefix(stream, event.ArrivalPrefix)
}

// bare reports whether a type is stored unsealed, even on streams about a person, and even the origin of its request.
// Such a fact ends the use of a key, and must be readable without it.
func bare(eventType string) bool {
	switch eventType {
	case event.LeadErased{}.EventType(), event.VisitorForgotten{}.EventType(), event.ArrivalDiscarded{}.EventType(),
		event.ArrivalExpired{}.EventType():
		return true
	}
	return false
}
