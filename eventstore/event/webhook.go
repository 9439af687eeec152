package event

import "time"

// WebhookSettings are the settings of an endpoint.
type WebhookSettings struct {
	URL         string   `json:"url"`
	Events      []string `json:"events"` // public type names, or "*" alone
	Description string   `json:"description,omitzero"`
	Filter      string   `json:"filter,omitzero"`      // an expression over the body; empty: everything is sent
	Ordering    string   `json:"ordering,omitzero"`    // lead or endpoint; empty: none
	RateLimit   float64  `json:"rateLimit,omitzero"`   // attempts a second; 0: no limit
	HeaderNames []string `json:"headerNames,omitzero"` // own headers, sorted; their values are stored elsewhere, sealed
}

// WebhookRegistered records that an account wants events sent to a URL. The signing secret is stored elsewhere, sealed.
type WebhookRegistered struct {
	WebhookSettings
	Slot int `json:"slot"` // which of the account's slots it holds, from 1
}

// WebhookUpdated records that an endpoint's owner changed it. It has all of the endpoint's settings from here on.
type WebhookUpdated struct {
	WebhookSettings
	Changed []string `json:"changed"` // names of the fields that have another value than before
}

// WebhookDisabled records that nothing is sent to an endpoint any more until it is enabled again.
type WebhookDisabled struct {
	Reason string `json:"reason"` // owner, gone or failing
}

// WebhookEnabled records that a disabled endpoint is sent events again, those from here on.
type WebhookEnabled struct{}

// WebhookRotated records that an endpoint has a new signing secret. For a while, the previous one also signs.
type WebhookRotated struct {
	PreviousUntil time.Time `json:"previousUntil"`
}

// WebhookTested records that a test was requested. It is delivered to this endpoint alone.
type WebhookTested struct{}

// WebhookRetried records that a user asked for a delivery to be made again, or for those that failed since a time.
type WebhookRetried struct {
	DeliveryID  string    `json:"deliveryId,omitzero"`
	Since       time.Time `json:"since,omitzero"`
	DeliveryIDs []string  `json:"deliveryIds,omitempty"` // those that had failed since then
}

// WebhookReplayed records that the events of a span of time are to be sent again.
type WebhookReplayed struct {
	Since      time.Time `json:"since"`
	Until      time.Time `json:"until"`      // not included
	Generation int       `json:"generation"` // the endpoint's first replay is 1
}

// WebhookReplayEnded records that a replay has ended: everything that it queued was attempted once, or it failed.
type WebhookReplayEnded struct {
	Generation int    `json:"generation"`
	Error      string `json:"error,omitzero"` // why it failed
}

// WebhookDeleted records that an endpoint is gone for good.
type WebhookDeleted struct{}

func (WebhookRegistered) EventType() string  { return "webhook.registered.v1" }
func (WebhookUpdated) EventType() string     { return "webhook.updated.v1" }
func (WebhookDisabled) EventType() string    { return "webhook.disabled.v1" }
func (WebhookEnabled) EventType() string     { return "webhook.enabled.v1" }
func (WebhookRotated) EventType() string     { return "webhook.rotated.v1" }
func (WebhookTested) EventType() string      { return "webhook.tested.v1" }
func (WebhookRetried) EventType() string     { return "webhook.retried.v1" }
func (WebhookReplayed) EventType() string    { return "webhook.replayed.v1" }
func (WebhookReplayEnded) EventType() string { return "webhook.replayended.v1" }
func (WebhookDeleted) EventType() string     { return "webhook.deleted.v1" }
