package event

import (
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// VisitorActed records an activity of a visitor of a web site. The visitor is anonymous until a lead has the same id.
type VisitorActed struct {
	VisitorID  string                    `json:"visitorId" personal:"yes"` // as given
	Kind       string                    `json:"type" personal:"no"`       // page_view, form_view, click or custom
	URL        string                    `json:"url,omitzero" personal:"yes"`
	Title      string                    `json:"title,omitzero" personal:"yes"`
	Referrer   string                    `json:"referrer,omitzero" personal:"yes"`
	At         time.Time                 `json:"at" personal:"no"` // by the caller's clock if given
	Properties map[string]jsontext.Value `json:"properties,omitzero" personal:"yes"`
	// Touch says that the URL has a utm parameter, whose value may be personal.
	Touch    bool `json:"touch,omitzero" personal:"no"`
	Campaign      // of the URL
}

// VisitorForgotten records that earlier events of the visitor must no longer be read. Others may follow it: the browser
// keeps its id.
type VisitorForgotten struct {
	// Keys are the ids, in decimal, of keys that were lost while other events of the visitor can still be read. The
	// fact then covers only the events that these keys sealed.
	Keys []string `json:"keys,omitzero" personal:"no"`
}

// KeyIDs returns Keys as numbers, without those that are none.
func (f VisitorForgotten) KeyIDs() (ids []int64) {
	for _, key := range f.Keys {
		if id, err := strconv.ParseInt(key, 10, 64); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

func (VisitorActed) EventType() string     { return "visitor.acted.v1" }
func (VisitorForgotten) EventType() string { return "visitor.forgotten.v1" }
