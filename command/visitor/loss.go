package visitor

import (
	"slices"
	"strconv"

	"github.com/leadlog/leadlog/eventstore/event"
)

// Loss is what a visitor's stream has that cannot be read although nothing on it says that the visitor was forgotten, as where
// the log of a backup was restored whose keys were not.
type Loss struct {
	Keys []string // ids of the keys that are not there, in decimal
	Rest bool     // something else that the visitor did since they were forgotten can be read

	// before are keys of what the visitor was forgotten with. A process that has not heard of it yet may seal one more event with
	// such a key, which cannot be read, and then takes it for not recorded.
	before []string
}

// Unread takes note of an event that cannot be opened without a key.
func (l *Loss) Unread(key int64) {
	id := strconv.FormatInt(key, 10)
	if !slices.Contains(l.before, id) && !slices.Contains(l.Keys, id) {
		l.Keys = append(l.Keys, id)
	}
}

// Forgotten takes note of the fact.
func (l *Loss) Forgotten(fact event.VisitorForgotten) {
	if len(fact.Keys) == 0 {
		l.before = append(l.before, l.Keys...)
		l.Keys, l.Rest = nil, false
		return
	}
	l.before = append(l.before, fact.Keys...)
	l.Keys = slices.DeleteFunc(l.Keys, func(id string) bool { return slices.Contains(fact.Keys, id) })
}

// Fact is the event that makes the loss permanent, and leaves what can be read.
func (l Loss) Fact() event.VisitorForgotten {
	if !l.Rest {
		return event.VisitorForgotten{}
	}
	return event.VisitorForgotten{Keys: l.Keys}
}
