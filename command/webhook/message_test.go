package webhook

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore/event"
)

func TestMessages_Types(t *testing.T) {
	t.Parallel()
	call := event.Purposes{Consents: map[string]bool{"call": true}, ChangedConsents: []string{"call"}}
	two := event.Purposes{Consents: map[string]bool{"call": true}, ChangedConsents: []string{"call", "mail"}}
	same := event.Purposes{Consents: map[string]bool{"call": true}}
	for name, c := range map[string]struct {
		data event.Data
		want []Message
	}{
		"split: the lead that stays":     {event.LeadSplit{Into: "B"}, []Message{{"lead.updated", 0}}},
		"split: a new lead":              {event.LeadSplit{From: "A"}, []Message{{"lead.created", 0}}},
		"split: a lead that lives again": {event.LeadSplit{From: "A", Undone: true}, []Message{{"lead.updated", 0}}},
		"split: the lead that it was in": {event.LeadSplit{Into: "B", Undone: true}, []Message{{"lead.updated", 0}}},
		"a new lead with consents": {
			event.LeadCreated{Purposes: two},
			[]Message{{"lead.created", 0}, {"lead.consent", 1}, {"lead.consent", 2}},
		},
		"a consent that does not change": {
			event.LeadMerged{Purposes: same}, []Message{{"lead.merged", 0}},
		},
		"a join": {
			event.LeadJoined{Purposes: call}, []Message{{"lead.updated", 0}, {"lead.consent", 1}},
		},
		"a split": {
			event.LeadSplit{Into: "B", Purposes: call},
			[]Message{{"lead.updated", 0}, {"lead.consent", 1}},
		},
		"a consent alone": {
			event.LeadConsented{Purposes: call}, []Message{{"lead.consent", 1}},
		},
		"not sent": {event.LeadRefused{}, nil},
	} {
		require.Equal(t, c.want, Messages(c.data), name)
	}
}

func TestSentTypes_HaveEveryMessage(t *testing.T) {
	t.Parallel()
	changed := event.Purposes{ChangedConsents: []string{"call"}}
	for _, data := range append([]event.Data{
		event.LeadCreated{Purposes: changed}, event.LeadMerged{Purposes: changed},
		event.LeadConsented{Purposes: changed}, event.LeadJoined{Purposes: changed},
		event.LeadSplit{Into: "B", Purposes: changed}, event.LeadSplit{From: "A"},
	}, sentFacts...) {
		for _, m := range Messages(data) {
			require.Contains(t, SentTypes([]string{m.Type}), data.EventType())
		}
	}
	require.NotContains(t, SentTypes([]string{LeadConsent}), event.LeadUpdated{}.EventType())
	require.NotContains(t, SentTypes([]string{"lead.updated"}), event.LeadConsented{}.EventType())
}
