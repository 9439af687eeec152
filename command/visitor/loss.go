package visitor

import (
	"slices"
	"strconv"

	"github.com/leadlog/leadlog/eventstore/event"
)

// Loss describes a visitor's stream with events that cannot be read although it has no record that the visitor was
// forgotten, for example after a restore of the log without its keys.
type Loss struct {
	Keys      []string // ids of the keys that are not there, in decimal
	Remaining bool     // some activities since the visitor was last forgotten can be read

	// before are the keys of activities that were forgotten earlier. A key that was restored from a backup may have
	// sealed one more activity; it counts as not recorded.
	before []string
}

// Unread adds an event that cannot be opened because a key is lost.
func (l *Loss) Unread(key int64) {
	id := strconv.FormatInt(key, 10)
	if !slices.Contains(l.before, id) && !slices.Contains(l.Keys, id) {
		l.Keys = append(l.Keys, id)
	}
}

// Forgotten applies the record that the visitor was forgotten.
func (l *Loss) Forgotten(fact event.VisitorForgotten) {
	if len(fact.Keys) == 0 {
		l.before = append(l.before, l.Keys...)
		l.Keys, l.Remaining = nil, false
		return
	}
	l.before = append(l.before, fact.Keys...)
	l.Keys = slices.DeleteFunc(l.Keys, func(id string) bool { return slices.Contains(fact.Keys, id) })
}

// Fact returns the event that makes the loss permanent. Events that can be read stay.
func (l Loss) Fact() event.VisitorForgotten {
	if !l.Remaining {
		return event.VisitorForgotten{}
	}
	return event.VisitorForgotten{Keys: l.Keys}
}
