package lead

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore/event"
)

func opened(t *testing.T, a Arrival) event.LeadCreated {
	t.Helper()
	decision, err := Decide(a, someRules, nil, nil, someIDs)
	require.NoError(t, err)
	return decision.Fact.(event.LeadCreated)
}

func TestDecide_NewLead(t *testing.T) {
	t.Parallel()
	a := Arrival{
		LeadFields: event.LeadFields{
			Name: "Asha", Phone: phoneNew, Email: emailNew, Status: "won",
			Temperature: "hot", OpportunityValue: "0", CustomFields: raw("city", `"Pune"`),
		}, Source: "website",
		Metadata: raw("utm", `"x"`), IP: "198.51.100.7", UserAgent: "Mozilla/5.0", VisitorID: "v",
	}
	require.Equal(t, event.LeadCreated{
		ContactUID: idContact, LeadFields: event.LeadFields{
			Name: "Asha", Phone: phoneNew, Email: emailNew, Status: "won",
			Temperature: "hot", OpportunityID: idOpportunity, OpportunityValue: "0", CustomFields: a.CustomFields,
		}, Source: "website", Metadata: a.Metadata,
		IP: "198.51.100.7", UserAgent: "Mozilla/5.0", VisitorID: "v",
		Changed: []string{
			"name", "phone", "email", "status", "leadTemperature", "opportunityValue", "customFields", "metadata",
			"visitorId",
		},
	}, opened(t, a))
}

func TestDecide_Defaults(t *testing.T) {
	t.Parallel()
	got := opened(t, Arrival{LeadFields: event.LeadFields{Phone: phoneNew}, Source: "api"})
	require.Equal(t, event.LeadCreated{
		ContactUID:  idContact,
		LeadFields:  event.LeadFields{Name: phoneNew, Phone: phoneNew, Status: "new", Temperature: "warm"},
		NameDerived: true, Source: "api",
		Changed: []string{"phone"},
	}, got)
}

func TestDecide_DerivedName(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		arrival Arrival
		want    string
		derived bool
	}{
		{
			"a name",
			Arrival{LeadFields: event.LeadFields{Name: "Asha", Phone: phoneNew, Email: "asha.rao+crm@example.com"}},
			"Asha", false,
		},
		{
			"email and phone",
			Arrival{LeadFields: event.LeadFields{Phone: phoneNew, Email: "asha.rao+crm@example.com"}}, "asha.rao+crm",
			true,
		},
		{"email", Arrival{LeadFields: event.LeadFields{Email: "asha@example.com"}}, "asha", true},
		{"phone", Arrival{LeadFields: event.LeadFields{Phone: phoneNew}}, phoneNew, true},
	} {
		got := opened(t, c.arrival)
		require.Equal(t, c.want, got.Name, c.name)
		require.Equal(t, c.derived, got.NameDerived, c.name)
	}
}

func TestDecide_LimitsOfMergedLead(t *testing.T) {
	t.Parallel()
	many := func(prefix string, n int) map[string]jsontext.Value {
		out := map[string]jsontext.Value{}
		for i := range n {
			out[prefix+strconv.Itoa(i)] = jsontext.Value("1")
		}
		return out
	}
	full := *leadA("website")
	full.CustomFields, full.Metadata = many("c", 50), many("m", 64)
	full.Metadata["ip"] = jsontext.Value(`"198.51.100.7"`) // keys added by the service are not counted

	for _, c := range []struct {
		name    string
		arrival Arrival
		wrong   []string
	}{
		{"nothing more", Arrival{}, nil},
		{
			"new values of existing keys",
			Arrival{LeadFields: event.LeadFields{CustomFields: many("c", 50)}, Metadata: many("m", 64)}, nil,
		},
		{
			"one more custom field", Arrival{LeadFields: event.LeadFields{CustomFields: many("x", 1)}},
			[]string{"customFields"},
		},
		{"one more key of metadata", Arrival{Metadata: many("x", 1)}, []string{"metadata"}},
		{
			"keys that are stored as fields",
			Arrival{Metadata: raw("source", `"website"`, "ip", `"x"`, "userAgent", `"y"`)}, nil,
		},
		{
			"several errors",
			Arrival{
				LeadFields: event.LeadFields{CustomFields: many("x", 1)}, Metadata: many("x", 1),
				UnknownStatus: "Parked",
			}, []string{"status", "customFields", "metadata"},
		},
	} {
		c.arrival.Phone, c.arrival.Source = phoneA, "website"
		_, err := Decide(c.arrival, someRules, &full, nil, someIDs)
		if c.wrong == nil {
			require.NoError(t, err, c.name)
			continue
		}
		require.Equal(t, c.wrong, fieldNames(t, err), c.name)
	}

	big := *leadA("website")
	big.Metadata = raw("k", `"`+strings.Repeat("x", 20<<10)+`"`)
	_, err := Decide(Arrival{
		LeadFields: event.LeadFields{Phone: phoneA}, Source: "website",
		Metadata: raw("l", `"`+strings.Repeat("x", 20<<10)+`"`),
	}, someRules, &big, nil, someIDs)
	require.Equal(t, []string{"metadata"}, fieldNames(t, err), "32 KiB in all")
	_, err = Decide(Arrival{
		LeadFields: event.LeadFields{Phone: phoneA}, Source: "website",
		Metadata: raw("k", `"`+strings.Repeat("y", 20<<10)+`"`),
	}, someRules, &big, nil, someIDs)
	require.NoError(t, err, "the new value replaces the old")
}

func TestDecide_ChangedFields(t *testing.T) {
	t.Parallel()
	existing := *leadA("website")
	existing.CustomFields, existing.Metadata = raw("city", `"Pune"`), raw("utm", `"x"`)
	existing.OpportunityID, existing.OpportunityValue, existing.VisitorIDs = "opp", "5", []string{"v"}
	for _, c := range []struct {
		name    string
		arrival Arrival
		want    []string
	}{
		{"nothing given", Arrival{}, nil},
		{
			"the same values",
			Arrival{
				LeadFields: event.LeadFields{
					Name: "Asha", Email: emailA, Status: "new",
					Temperature: "warm", OpportunityValue: "5", CustomFields: raw("city", `"Pune"`),
				}, VisitorID: "v",
				Metadata: raw("utm", `"x"`, "source", `"website"`, "ip", `"198.51.100.8"`, "userAgent", `"other"`),
			},
			nil,
		},
		{"name", Arrival{LeadFields: event.LeadFields{Name: "Asha Rao"}}, []string{"name"}},
		{"email", Arrival{LeadFields: event.LeadFields{Email: emailNew}}, []string{"email"}},
		{"status", Arrival{LeadFields: event.LeadFields{Status: "won"}}, []string{"status"}},
		{"temperature", Arrival{LeadFields: event.LeadFields{Temperature: "hot"}}, []string{"leadTemperature"}},
		{"opportunity", Arrival{LeadFields: event.LeadFields{OpportunityValue: "6"}}, []string{"opportunityValue"}},
		{
			"another value of a custom field",
			Arrival{LeadFields: event.LeadFields{CustomFields: raw("city", `"Goa"`)}}, []string{"customFields"},
		},
		{
			"one more custom field", Arrival{LeadFields: event.LeadFields{CustomFields: raw("state", `"MH"`)}},
			[]string{"customFields"},
		},
		{"metadata", Arrival{Metadata: raw("utm", `"y"`)}, []string{"metadata"}},
		{"an empty value of metadata does not override", Arrival{Metadata: raw("utm", `""`)}, nil},
		{"another visitor", Arrival{VisitorID: "w"}, []string{"visitorId"}},
		{
			"everything",
			Arrival{
				LeadFields: event.LeadFields{
					Name: "R", Email: emailNew, Status: "won",
					Temperature: "hot", OpportunityValue: "6", CustomFields: raw("a", "1"),
				}, VisitorID: "w", Metadata: raw("a", "1"),
			},
			[]string{
				"name", "email", "status", "leadTemperature", "opportunityValue", "customFields", "metadata",
				"visitorId",
			},
		},
	} {
		c.arrival.Phone, c.arrival.Source = phoneA, "website"
		require.Equal(t, c.want, merge(t, existing, c.arrival).Changed, c.name)
	}
	require.Equal(t, []string{"phone"},
		merge(t, existing, Arrival{LeadFields: event.LeadFields{Phone: oldPhoneA}, Source: "website"}).Changed,
		"back to a former phone")

	derived := existing
	derived.NameDerived = true
	require.Equal(t, []string{"name"},
		merge(t, derived, Arrival{
			LeadFields: event.LeadFields{Name: "Asha", Phone: phoneA}, Source: "website",
		}).Changed,
		"a given name replaces a derived name")
}

func TestDecide_EmailOfOtherLead(t *testing.T) {
	t.Parallel()
	decision, err := Decide(Arrival{
		LeadFields: event.LeadFields{Phone: phoneA, Email: emailB, Name: "R"}, Source: "website",
	}, someRules, leadA("website"), leadB("api"), someIDs)
	require.NoError(t, err)
	merged := decision.Fact.(event.LeadMerged)
	require.Equal(t, idB, merged.EmailHeldBy)
	require.Equal(t, []string{"name"}, merged.Changed)
	after := Evolve(*leadA("website"), leadFact(idA, someDay.Add(9*time.Hour), merged))
	require.Equal(t, emailA, after.Email)
	require.NotContains(t, after.Emails, emailB)
}

func TestDecide_Opportunity(t *testing.T) {
	t.Parallel()
	s := *leadA("website")
	step := func(value string) event.LeadMerged {
		merged := merge(t, s, Arrival{
			LeadFields: event.LeadFields{Phone: phoneA, OpportunityValue: value}, Source: "website",
		})
		s = Evolve(s, leadFact(idA, s.UpdatedAt.Add(time.Hour), merged))
		return merged
	}
	step("")
	require.Empty(t, s.OpportunityID)
	require.Equal(t, idOpportunity, step("0").OpportunityID, "0 is a value")
	require.Equal(t, "0", s.OpportunityValue)
	require.Empty(t, step("7.5").OpportunityID, "the opportunity exists")
	require.Equal(t, []string{idOpportunity, "7.5"}, []string{s.OpportunityID, s.OpportunityValue})
	step("")
	require.Equal(t, []string{idOpportunity, "7.5"}, []string{s.OpportunityID, s.OpportunityValue})
}

// merge returns the fact of an arrival whose phone and email target owns.
func merge(t *testing.T, target State, a Arrival) event.LeadMerged {
	t.Helper()
	decision, err := Decide(a, someRules, &target, nil, someIDs)
	require.NoError(t, err)
	return decision.Fact.(event.LeadMerged)
}

func TestDecide_EmptyMetadata(t *testing.T) {
	t.Parallel()
	first := event.Fact{Stream: "lead-L", Data: event.LeadCreated{
		Source:   "website",
		Metadata: map[string]jsontext.Value{"utm": jsontext.Value(`"x"`), "note": jsontext.Value(`""`)},
	}}
	later := event.Fact{Stream: "lead-L", Data: event.LeadMerged{
		Source:   "website",
		Metadata: map[string]jsontext.Value{"utm": jsontext.Value(`""`), "term": jsontext.Value(`""`)},
	}}
	state := Evolve(Evolve(State{}, first), later)
	require.Equal(t, map[string]jsontext.Value{
		"utm": jsontext.Value(`"x"`), "note": jsontext.Value(`""`),
	}, state.Metadata)
}

// numbered returns n different values.
func numbered(prefix string, n int) (all []string) {
	for i := range n {
		all = append(all, prefix+strconv.Itoa(i))
	}
	return all
}

// A form that always sends the same email, or a new visitorId each time, would create a lead whose fold gets slower
// without bound and whose erasure does not fit into an event.
func TestDecide_ContactLimits(t *testing.T) {
	t.Parallel()
	full := *leadA("website")
	full.Phones = append(numbered("+9198765", MaxContacts-1), phoneA)
	full.Emails = append(numbered("a@", MaxContacts-1), emailA)
	full.VisitorIDs = numbered("v", MaxVisitors)
	for _, c := range []struct {
		name           string
		arrival        Arrival
		phone, email   *State
		wrong, visitor string
	}{
		{
			"existing contacts", Arrival{LeadFields: event.LeadFields{Phone: phoneA, Email: emailA}, VisitorID: "v7"},
			&full, &full, "", "v7",
		},
		{
			"one more phone", Arrival{LeadFields: event.LeadFields{Phone: phoneNew, Email: emailA}}, nil, &full,
			"phone", "",
		},
		{
			"one more email", Arrival{LeadFields: event.LeadFields{Phone: phoneA, Email: emailNew}}, &full, nil,
			"email", "",
		},
		{
			"an email of another lead", Arrival{LeadFields: event.LeadFields{Phone: phoneA, Email: emailB}}, &full,
			leadB("api"), "", "",
		},
		{
			"one more visitor", Arrival{LeadFields: event.LeadFields{Phone: phoneA}, VisitorID: "one more"}, &full, nil,
			"", "one more",
		},
	} {
		c.arrival.Source = "website"
		decision, err := Decide(c.arrival, someRules, c.phone, c.email, someIDs)
		if c.wrong != "" {
			require.Equal(t, []string{c.wrong}, fieldNames(t, err), c.name)
			continue
		}
		require.NoError(t, err, c.name)
		merged := decision.Fact.(event.LeadMerged)
		require.Equal(t, c.visitor, merged.VisitorID, c.name)
		require.NotContains(t, merged.Changed, "visitorId", c.name)
		after := Fold(full, event.Fact{Data: merged})
		require.Equal(t, full.VisitorIDs, after.VisitorIDs, c.name)
	}
}
