package event

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// VisitorActed says what a visitor of a web site did. Who the visitor is nobody knows, until a lead carries the same id.
type VisitorActed struct {
	VisitorID  string                    `json:"visitorId"` // as given
	Kind       string                    `json:"type"`      // page_view, form_view, click or custom
	URL        string                    `json:"url,omitzero"`
	Title      string                    `json:"title,omitzero"`
	Referrer   string                    `json:"referrer,omitzero"`
	At         time.Time                 `json:"at"` // by the caller's clock when it gave one; whole milliseconds, UTC
	Properties map[string]jsontext.Value `json:"properties,omitzero"`
}

// VisitorForgotten says that what the events before it tell of a visitor is not to be read any more. Others may follow it:
// a browser keeps the id that it was given.
type VisitorForgotten struct{}

func (VisitorActed) EventType() string     { return "visitor.acted.v1" }
func (VisitorForgotten) EventType() string { return "visitor.forgotten.v1" }
