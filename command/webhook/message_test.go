package webhook

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore/event"
)

func TestMessages_Types(t *testing.T) {
	t.Parallel()
	granted, same := event.Consent{Purpose: "call", Granted: true, Changed: true}, event.Consent{Purpose: "call"}
	for name, c := range map[string]struct {
		data event.Data
		want []Message
	}{
		"split: the lead that stays":     {event.LeadSplit{Into: "B"}, []Message{{"lead.updated", 0}}},
		"split: a new lead":              {event.LeadSplit{From: "A"}, []Message{{"lead.created", 0}}},
		"split: a lead that lives again": {event.LeadSplit{From: "A", Undone: true}, []Message{{"lead.updated", 0}}},
		"split: the lead that it was in": {event.LeadSplit{Into: "B", Undone: true}, []Message{{"lead.updated", 0}}},
		"a new lead with consents": {
			event.LeadCreated{Consents: []event.Consent{same, granted, granted}},
			[]Message{{"lead.created", 0}, {"lead.consent", 1}, {"lead.consent", 2}},
		},
		"a consent that does not change": {
			event.LeadMerged{Consents: []event.Consent{same}}, []Message{{"lead.merged", 0}},
		},
		"a join": {
			event.LeadJoined{Consents: []event.Consent{granted}}, []Message{{"lead.updated", 0}, {"lead.consent", 1}},
		},
		"a split": {
			event.LeadSplit{Into: "B", Consents: []event.Consent{granted}},
			[]Message{{"lead.updated", 0}, {"lead.consent", 1}},
		},
		"a consent alone": {
			event.LeadConsented{Consents: []event.Consent{granted}}, []Message{{"lead.consent", 1}},
		},
		"not sent": {event.LeadRefused{}, nil},
	} {
		require.Equal(t, c.want, Messages(c.data), name)
	}
}

func TestSentTypes_HaveEveryMessage(t *testing.T) {
	t.Parallel()
	changed := []event.Consent{{Purpose: "call", Changed: true}}
	for _, data := range append([]event.Data{
		event.LeadCreated{Consents: changed}, event.LeadMerged{Consents: changed},
		event.LeadConsented{Consents: changed}, event.LeadJoined{Consents: changed},
		event.LeadSplit{Into: "B", Consents: changed}, event.LeadSplit{From: "A"},
	}, sentFacts...) {
		for _, m := range Messages(data) {
			require.Contains(t, SentTypes([]string{m.Type}), data.EventType())
		}
	}
	require.NotContains(t, SentTypes([]string{LeadConsent}), event.LeadUpdated{}.EventType())
	require.NotContains(t, SentTypes([]string{"lead.updated"}), event.LeadConsented{}.EventType())
}
