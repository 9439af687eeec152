package webhook

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/eventstore/event"
)

// Registration is what a caller asks for with a new endpoint.
type Registration struct {
	URL         string
	Events      []string // public type names; empty, or "*" among them, is all
	Description string
}

// Register decides on a new endpoint; the caller fills in its slot. With privateTargets the URL may be http, and its host private
// or local. The error is field.Errors.
func (r Registration) Register(privateTargets bool) (event.WebhookRegistered, error) {
	var wrong field.Errors
	if message := WrongURL(r.URL, privateTargets); message != "" {
		wrong.Add("url", message)
	}
	events, message := chosen(r.Events)
	if message != "" {
		wrong.Add("events", message)
	}
	description, message := described(r.Description)
	if message != "" {
		wrong.Add("description", message)
	}
	return event.WebhookRegistered{URL: r.URL, Events: events, Description: description}, wrong.Err()
}

// chosen returns the types that are asked for, each once, or what is wrong with them.
func chosen(asked []string) (events []string, message string) {
	if len(asked) == 0 || slices.Contains(asked, "*") {
		return []string{"*"}, ""
	}
	for _, name := range asked {
		if !slices.Contains(EventTypes(), name) {
			return nil, "must be * or some of " + strings.Join(EventTypes(), ", ")
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
