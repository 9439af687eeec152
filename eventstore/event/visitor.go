package event

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// VisitorActed records what a visitor of a web site did. The visitor is unknown until a lead has the same id.
type VisitorActed struct {
	VisitorID  string                    `json:"visitorId"` // as given
	Kind       string                    `json:"type"`      // page_view, form_view, click or custom
	URL        string                    `json:"url,omitzero"`
	Title      string                    `json:"title,omitzero"`
	Referrer   string                    `json:"referrer,omitzero"`
	At         time.Time                 `json:"at"` // by the caller's clock when it gave one; whole milliseconds, UTC
	Properties map[string]jsontext.Value `json:"properties,omitzero"`
	Touch      bool                      `json:"touch,omitzero"` // the URL has a utm parameter, whose value may be personal
	Campaign                             // of the URL
}

// VisitorForgotten records that the events before it must no longer be read. Others may follow it: the browser still has the id that
// it was given.
type VisitorForgotten struct {
	// Keys are the ids, in decimal, of keys that were lost while other events of the visitor can still be read: then the fact is
	// about the events that these keys sealed, and no others.
	Keys []string `json:"keys,omitzero"`
}

func (VisitorActed) EventType() string     { return "visitor.acted.v1" }
func (VisitorForgotten) EventType() string { return "visitor.forgotten.v1" }
