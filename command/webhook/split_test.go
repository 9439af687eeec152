package webhook

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore/event"
)

func TestSentAs_Split(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		split event.LeadSplit
		want  string
	}{
		"the lead that stays":     {event.LeadSplit{Into: "B"}, "lead.updated"},
		"a new lead":              {event.LeadSplit{From: "A"}, "lead.created"},
		"a lead that lives again": {event.LeadSplit{From: "A", Undone: true}, "lead.updated"},
		"the lead that it was in": {event.LeadSplit{Into: "B", Undone: true}, "lead.updated"},
	} {
		got, sent := SentAs(c.split)
		require.True(t, sent, name)
		require.Equal(t, c.want, got, name)
	}
}
