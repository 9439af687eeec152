package webhook

import (
	"slices"
	"strings"
	"time"

	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/eventstore/event"
)

// Change is a change of an endpoint by its owner. Nil leaves a field as it is.
type Change struct {
	URL         *string
	Events      []string // empty and not nil means all, as in a Registration
	Description *string
	Filter      *string
	Ordering    *string
	RateLimit   *float64
	Headers     map[string]string // empty and not nil means none; nil with another URL too
	Enabled     *bool
}

// Update decides on a change of an endpoint of the account. There are no events if nothing changes. The caller stores
// headers if they are not nil. The error is ErrNotFound or field.Errors.
func (s State) Update(
	account string, c Change, privateTargets bool,
) (decided []event.Data, headers map[string]string, err error) {
	if err := s.ownedBy(account); err != nil {
		return nil, nil, err
	}
	settings, headers, err := c.apply(s.WebhookSettings, privateTargets)
	if err != nil {
		return nil, nil, err
	}
	changed := s.differences(settings)
	if len(headers) > 0 || headers != nil && len(s.HeaderNames) > 0 { // the values before are not known here
		changed = append(changed, "headers")
	} else {
		headers = nil
	}
	if len(changed) > 0 {
		decided = append(decided, event.WebhookUpdated{WebhookSettings: settings, Changed: changed})
	}
	switch {
	case c.Enabled == nil:
	case *c.Enabled && s.DisabledReason != "":
		decided = append(decided, event.WebhookEnabled{})
	case !*c.Enabled && s.DisabledReason == "":
		decided = append(decided, event.WebhookDisabled{Reason: ByOwner})
	}
	return decided, headers, nil
}

// apply returns the settings after a change, and the headers that it sets, if any. The error is field.Errors.
func (c Change) apply(
	s event.WebhookSettings, privateTargets bool,
) (_ event.WebhookSettings, headers map[string]string, err error) {
	var wrong field.Errors
	var message string
	before := s.URL
	note := func(name string) {
		if message != "" {
			wrong.Add(name, message)
		}
	}
	if c.URL != nil {
		s.URL, message = target(*c.URL, privateTargets)
		note("url")
	}
	if c.Events != nil {
		s.Events, message = chosen(c.Events)
		note("events")
	}
	if c.Description != nil {
		s.Description, message = described(*c.Description)
		note("description")
	}
	if c.Filter != nil {
		if s.Filter, message = strings.TrimSpace(*c.Filter), ""; s.Filter != "" {
			if _, err := CompileFilter(s.Filter); err != nil {
				message = err.Error()
			}
		}
		note("filter")
	}
	if c.Ordering != nil {
		s.Ordering, message = ordered(*c.Ordering)
		note("ordering")
	}
	if c.RateLimit != nil {
		s.RateLimit, message = *c.RateLimit, wrongRate(*c.RateLimit)
		note("rateLimit")
	}
	if c.Headers == nil && s.URL != before && len(s.HeaderNames) > 0 {
		c.Headers = map[string]string{} // another URL must not get the headers of the one before
	}
	if c.Headers != nil {
		var faults field.Errors
		headers, s.HeaderNames, faults = ownHeaders(c.Headers)
		wrong = append(wrong, faults...)
	}
	return s, headers, wrong.Err()
}

// differences returns the names of the settings that differ, without headers.
func (s State) differences(u event.WebhookSettings) (names []string) {
	for _, setting := range []struct {
		name string
		same bool
	}{
		{"url", u.URL == s.URL}, {"events", slices.Equal(u.Events, s.Events)},
		{"description", u.Description == s.Description},
		{"filter", u.Filter == s.Filter}, {"ordering", u.Ordering == s.Ordering},
		{"rateLimit", u.RateLimit == s.RateLimit},
	} {
		if !setting.same {
			names = append(names, setting.name)
		}
	}
	return names
}

// Disable decides on disabling an endpoint for failures at a URL that began at seenFrom. Ok is false when the endpoint
// is disabled or deleted already, or the failures were at an earlier URL or began before it was last enabled.
func (s State) Disable(reason, url string, seenFrom time.Time) (_ event.WebhookDisabled, ok bool) {
	ok = s.Live() && s.DisabledReason == "" && s.URL == url && !seenFrom.Before(s.Since)
	return event.WebhookDisabled{Reason: reason}, ok
}
