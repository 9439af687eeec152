package lead

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/eventstore/event"
)

var (
	someRules  = Rules{Region: "IN", Stages: []string{"new", "In Talks", "won"}}
	someClient = Client{IP: "203.0.113.9", UserAgent: "curl/8"}
)

// parse parses a body, which must be a JSON object.
func parse(t *testing.T, body string) (Arrival, error) {
	t.Helper()
	members, err := Members(jsontext.Value(body))
	require.NoError(t, err, "invalid test body: %s", body)
	return ParseArrival(members, someRules, someClient)
}

func accepted(t *testing.T, body string) Arrival {
	t.Helper()
	a, err := parse(t, body)
	require.NoError(t, err, body)
	return a
}

// refused returns the names of the fields that are invalid in a body.
func refused(t *testing.T, body string) []string {
	t.Helper()
	_, err := parse(t, body)
	require.Error(t, err, body)
	return fieldNames(t, err)
}

func fieldNames(t *testing.T, err error) []string {
	t.Helper()
	var wrong field.Errors
	require.ErrorAs(t, err, &wrong)
	names := make([]string, len(wrong))
	for i, one := range wrong {
		names[i] = one.Field
		require.NotEmpty(t, one.Message)
	}
	return names
}

// withPhone returns a body with a valid phone and one more member.
func withPhone(member string) string { return `{"phone":"9876543210",` + member + `}` }

func values(of map[string]jsontext.Value) map[string]string {
	out := make(map[string]string, len(of))
	for key, value := range of {
		out[key] = string(value)
	}
	return out
}

func str(n int) string { return strings.Repeat("x", n) }

func TestParseArrival_Full(t *testing.T) {
	t.Parallel()
	a := accepted(t, `{
		"name": " Asha\tRao ", "phone": "98765 43210", "email": " Asha@Example.COM ", "status": "WON", "leadTemperature": "Hot",
		"opportunityValue": "₹1,20,000.50", "visitorId": "v-1", "customFields": {"city": "Pune"}, "budget": 5,
		"metadata": {"source": "website", "ip": "198.51.100.7", "userAgent": "Mozilla/5.0", "utm_campaign": "diwali"}
	}`)
	require.Equal(t, Arrival{
		LeadFields: event.LeadFields{
			Name: "Asha Rao", Phone: "+919876543210", Email: "asha@example.com", Status: "won",
			Temperature: "hot", OpportunityValue: "120000.5",
			CustomFields: map[string]jsontext.Value{"city": jsontext.Value(`"Pune"`), "budget": jsontext.Value(`5`)},
		}, Source: "website", IP: "198.51.100.7", UserAgent: "Mozilla/5.0", VisitorID: "v-1",
		Metadata: map[string]jsontext.Value{
			"source": jsontext.Value(`"website"`), "ip": jsontext.Value(`"198.51.100.7"`),
			"userAgent": jsontext.Value(`"Mozilla/5.0"`), "utm_campaign": jsontext.Value(`"diwali"`),
		},
	}, a)
}

func TestParseArrival_Minimal(t *testing.T) {
	t.Parallel()
	a := accepted(t, `{"phone":"9876543210"}`)
	require.Empty(t, a.CustomFields)
	a.CustomFields = nil
	require.Equal(t, Arrival{
		LeadFields: event.LeadFields{Phone: "+919876543210"}, Source: "api", IP: "203.0.113.9", UserAgent: "curl/8",
	}, a)
}

func TestParseArrival_NameAliases(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, members, want string }{
		{"name first", `"full_name":"5","fullName":"4","contact_name":"3","contactName":"2","name":"1"`, "1"},
		{"contactName second", `"full_name":"5","fullName":"4","contact_name":"3","contactName":"2"`, "2"},
		{"contact_name third", `"full_name":"5","fullName":"4","contact_name":"3"`, "3"},
		{"fullName fourth", `"full_name":"5","fullName":"4"`, "4"},
		{"full_name last", `"full_name":"5"`, "5"},
		{"an empty one is not present", `"name":"","contactName":"2"`, "2"},
		{"a blank one is not present", `"name":" \t\u00a0","contactName":"2"`, "2"},
		{"null is not present", `"name":null,"contactName":"2"`, "2"},
		{"an empty object is not present", `"name":{},"contactName":[],"full_name":"5"`, "5"},
		{"letter case counts", `"Name":"1","full_name":"5"`, "5"},
		{"a placeholder is not present", `"name":"undefined","contactName":"{{name}}","contact_name":"3"`, "3"},
		{"only placeholders", `"name":"null null","contactName":"\u200b"`, ""},
		{"none", `"city":"Pune"`, ""},
	} {
		require.Equal(t, c.want, accepted(t, withPhone(c.members)).Name, c.name)
	}
	require.Equal(t, []string{"name"}, refused(t, withPhone(`"name":7,"contactName":"2"`)),
		"a value of the wrong type counts as present")
}

func TestParseArrival_Visitor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, members, want string }{
		{"visitorId", `"visitorId":" V 1 "`, " V 1 "},
		{"visitor_id", `"visitor_id":"v"`, "v"},
		{"visitorId before visitor_id", `"visitor_id":"b","visitorId":"a"`, "a"},
		{"blank is absent", `"visitorId":"  ","visitor_id":"b"`, "b"},
		{"200 characters", `"visitorId":"` + strings.Repeat("é", 200) + `"`, strings.Repeat("é", 200)},
		{"none", `"x":1`, ""},
	} {
		require.Equal(t, c.want, accepted(t, withPhone(c.members)).VisitorID, c.name)
	}
	require.Equal(t, []string{"visitorId"}, refused(t, withPhone(`"visitorId":"`+str(201)+`"`)))
	require.Equal(t, []string{"visitor_id"}, refused(t, withPhone(`"visitor_id":7`)),
		"the error has the name that was used")
	require.Equal(t, []string{"phone"}, refused(t, `{"visitorId":"v"}`), "a visitor id is not a contact")
}

func TestParseArrival_NeedsContact(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"nothing at all": `{}`, "another field": `{"name":"Asha"}`, "nulls": `{"phone":null,"email":null}`,
		"empty": `{"phone":"","email":""}`, "invisible": `{"phone":"\u200b\ufeff","email":"\u3164 "}`,
		"blank": `{"phone":" ","email":"\t"}`, "empty containers": `{"phone":{},"email":[]}`,
		"in other case":        `{"Phone":"9876543210","EMAIL":"a@example.com"}`,
		"inside custom fields": `{"customFields":{"phone":"9876543210"}}`,
	} {
		require.Equal(t, []string{"phone"}, refused(t, body), name)
	}
	require.Equal(t, "asha@example.com", accepted(t, `{"email":"asha@example.com","phone":null}`).Email)
	require.Equal(t, "+919876543210", accepted(t, `{"phone":"9876543210","email":""}`).Phone)
}

func TestParseArrival_OneBadContact(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"phone"}, refused(t, `{"phone":"12","email":"asha@example.com"}`))
	require.Equal(t, []string{"email"}, refused(t, `{"phone":"9876543210","email":"asha"}`))
	require.Equal(t, []string{"phone", "email"}, refused(t, `{"phone":"12","email":"asha"}`))
}

func TestParseArrival_WrongTypes(t *testing.T) {
	t.Parallel()
	require.ElementsMatch(t,
		[]string{
			"name", "phone", "email", "status", "leadTemperature", "opportunityValue", "metadata",
			"customFields", "industryData", "fields", "visitorId",
		},
		refused(t,
			`{"name":1,"phone":true,"email":2,"status":3,"leadTemperature":4,"opportunityValue":true,"metadata":"m",
			"customFields":5,"industryData":"i","fields":[1],"visitorId":6}`))
	for _, key := range []string{
		"name", "email", "status", "leadTemperature", "visitorId", "contactName", "visitor_id",
	} {
		for _, given := range []string{`1`, `0`, `true`, `false`, `["a"]`, `{"a":1}`} {
			require.Equal(t, []string{key}, refused(t, withPhone(strconv.Quote(key)+`:`+given)), "%s %s", key, given)
		}
	}
	for _, given := range []string{`true`, `false`, `["9876543210"]`, `{"a":1}`} {
		require.Equal(t, []string{"phone"}, refused(t, `{"phone":`+given+`}`), given)
	}
	for _, key := range []string{"metadata", "customFields", "industryData", "fields"} {
		for _, given := range []string{`1`, `true`, `"a"`, `["a"]`} {
			require.Equal(t, []string{key}, refused(t, withPhone(strconv.Quote(key)+`:`+given)), "%s %s", key, given)
		}
	}
}

func TestParseArrival_CollectsErrors(t *testing.T) {
	t.Parallel()
	require.ElementsMatch(t,
		[]string{
			"name", "phone", "email", "status", "leadTemperature", "opportunityValue", "visitorId",
			"metadata.userAgent", "customFields.long", "budget",
		},
		refused(t, `{"name":"`+str(201)+`","phone":"12","email":"asha","status":"Parked","leadTemperature":"boiling",
			"opportunityValue":"10k","visitorId":"`+str(201)+`","metadata":{"userAgent":1},
			"customFields":{"long":"`+str(2001)+`"},"budget":"`+str(2001)+`"}`))
}

func TestParseArrival_MessagesHideInput(t *testing.T) {
	t.Parallel()
	_, err := parse(t,
		`{"name":"`+strings.Repeat("secretname", 30)+
			`","phone":"secretphone","email":"secretmail","status":"secretstage",
		"leadTemperature":"secrettemp","opportunityValue":"secretsum","city":"`+strings.Repeat("secretcity", 300)+`"}`)
	require.Error(t, err)
	require.NotContains(t, err.Error(), "secret")
}

func TestParseArrival_Null(t *testing.T) {
	t.Parallel()
	minimal := accepted(t, `{"phone":"9876543210"}`)
	require.Equal(t, minimal,
		accepted(t, `{"phone":"9876543210","name":null,"contactName":null,"email":null,"status":null,
		"leadTemperature":null,"opportunityValue":null,"metadata":null,"customFields":null,"industryData":null,"fields":null,
		"visitorId":null,"visitor_id":null,"city":null}`))
	a := accepted(t,
		withPhone(`"metadata":{"source":null,"ip":null,"userAgent":null,"utm":null,"a":1},"customFields":{"x":null}`))
	require.Equal(t, map[string]string{"a": "1"}, values(a.Metadata))
	require.Empty(t, a.CustomFields)
	require.Equal(t, []string{"api", "203.0.113.9", "curl/8"}, []string{a.Source, a.IP, a.UserAgent})
}

func TestParseArrival_LeavesBody(t *testing.T) {
	t.Parallel()
	body, err := Members(
		jsontext.Value(`{"phone":"9876543210","metadata":{"a":null,"source":"website"},"customFields":{"x":null,` +
			`"y":1},"z":2}`),
	)
	require.NoError(t, err)
	before := values(body)
	_, err = ParseArrival(body, someRules, someClient)
	require.NoError(t, err)
	require.Equal(t, before, values(body))
	require.Equal(t, []string{"customFields", "metadata", "phone", "z"}, slices.Sorted(maps.Keys(body)))
}

func FuzzParseArrival(f *testing.F) {
	for _, seed := range []string{
		`{"phone":"9876543210"}`,
		`{"phone":9876543210,"opportunityValue":"₹1,20,000","status":"WON","metadata":{"source":"website"}}`,
		`{"email":"a@b.c","customFields":{"a":[1,2]},"x":" "}`, `{"phone":{},"metadata":[],"fields":{"":1}}`,
		`{"name":"\ud83d\ude00","visitor_id":""}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		body, err := Members(jsontext.Value(raw))
		if err != nil {
			return
		}
		a, err := ParseArrival(body, someRules, someClient)
		if err != nil {
			require.NotEmpty(t, fieldNames(t, err))
			return
		}
		require.True(t, a.Phone != "" || a.Email != "")
		require.True(t, Canonical(a.Source), a.Source)
		require.LessOrEqual(t, Length(a.Name), MaxName)
		require.LessOrEqual(t, Length(a.VisitorID), MaxVisitorID)
		require.LessOrEqual(t, len(a.CustomFields), MaxCustomFields)
		require.LessOrEqual(t, len(a.Metadata), MaxMetadataKeys)
		for key, value := range a.CustomFields {
			require.False(t, Blank(key) || empty(value), "%q", key)
			require.LessOrEqual(t, Length(key), MaxCustomKey)
		}
		require.True(t, a.Status == "" || slices.Contains(someRules.Stages, a.Status))
		requireRoundTrip(t, a)
	})
}
