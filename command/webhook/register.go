package webhook

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/leadlog/leadlog/eventstore/event"
)

// Registration has the settings of a new endpoint.
type Registration struct {
	URL         string
	Events      []string // public type names, or patterns such as lead.*; empty, or "*" among them, is all
	Description string
	Filter      string
	Ordering    string  // none, lead or endpoint; empty is none
	RateLimit   float64 // attempts a second; 0 is no limit
	Headers     map[string]string
}

// Register decides on a new endpoint; the caller fills in its slot, and stores its own headers. With privateTargets the
// URL may be http, and its host private or local. The error is field.Errors.
func (r Registration) Register(
	privateTargets bool,
) (registered event.WebhookRegistered, headers map[string]string, err error) {
	if r.Headers == nil {
		r.Headers = map[string]string{}
	}
	if r.Events == nil {
		r.Events = []string{}
	}
	registered.WebhookSettings, headers, err = Change{
		URL: &r.URL, Events: r.Events, Description: &r.Description, Filter: &r.Filter, Ordering: &r.Ordering,
		RateLimit: &r.RateLimit,
		Headers:   r.Headers,
	}.apply(event.WebhookSettings{}, privateTargets)
	return registered, headers, err
}

// chosen returns the requested types and patterns, each once, or why they are invalid.
func chosen(asked []string) (events []string, message string) {
	if len(asked) == 0 || slices.Contains(asked, "*") {
		return []string{"*"}, ""
	}
	for _, name := range asked {
		if !slices.ContainsFunc(EventTypes(), func(sent string) bool { return event.Matches(sent, name) }) {
			return nil, "must be *, patterns such as lead.*, or some of " + strings.Join(EventTypes(), ", ")
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(asked))), ""
}

func described(text string) (description, message string) {
	description = strings.TrimSpace(text)
	if utf8.RuneCountInString(description) > MaxDescription {
		return "", "must be at most 500 characters"
	}
	return description, ""
}
