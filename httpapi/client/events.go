package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"strings"
	"time"
)

// Event is an event of the account's log.
type Event struct {
	ID        string          `json:"id"`
	Type      string          `json:"type"` // such as lead.created. New types may come: skip those that you do not know
	At        time.Time       `json:"at"`
	Actor     string          `json:"actor"` // user:{sub}, token:{tokenId} or system:{what}
	RequestID string          `json:"requestId"`
	Stream    string          `json:"stream"` // such as lead-{leadId}
	Revision  uint64          `json:"revision"`
	Position  uint64          `json:"position"`
	Data      json.RawMessage `json:"data"`
	Erased    bool            `json:"erased"` // the person was erased, and Data has nothing personal
}

// Page is a part of the change feed. It may have no events.
type Page struct {
	Events []Event `json:"data"`
	Next   string  `json:"nextCursor"` // where the next page begins, also after a restart
}

// Events yields the account's events in the order of the log, each once, beginning after a cursor; with an empty one,
// at the beginning of the log. It waits for new events until the context ends. Store a page's Next in the transaction
// that stores what you make of its events, or else afterwards. Types are names such as lead.created or lead.*; without
// any, all are yielded. The credential is a JWT. The sequence ends after an error.
func (c *Client) Events(ctx context.Context, after string, types ...string) iter.Seq2[Page, error] {
	return func(yield func(Page, error) bool) {
		for {
			path := query("/api/v1/crm/events", map[string]string{
				"after": after, "types": strings.Join(types, ","), "limit": "1000", "wait": "30",
			})
			var page Page
			_, err := c.call(ctx, request{method: http.MethodGet, path: path, repeatable: true}, &page)
			if err != nil {
				yield(Page{}, err)
				return
			}
			if (len(page.Events) > 0 || page.Next != after) && !yield(page, nil) {
				return
			}
			after = page.Next
		}
	}
}
