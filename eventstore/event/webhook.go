package event

import "time"

// WebhookSettings are the settings of an endpoint.
type WebhookSettings struct {
	URL         string   `json:"url"`
	Events      []string `json:"events"` // public type names or patterns such as lead.*; "*" alone is all
	Description string   `json:"description,omitzero"`
	Filter      string   `json:"filter,omitzero"`    // an expression over the body; empty: everything is sent
	Ordering    string   `json:"ordering,omitzero"`  // lead or endpoint; empty: none
	RateLimit   float64  `json:"rateLimit,omitzero"` // attempts per second; 0: no limit
	// custom headers, sorted; their values are stored elsewhere, sealed
	HeaderNames []string `json:"headerNames,omitzero"`
}

// WebhookRegistered records that an account registered an endpoint. The signing secret is stored elsewhere, sealed.
type WebhookRegistered struct {
	WebhookSettings
	Slot int `json:"slot"` // the account's slot that it holds, from 1
}

// WebhookUpdated records that an endpoint's owner changed it. It has all of the endpoint's settings.
type WebhookUpdated struct {
	WebhookSettings
	Changed []string `json:"changed"` // names of the changed fields
}

// WebhookDisabled records that an endpoint was disabled: nothing is sent to it until it is enabled again.
type WebhookDisabled struct {
	Reason string `json:"reason"` // owner, gone or failing
}

// WebhookEnabled records that a disabled endpoint was enabled. Later events are sent to it.
type WebhookEnabled struct{}

// WebhookRotated records that an endpoint has a new signing secret. The previous one also signs until a time.
type WebhookRotated struct {
	PreviousUntil time.Time `json:"previousUntil"`
}

// WebhookTested records that a test was requested. It is delivered only to this endpoint.
type WebhookTested struct{}

// WebhookRetried records that a user requested to retry a delivery, or all that failed since a time.
type WebhookRetried struct {
	DeliveryID  string    `json:"deliveryId,omitzero"`
	Since       time.Time `json:"since,omitzero"`
	DeliveryIDs []string  `json:"deliveryIds,omitempty"` // those that failed since that time
}

// WebhookReplayed records that a user requested to send the events of a time range again.
type WebhookReplayed struct {
	Since      time.Time `json:"since"`
	Until      time.Time `json:"until"`      // exclusive
	Generation int       `json:"generation"` // the endpoint's first replay is 1
}

// WebhookReplayEnded records that a replay has ended: each queued delivery was attempted once, or the replay failed.
type WebhookReplayEnded struct {
	Generation int    `json:"generation"`
	Error      string `json:"error,omitzero"` // why it failed
}

// WebhookDeleted records that an endpoint was permanently deleted.
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
