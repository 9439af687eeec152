package webhook

import (
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/eventstore/event"
)

// Test decides on sending a test to an endpoint of the account. The errors are ErrNotFound and ErrDisabled.
func (s State) Test(account string) (event.WebhookTested, error) {
	return event.WebhookTested{}, s.sendable(account)
}

// Retry decides on making a delivery again. The errors are ErrNotFound and ErrDisabled.
func (s State) Retry(account, deliveryID string) (event.WebhookRetried, error) {
	return event.WebhookRetried{DeliveryID: deliveryID}, s.sendable(account)
}

// RetryFailed decides on making deliveries again that have failed since a time. The errors are ErrNotFound, ErrDisabled
// and field.Errors.
func (s State) RetryFailed(
	account string, since time.Time, deliveryIDs []string, now time.Time,
) (event.WebhookRetried, error) {
	if err := s.sendable(account); err != nil {
		return event.WebhookRetried{}, err
	}
	var wrong field.Errors
	switch {
	case since.IsZero():
		wrong.Add("since", "is required")
	case since.After(now):
		wrong.Add("since", "must not be in the future")
	}
	return event.WebhookRetried{Since: since.UTC(), DeliveryIDs: deliveryIDs}, wrong.Err()
}

// Replay decides on sending the events of a span of time again. An until that is zero or in the future means now. The
// errors are ErrNotFound, ErrDisabled, field.Errors and ErrReplayRunning.
func (s State) Replay(account string, since, until, now time.Time) (event.WebhookReplayed, error) {
	if err := s.sendable(account); err != nil {
		return event.WebhookReplayed{}, err
	}
	var wrong field.Errors
	switch {
	case since.IsZero():
		wrong.Add("since", "is required")
	case since.After(now):
		wrong.Add("since", "must not be in the future")
	case !until.IsZero() && !until.After(since):
		wrong.Add("until", "must be after since")
	}
	if until.IsZero() || until.After(now) {
		until = now.Add(time.Millisecond) // includes this millisecond
	}
	err := wrong.Err()
	if err == nil && s.Replaying {
		err = ErrReplayRunning
	}
	return event.WebhookReplayed{Since: since.UTC(), Until: until.UTC(), Generation: s.Replays + 1}, err
}

// EndReplay decides on the end of a replay. Failure is why it failed, or empty. Ok is false when the replay is not
// running.
func (s State) EndReplay(generation int, failure string) (_ event.WebhookReplayEnded, ok bool) {
	ok = s.Live() && s.Replaying && s.Replays == generation
	return event.WebhookReplayEnded{Generation: generation, Error: failure}, ok
}

func (s State) sendable(account string) error {
	if err := s.ownedBy(account); err != nil {
		return err
	}
	if s.DisabledReason != "" {
		return ErrDisabled
	}
	return nil
}

// DeliveryID returns the id of the delivery of a part of an event to an endpoint. It depends only on these and on the
// generation: 0 for a live delivery, then one more for each replay. Its time is that of setOffBy, the event itself or
// the request to replay it.
func DeliveryID(setOffBy, eventID ulid.ULID, part int, webhookID string, generation int) string {
	name := fmt.Appendf(nil, "%s/%s/%d", eventID, webhookID, generation)
	if part > 0 {
		name = fmt.Appendf(name, "/%d", part)
	}
	sum := sha256.Sum256(name)
	id := setOffBy
	copy(id[6:], sum[:10])
	return id.String()
}
