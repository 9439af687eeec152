package lead

import (
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore/event"
)

func TestCampaign_OmitsPersonalData(t *testing.T) {
	t.Parallel()
	const phone = "+919876543210"
	for value, kept := range map[string]bool{
		"diwali": true, "Größen & mehr": true, " spaced ": true, "20251123": true, "9876": true, "98765 43211": true,
		"91": true,
		"":   false,
		" ":  false, "asha@example.com": false, "a @ b": false, "＠": false, "asha%40example.com": false,
		phone: false, "9876543210": false, "call-98765-43210-now": false, "+91 (98765) 43210": false,
		"९८७६५४३२१०": false, "９８７６５ ４３２１０": false,
	} {
		given := Campaign(func(name string) string {
			if name == "utm_campaign" {
				return value
			}
			return "x"
		}, phone)
		want := event.Campaign{UTMSource: "x", UTMMedium: "x", UTMID: "x"}
		if kept {
			want.UTMCampaign = value
		}
		require.Equal(t, want, given, value)
	}
}

func TestCampaign_WithoutPhone(t *testing.T) {
	t.Parallel()
	for _, phone := range []string{"", "+1234567"} {
		given := Campaign(func(string) string { return "1" }, phone)
		require.Equal(t, event.Campaign{UTMSource: "1", UTMMedium: "1", UTMCampaign: "1", UTMID: "1"}, given)
	}
}

func TestDecide_StoresCampaign(t *testing.T) {
	t.Parallel()
	body, err := Members(
		jsontext.Value(`{"phone":"9876543210","metadata":{"source":"website","utm_source":"Google","utm_medium":7,` +
			`"utm_campaign":"for asha@example.com","utm_id":["1"]}}`),
	)
	require.NoError(t, err)
	rules := Rules{Region: "IN", Stages: []string{"new"}}
	arrival, err := ParseArrival(body, rules, Client{})
	require.NoError(t, err)
	opened, err := Decide(arrival, rules, nil, nil, NewIDs{Lead: "l"})
	require.NoError(t, err)
	want := event.Campaign{UTMSource: "Google", UTMMedium: "7"}
	require.Equal(t, want, opened.Fact.(event.LeadCreated).Campaign)
	merged, err := Decide(arrival, rules, &State{ID: "l"}, nil, NewIDs{})
	require.NoError(t, err)
	require.Equal(t, want, merged.Fact.(event.LeadMerged).Campaign)
}
