package event

// WebhookRegistered says that an account wants events sent to a URL. The signing secret is kept elsewhere, sealed.
type WebhookRegistered struct {
	URL         string   `json:"url"`
	Events      []string `json:"events"` // public type names, or "*" alone
	Description string   `json:"description,omitzero"`
	Slot        int      `json:"slot"` // which of the account's slots it holds, from 1
}

// WebhookDeleted says that an endpoint is gone for good.
type WebhookDeleted struct{}

// WebhookAbandoned closes the stream of an endpoint that a slot was taken for and that was never born.
// Only a store without transactions needs it.
type WebhookAbandoned struct{}

// EventType names the fact.
func (WebhookRegistered) EventType() string { return "webhook.registered.v1" }

// EventType names the fact.
func (WebhookDeleted) EventType() string { return "webhook.deleted.v1" }

// EventType names the fact.
func (WebhookAbandoned) EventType() string { return "webhook.abandoned.v1" }
