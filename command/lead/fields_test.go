package lead

import (
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/contact"
	"github.com/leadlog/leadlog/eventstore/event"
)

func TestParseArrival_PhoneAsInteger(t *testing.T) {
	t.Parallel()
	require.Equal(t, "+919876543210", accepted(t, `{"phone":9876543210}`).Phone)
	require.Equal(t, "+919876543210", accepted(t, `{"phone":919876543210}`).Phone)
	for _, literal := range []string{"9876543210.0", "9.87654321e9", "9876543210e0", "-9876543210", "0", "12", "1.5"} {
		require.Equal(t, []string{"phone"}, refused(t, `{"phone":`+literal+`}`), literal)
	}
}

func TestParseArrival_PhoneRegion(t *testing.T) {
	t.Parallel()
	body := map[string]jsontext.Value{"phone": jsontext.Value(`"030 901820"`)}
	a, err := ParseArrival(body, Rules{Region: "DE", Stages: []string{"new"}}, Client{})
	require.NoError(t, err)
	require.Equal(t, "+4930901820", a.Phone)
}

func TestParseArrival_PhoneCountry(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, members, want string }{
		{"ISO code", `"phone":"0151 23456789","countryCode":"DE"`, "+4915123456789"},
		{"calling code, a number", `"phone":"0151 23456789","country_code":49`, "+4915123456789"},
		{"name", `"phone":"0151 23456789","Country":"Germany"`, "+4915123456789"},
		{"in customFields", `"phone":"0151 23456789","customFields":{"Phone Country":"+49"}`, "+4915123456789"},
		{"an integer", `"phone":15123456789,"dial_code":"+49"`, "+4915123456789"},
		{"the phone's comes first", `"phone":"0151 23456789","country":"India","phoneCountry":"DE"`, "+4915123456789"},
		{
			"the next if one names none", `"phone":"0151 23456789","countryCode":"?","country":"Germany"`,
			"+4915123456789",
		},
		{"an Indian mobile", `"phone":"98765 43210","country":"Germany"`, "+919876543210"},
		{"E.164", `"phone":"+4915123456789","country":"India"`, "+4915123456789"},
	} {
		require.Equal(t, c.want, accepted(t, `{`+c.members+`}`).Phone, c.name)
	}
	require.Equal(t, []string{"phone"}, refused(t, `{"phone":"0151 23456789","metadata":{"country":"DE"}}`),
		"metadata are about the visit")
	for range 20 {
		a := accepted(t, `{"phone":"0151 23456789","countryCode":"DE","country_code":"AT"}`)
		require.Equal(t, "+4915123456789", a.Phone, "of equal names the first in order counts")
	}
	members := map[string]jsontext.Value{"phone": jsontext.Value(`"98765 43210"`), "country": jsontext.Value(`"DE"`)}
	rules := someRules
	rules.From = contact.File
	a, err := ParseArrival(members, rules, Client{})
	require.NoError(t, err)
	require.Equal(t, "+499876543210", a.Phone, "in a file the column decides")
}

func TestParseArrival_OpportunityValue(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		`120000`: "120000", `1200.50`: "1200.5", `1.2e3`: "1200", `0`: "0", `-0`: "0", `"0"`: "0", `0.0001`: "0.0001",
		`"$1,200.50"`: "1200.5", `"₹1,20,000.50"`: "120000.5", `"EUR 1.234,56"`: "1234.56", `"1 234,56"`: "1234.56",
		`"1'234"`: "1234", `"1,234"`: "1234", `"1.234"`: "1.234", `" 500 "`: "500",
		`999999999999999`: "999999999999999", `""`: "", `"  "`: "", `null`: "", `{}`: "", `[]`: "",
	} {
		require.Equal(t, want, accepted(t, withPhone(`"opportunityValue":`+given)).OpportunityValue, given)
	}
	for _, given := range []string{
		`"NaN"`, `"1e5"`, `"0x10"`, `"10k"`, `"5 lakh"`, `"(500)"`, `"1,2,3"`, `"-5"`, `-5`, `1e10000000`,
		`1e-10000000`, `0.00001`, `1000000000000000`, `true`, `false`, `{"amount":5}`, `[5]`, `"many"`,
	} {
		require.Equal(t, []string{"opportunityValue"}, refused(t, withPhone(`"opportunityValue":`+given)), given)
	}
}

func TestParseArrival_Temperature(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		`"hot"`: "hot", `"WARM"`: "warm", `"Cold"`: "cold", `" hot\n"`: "hot", `""`: "", `null`: "", `" "`: "",
	} {
		require.Equal(t, want, accepted(t, withPhone(`"leadTemperature":`+given)).Temperature, given)
	}
	for _, given := range []string{`"boiling"`, `"hott"`, `1`, `true`, `["hot"]`, `{"a":1}`} {
		require.Equal(t, []string{"leadTemperature"}, refused(t, withPhone(`"leadTemperature":`+given)), given)
	}
}

func TestParseArrival_Status(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		`"new"`: "new", `"NEW"`: "new", `"in talks"`: "In Talks", `" won "`: "won", `""`: "", `null`: "", `"\t"`: "",
	} {
		a := accepted(t, withPhone(`"status":`+given))
		require.Equal(t, want, a.Status, given)
		require.Empty(t, a.UnknownStatus, given)
	}
	for _, given := range []string{`1`, `false`, `["new"]`, `{"a":1}`} {
		require.Equal(t, []string{"status"}, refused(t, withPhone(`"status":`+given)), given)
	}
}

func TestParseArrival_UnknownStatus(t *testing.T) {
	t.Parallel()
	a := accepted(t, withPhone(`"status":" Parked "`))
	require.Empty(t, a.Status)
	require.Equal(t, "Parked", a.UnknownStatus)
	require.ElementsMatch(t, []string{"status", "email"}, refused(t, withPhone(`"status":"Parked","email":"bad"`)),
		"both errors are reported together")
}

func TestParseArrival_Name(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		`"  Asha\u0001Rao\n"`:                      "Asha Rao",
		`"<b>Asha</b> & co"`:                       "<b>Asha</b> & co",
		`"` + strings.Repeat("é", 200) + `"`:       strings.Repeat("é", 200),
		`" ` + str(200) + ` "`:                     str(200),
		`"` + strings.Repeat(`e\u0301`, 200) + `"`: strings.Repeat("e\u0301", 200),
	} {
		require.Equal(t, want, accepted(t, withPhone(`"name":`+given)).Name, given)
	}
	require.Equal(t, []string{"name"}, refused(t, withPhone(`"name":"`+str(201)+`"`)))
	require.Equal(t, []string{"full_name"}, refused(t, withPhone(`"full_name":"`+str(201)+`"`)),
		"the error has the name that was used")
}

// named returns fields that each have their own name as their text. OpportunityID is empty, because the service sets
// it.
func named() (fields event.LeadFields) {
	value := reflect.ValueOf(&fields).Elem()
	for i := range value.NumField() {
		if field := value.Type().Field(i); field.Type.Kind() == reflect.String && field.Name != "OpportunityID" {
			value.Field(i).SetString(strings.TrimSuffix(field.Tag.Get("json"), ",omitzero"))
		}
	}
	return fields
}

// Parsing and folding skip a text field that is missing from the list.
func TestFields_ListEveryText(t *testing.T) {
	t.Parallel()
	var listed []string
	for name, text := range EachField(named()) {
		require.Equal(t, name, text, "the entry is about another field")
		listed = append(listed, name)
	}
	require.Len(t, listed, reflect.TypeFor[event.LeadFields]().NumField()-2, "all but OpportunityID and CustomFields")
	require.Equal(t, FieldNames(), listed)
}

func TestRecord_ShowsEveryField(t *testing.T) {
	t.Parallel()
	lead := State{LeadFields: named()}
	lead.OpportunityValue = `"opportunityValue"` // numbers are JSON
	encoded, err := json.Marshal(lead.Record())
	require.NoError(t, err)
	var shown map[string]any
	require.NoError(t, json.Unmarshal(encoded, &shown))
	for _, name := range FieldNames() {
		require.Equal(t, name, shown[name], "%s of the record", name)
	}
}
