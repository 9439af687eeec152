package verify_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/intake"
	"github.com/leadlog/leadlog/command/token"
	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/projectiontest"
)

func TestVerify_SharedPhoneAndSixthToken(t *testing.T) {
	t.Parallel()
	w, first, second := sound(t, ofLog...)
	w.Append(t, "acme", event.LeadStream(second), event.LeadMerged{
		Source: "website", LeadFields: event.LeadFields{Phone: "+911"},
	})
	atLimit := func(limit int, stream func(string) string, created, deleted event.Data) {
		of := stream(w.NewID())
		w.Append(t, "acme", of, created)
		w.Append(t, "acme", of, deleted)
		for range limit + 1 {
			w.Append(t, "acme", stream(w.NewID()), created)
		}
	}
	created := event.TokenCreated{
		Name: "CI", Prefix: "p", Hash: []byte("h"), Days: 1, ExpiresAt: projectiontest.Start, Slot: 1,
	}
	atLimit(token.MaxPerAccount, event.TokenStream, created, event.TokenDeleted{})
	atLimit(webhook.MaxPerAccount, event.WebhookStream, event.WebhookRegistered{
		WebhookSettings: event.WebhookSettings{URL: "https://example.com", Events: []string{"*"}},
	}, event.WebhookDeleted{})
	// it does not count
	demo := event.IntakeCreated{IntakeSettings: event.IntakeSettings{Name: "Demo", Kind: "form"}, Demo: true}
	deleted := event.IntakeStream(w.NewID())
	w.Append(t, "acme", deleted, demo)
	w.Append(t, "acme", deleted, event.IntakeDeleted{})
	w.Append(t, "acme", event.IntakeStream(w.NewID()), demo)
	atLimit(intake.MaxPerAccount, event.IntakeStream, event.IntakeCreated{
		IntakeSettings: event.IntakeSettings{Name: "Site", Kind: "form"},
	}, event.IntakeDeleted{})
	elsewhere := w.NewID()
	w.Append(t, "globex", event.ClaimPrefix+w.NewID(), event.ClaimTaken{Kind: "phone", Holder: elsewhere})
	w.Append(t, "globex", event.LeadStream(elsewhere), event.LeadCreated{
		LeadFields: event.LeadFields{Name: "N", Phone: "+912", Status: "new"}, Source: "api",
	})
	w.Append(t, "globex", event.TokenStream(w.NewID()), created)
	project(t, w)
	require.Equal(t, []string{
		"account acme has 6 tokens from position 16 on",
		"account acme has 51 endpoints from position 69 on",
		"account acme has 51 intakes from position 125 on",
		"leads " + first + ", " + second + " of account acme have the same phone",
		"lead " + second + " has 2 values of kind phone, and claims on 1",
	}, runLog(t, w))
}
