package lead

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/eventstore/event"
)

func TestUpdate_Outcome(t *testing.T) {
	t.Parallel()
	existing := *leadA("website")
	existing.CustomFields = raw("city", `"Pune"`, "size", `"XL"`)
	open := existing
	open.OpportunityID, open.OpportunityValue = "opp", "5"
	parked, derived := existing, existing
	parked.Status, derived.NameDerived = "Park\u00e9", true
	for name, c := range map[string]struct {
		lead   State
		body   map[string]jsontext.Value
		want   event.LeadUpdated
		change func(*State) // expected change
	}{
		"name": {
			existing, raw("name", `" Asha Rao "`, "status", `""`),
			event.LeadUpdated{LeadFields: event.LeadFields{Name: "Asha Rao"}, Changed: []string{"name"}},
			func(s *State) { s.Name = "Asha Rao" },
		},
		"the name that was derived": {
			derived, raw("name", `"Asha"`),
			event.LeadUpdated{LeadFields: event.LeadFields{Name: "Asha"}, Changed: []string{"name"}},
			func(s *State) { s.NameDerived = false },
		},
		"what the service sets is ignored": {
			existing, raw("status", `"WON"`, "leadId", `"B"`, "contactUID", `"B"`, "source", `"csv"`,
				"opportunityId", `"B"`, "createdAt", `"x"`, "updatedAt", `"x"`, "accountId", `"globex"`,
				"joined", `["B"]`, "joinedInto", `"B"`, "contacts", `{"phones":[]}`, "consents", `{"call":false}`, "phone", `""`, "email", `null`),
			event.LeadUpdated{LeadFields: event.LeadFields{Status: "won"}, Changed: []string{"status"}},
			func(s *State) { s.Status = "won" },
		},
		"the stage that the account removed": {
			parked, raw("status", "\"PARKE\u0301\""),
			event.LeadUpdated{LeadFields: event.LeadFields{Status: "Park\u00e9"}},
			func(*State) {},
		},
		"temperature": {
			existing, raw("leadTemperature", `"hot"`),
			event.LeadUpdated{LeadFields: event.LeadFields{Temperature: "hot"}, Changed: []string{"leadTemperature"}},
			func(s *State) { s.Temperature = "hot" },
		},
		"the first opportunity": {
			existing, raw("opportunityValue", `7`),
			event.LeadUpdated{
				LeadFields: event.LeadFields{OpportunityID: idOpportunity, OpportunityValue: "7"},
				Changed:    []string{"opportunityValue"},
			},
			func(s *State) { s.OpportunityID, s.OpportunityValue = idOpportunity, "7" },
		},
		"the opportunity's value": {
			open, raw("opportunityValue", `7`),
			event.LeadUpdated{
				LeadFields: event.LeadFields{OpportunityValue: "7"}, Changed: []string{"opportunityValue"},
			},
			func(s *State) { s.OpportunityValue = "7" },
		},
		"custom fields": {
			existing, raw("customFields", `{"city":"Goa","size":null,"none":null,"state":"MH"}`),
			event.LeadUpdated{
				LeadFields:    event.LeadFields{CustomFields: raw("city", `"Goa"`, "state", `"MH"`)},
				RemovedFields: []string{"size"}, Changed: []string{"customFields"},
			},
			func(s *State) { s.CustomFields = raw("city", `"Goa"`, "state", `"MH"`) },
		},
		"a removed custom field": {
			existing, raw("customFields", `{"size":null,"city":""}`),
			event.LeadUpdated{RemovedFields: []string{"size"}, Changed: []string{"customFields"}},
			func(s *State) { s.CustomFields = raw("city", `"Pune"`) },
		},
		"nothing":           {existing, raw(), event.LeadUpdated{}, func(*State) {}},
		"nothing but empty": {existing, raw("name", `" "`, "customFields", `{}`), event.LeadUpdated{}, func(*State) {}},
		"current values": {
			existing,
			raw("name", `"Asha"`, "status", `"new"`, "leadTemperature", `"warm"`, "customFields", `{"city":"Pune"}`),
			event.LeadUpdated{
				LeadFields: event.LeadFields{
					Name: "Asha", Status: "new", Temperature: "warm", CustomFields: raw("city", `"Pune"`),
				},
			},
			func(*State) {},
		},
	} {
		updated, err := c.lead.Update("acme", c.body, someRules, idOpportunity)
		require.NoError(t, err, name)
		require.Equal(t, c.want, updated, name)
		later := someDay.Add(100 * time.Hour)
		after, want := Evolve(c.lead, leadFact(idA, later, updated)), c.lead
		c.change(&want)
		want.Revision, want.UpdatedAt = c.lead.Revision+1, later
		require.Equal(t, want, after, name)
	}
}

func TestUpdate_Refused(t *testing.T) {
	t.Parallel()
	full := *leadA("website")
	full.CustomFields = raw()
	for i := range 50 {
		full.CustomFields["c"+strconv.Itoa(i)] = jsontext.Value("1")
	}
	long := `"` + strings.Repeat("α\u0313\u0300\u0345", 2000) + `"` // one character of eight bytes, 2000 times
	for name, c := range map[string]struct {
		body  map[string]jsontext.Value
		wrong []string
	}{
		"no body":               {nil, []string{"body"}},
		"an unknown field only": {raw("nmae", `"A"`), []string{"nmae"}},
		"no field that changes": {raw("leadId", `"B"`), []string{"body"}},
		"unknown fields": {
			raw("status", `"won"`, "opportunityvalue", `95000`, "city", `"Pune"`), []string{"city", "opportunityvalue"},
		},
		"what only captures have": {
			raw("status", `"won"`, "fullName", `"A"`, "contact_name", `"A"`, "industryData", `{}`, "fields", `{}`,
				"metadata", `{"source":"csv"}`, "visitorId", `"v"`),
			[]string{"contact_name", "fields", "fullName", "industryData", "metadata", "visitorId"},
		},
		"a contact": {
			raw("phone", `"9876543210"`, "email", `"a@example.com"`, "name", `"A"`), []string{"phone", "email"},
		},
		"a name and a stage":        {raw("name", `7`, "status", `"nope"`), []string{"name", "status"}},
		"no object":                 {raw("customFields", `[1]`), []string{"customFields"}},
		"one custom field too many": {raw("customFields", `{"one":1}`), []string{"customFields"}},
		"more than 700 KiB": {
			raw("customFields", "{"+strings.ReplaceAll(members("c", 50), ":1", ":"+long)+"}"), []string{"customFields"},
		},
		"a custom value of any size": {
			raw("customFields", `{"c0":"`+strings.Repeat("x", 2001)+`"}`), []string{"customFields.c0"},
		},
	} {
		_, err := full.Update("acme", c.body, someRules, idOpportunity)
		require.Equal(t, c.wrong, fieldNames(t, err), name)
	}
	_, err := full.Update("acme", raw("city", `"Pune"`), someRules, idOpportunity)
	require.Equal(t, field.Errors{{
		Field: "city", Message: "is not a known field; a custom field goes into customFields",
	}}, err)
	_, err = full.Update("acme", raw("customFields", `{"c0":null,"one":1}`), someRules, idOpportunity)
	require.NoError(t, err, "one field replaces another")
	_, err = full.Update("globex", raw("name", "7"), someRules, idOpportunity)
	require.ErrorIs(t, err, ErrNotFound)
}
