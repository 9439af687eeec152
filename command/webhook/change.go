package webhook

import (
	"slices"
	"time"

	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/eventstore/event"
)

// Change is a change of an endpoint by its owner. Nil leaves a field as it is.
type Change struct {
	URL         *string
	Events      []string // empty and not nil means all, as in a Registration
	Description *string
	Enabled     *bool
}

// Update decides on a change of an endpoint of the account. There are no events when nothing changes. The error is ErrNotFound or
// field.Errors.
func (s State) Update(account string, c Change, privateTargets bool) ([]event.Data, error) {
	if err := s.ownedBy(account); err != nil {
		return nil, err
	}
	updated, err := s.apply(c, privateTargets)
	if err != nil {
		return nil, err
	}
	var decided []event.Data
	if len(updated.Changed) > 0 {
		decided = append(decided, updated)
	}
	switch {
	case c.Enabled == nil:
	case *c.Enabled && s.DisabledReason != "":
		decided = append(decided, event.WebhookEnabled{})
	case !*c.Enabled && s.DisabledReason == "":
		decided = append(decided, event.WebhookDisabled{Reason: ByOwner})
	}
	return decided, nil
}

func (s State) apply(c Change, privateTargets bool) (event.WebhookUpdated, error) {
	var wrong field.Errors
	updated := event.WebhookUpdated{URL: s.URL, Events: s.Events, Description: s.Description}
	if c.URL != nil {
		if message := WrongURL(*c.URL, privateTargets); message != "" {
			wrong.Add("url", message)
		}
		updated.URL = *c.URL
	}
	var message string
	if c.Events != nil {
		if updated.Events, message = chosen(c.Events); message != "" {
			wrong.Add("events", message)
		}
	}
	if c.Description != nil {
		if updated.Description, message = described(*c.Description); message != "" {
			wrong.Add("description", message)
		}
	}
	updated.Changed = s.differences(updated)
	return updated, wrong.Err()
}

func (s State) differences(u event.WebhookUpdated) (names []string) {
	if u.URL != s.URL {
		names = append(names, "url")
	}
	if !slices.Equal(u.Events, s.Events) {
		names = append(names, "events")
	}
	if u.Description != s.Description {
		names = append(names, "description")
	}
	return names
}

// Disable decides on disabling an endpoint for failures at a URL that began at seenFrom. Ok is false when the endpoint is disabled
// or deleted already, or the failures were at an earlier URL or began before it was last enabled.
func (s State) Disable(reason, url string, seenFrom time.Time) (_ event.WebhookDisabled, ok bool) {
	ok = s.Phase == Live && s.DisabledReason == "" && s.URL == url && !seenFrom.Before(s.Since)
	return event.WebhookDisabled{Reason: reason}, ok
}
