package lead

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore/event"
)

// fold folds arrivals, one hour apart, into one lead.
func fold(t *testing.T, arrivals ...Arrival) State {
	t.Helper()
	var s State
	for i, a := range arrivals {
		if a.Phone == "" {
			a.Phone = phoneA
		}
		if a.Source == "" {
			a.Source = "website"
		}
		var target *State
		if i > 0 {
			target = &s
		}
		decision, err := Decide(a, someRules, target, nil, someIDs)
		require.NoError(t, err)
		s = Evolve(s, leadFact(decision.LeadID, someDay.Add(time.Duration(i)*time.Hour), decision.Fact))
	}
	return s
}

func TestEvolve_Created(t *testing.T) {
	t.Parallel()
	s := fold(t, Arrival{
		LeadFields: event.LeadFields{
			Name: "Asha", Email: emailA, Status: "won",
			Temperature: "hot", OpportunityValue: "5", CustomFields: raw("city", `"Pune"`),
		}, VisitorID: "v", IP: "198.51.100.7", UserAgent: "M",
		Metadata: raw("source", `"website"`, "ip", `"as given"`, "utm", `"x"`),
	})
	require.Equal(t, State{
		Phase: Live, ID: idNew, Revision: 0, Account: "acme", ContactUID: idContact, LeadFields: event.LeadFields{
			Name: "Asha", Phone: phoneA, Email: emailA, Status: "won",
			Temperature: "hot", OpportunityID: idOpportunity, OpportunityValue: "5",
			CustomFields: raw("city", `"Pune"`),
		},
		Phones: []string{phoneA}, Emails: []string{emailA}, Source: "website",
		Sources: []SourceEntry{{
			Source: "website", FirstSeenAt: someDay, LastSeenAt: someDay, Arrivals: 1, Credential: "token:01K",
			RequestID: "req-1", Metadata: raw("source", `"website"`, "ip", `"as given"`, "utm", `"x"`),
			IP: "198.51.100.7", UserAgent: "M",
			Changed: []string{
				"name", "phone", "email", "status", "leadTemperature", "opportunityValue", "customFields", "metadata",
				"visitorId",
			},
		}},
		Metadata:   raw("utm", `"x"`, "ip", `"198.51.100.7"`, "userAgent", `"M"`),
		VisitorIDs: []string{"v"}, CreatedAt: someDay, UpdatedAt: someDay,
	}, s)
}

func TestEvolve_LatestValueWins(t *testing.T) {
	t.Parallel()
	first := Arrival{
		LeadFields: event.LeadFields{
			Name: "Asha", Email: emailA, Status: "new",
			Temperature: "hot", OpportunityValue: "5", CustomFields: raw("city", `"Pune"`, "n", "1"),
		}, VisitorID: "v", IP: "198.51.100.7", UserAgent: "M", Metadata: raw("utm", `"x"`, "gclid", `"g"`),
	}
	before := fold(t, first)

	unchanged := fold(t, first, Arrival{})
	require.Equal(t, someDay.Add(time.Hour), unchanged.UpdatedAt)
	for _, of := range []struct {
		field         string
		before, after any
	}{
		{"name", before.Name, unchanged.Name}, {"email", before.Email, unchanged.Email},
		{"status", before.Status, unchanged.Status},
		{"temperature", before.Temperature, unchanged.Temperature},
		{"opportunity", before.OpportunityID, unchanged.OpportunityID},
		{"value", before.OpportunityValue, unchanged.OpportunityValue},
		{"custom fields", before.CustomFields, unchanged.CustomFields},
		{"metadata", before.Metadata, unchanged.Metadata}, {"visitors", before.VisitorIDs, unchanged.VisitorIDs},
		{"contact", before.ContactUID, unchanged.ContactUID},
	} {
		require.Equal(t, of.before, of.after, "an arrival without the field does not change it: "+of.field)
	}

	after := fold(t, first, Arrival{
		LeadFields: event.LeadFields{
			Name: "Asha Rao", Email: emailNew, Status: "won",
			Temperature: "cold", OpportunityValue: "0", CustomFields: raw("city", `"Goa"`, "flag", "false"),
		}, VisitorID: "w", IP: "203.0.113.5", UserAgent: "N", Metadata: raw("utm", `"y"`, "gclid", `""`, "new", `1`),
	})
	require.Equal(t, "Asha Rao", after.Name)
	require.Equal(t, emailNew, after.Email)
	require.Equal(t, "won", after.Status)
	require.Equal(t, "cold", after.Temperature)
	require.Equal(t, "0", after.OpportunityValue)
	require.Equal(t, before.OpportunityID, after.OpportunityID)
	require.Equal(t, before.ContactUID, after.ContactUID, "the contact never changes")
	require.Equal(t, raw("city", `"Goa"`, "n", "1", "flag", "false"), after.CustomFields)
	require.Equal(t, raw("utm", `"y"`, "gclid", `"g"`, "new", "1", "ip", `"203.0.113.5"`, "userAgent", `"N"`),
		after.Metadata,
		"merged by key, and an empty value does not override")
	require.Equal(t, []string{"v", "w"}, after.VisitorIDs)
	require.Equal(t, []any{someDay, someDay.Add(time.Hour)}, []any{after.CreatedAt, after.UpdatedAt})
}

func TestEvolve_KeepsContacts(t *testing.T) {
	t.Parallel()
	s := fold(t, Arrival{}, Arrival{LeadFields: event.LeadFields{Email: emailA}}, Arrival{
		LeadFields: event.LeadFields{Email: emailNew, Phone: phoneNew},
	}, Arrival{LeadFields: event.LeadFields{Email: emailA}})
	require.Equal(t, []string{phoneA, phoneNew}, s.Phones)
	require.Equal(t, []string{emailA, emailNew}, s.Emails)
	require.Equal(t, []string{phoneA, emailA}, []string{s.Phone, s.Email}, "the latest value")
}

func TestEvolve_DerivedName(t *testing.T) {
	t.Parallel()
	derived := fold(t, Arrival{LeadFields: event.LeadFields{Email: emailA}})
	require.Equal(t, []any{"asha", true}, []any{derived.Name, derived.NameDerived})

	known := fold(t, Arrival{LeadFields: event.LeadFields{Email: emailA}}, Arrival{
		LeadFields: event.LeadFields{Name: "Rao"},
	})
	require.Equal(t, []any{"Rao", false}, []any{known.Name, known.NameDerived})

	later := fold(t, Arrival{
		LeadFields: event.LeadFields{Email: emailA},
	}, Arrival{LeadFields: event.LeadFields{Name: "Rao"}}, Arrival{LeadFields: event.LeadFields{Email: emailNew}})
	require.Equal(t, []any{"Rao", false}, []any{later.Name, later.NameDerived})
}

func TestEvolve_SourceHistory(t *testing.T) {
	t.Parallel()
	s := fold(t,
		Arrival{Source: "google_ad", IP: "198.51.100.1", UserAgent: "one", Metadata: raw("gclid", `"g"`)},
		Arrival{
			Source: "website", LeadFields: event.LeadFields{Name: "Asha"}, IP: "198.51.100.2", UserAgent: "two",
			Metadata: raw("utm", `"x"`),
		},
		Arrival{Source: "google_ad", IP: "198.51.100.3", Metadata: raw("gclid", `"h"`)},
		Arrival{Source: "website"},
		Arrival{Source: "api"},
	)
	require.Equal(t, "google_ad", s.Source)
	hour := func(n int) time.Time { return someDay.Add(time.Duration(n) * time.Hour) }
	entry := func(source string, first, last, arrivals int) SourceEntry {
		return SourceEntry{
			Source: source, FirstSeenAt: hour(first), LastSeenAt: hour(last), Arrivals: arrivals,
			Credential: "token:01K", RequestID: "req-1",
		}
	}
	ad, site, api := entry("google_ad", 0, 2, 2), entry("website", 1, 3, 2), entry("api", 4, 4, 1)
	ad.IP, ad.UserAgent, ad.Metadata, ad.Changed = "198.51.100.1", "one", raw("gclid", `"g"`),
		[]string{"phone", "metadata"}
	site.IP, site.UserAgent, site.Metadata, site.Changed = "198.51.100.2", "two", raw("utm", `"x"`),
		[]string{"name", "metadata"}
	require.Equal(t, []SourceEntry{ad, site, api}, s.Sources,
		"an entry has the data of its first arrival, except the count and the last time")
	require.True(t, s.HasSource("api"))
	require.False(t, s.HasSource("chatbot"))
}

func TestEvolve_SharesNoMemory(t *testing.T) {
	t.Parallel()
	with := func(s State, phone string) State {
		return Evolve(s, leadFact(idNew, someDay, event.LeadMerged{
			Source: "website", LeadFields: event.LeadFields{Phone: phone, Email: phone + "@example.com"},
			VisitorID: phone,
		}))
	}
	s := fold(t, Arrival{LeadFields: event.LeadFields{Phone: "1"}})
	for _, phone := range []string{"2", "3", "4", "5", "6", "7", "8"} {
		one := with(s, phone)
		kept := []any{one.Phones[len(s.Phones)], one.Emails[len(s.Emails)], one.VisitorIDs[len(s.VisitorIDs)]}
		with(s, "another")
		require.Equal(t, kept,
			[]any{one.Phones[len(s.Phones)], one.Emails[len(s.Emails)], one.VisitorIDs[len(s.VisitorIDs)]}, phone)
		s = one
	}
}
