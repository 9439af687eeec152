package leadfile_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/command/leadfile"
)

var rules = lead.Rules{Region: "IN", Stages: []string{"new", "won"}}

var now = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// record reads one row, cells separated by bars.
func record(t *testing.T, header, row string, rules lead.Rules, options leadfile.Options) leadfile.Record {
	t.Helper()
	columns, err := leadfile.MapColumns(strings.Split(header, ","), options)
	require.NoError(t, err)
	cells := strings.Split(row, "|")
	survey := columns.NewSurvey(rules)
	survey.Add(cells)
	survey.Settle(now)
	read, err := columns.Record(cells, rules)
	require.NoError(t, err)
	return read
}

// bodyOf returns the body of a row as JSON, its members in order.
func bodyOf(t *testing.T, r leadfile.Record) string {
	t.Helper()
	body, err := json.Marshal(r.Body, json.Deterministic(true))
	require.NoError(t, err, "unique keys and valid UTF-8")
	return string(body)
}

// warned returns the codes of warnings with their columns.
func warned(r leadfile.Record) (codes []string) {
	for _, w := range r.Warnings {
		codes = append(codes, w.Field+" "+w.Code)
	}
	return codes
}

func TestColumns_Exports(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		header, row, body string
		warnings          []string
	}{
		"our export": {
			"leadId,name,phone,email,status,leadTemperature,opportunityValue,source,createdAt,customFields",
			"01X|Asha|'+919876543210|a@example.com|won|hot|12.50|website|2026-01-02T03:04:05.000Z|{\"city\":\"Pune\",\"n\":1}",
			`{"customFields":{"city":"Pune","n":1},"email":"a@example.com","leadTemperature":"hot",` +
				`"metadata":{"source":"website"},` +
				`"name":"Asha","opportunityValue":"12.50","phone":"+919876543210","status":"won"}`, nil,
		},
		"a CRM's": {
			"First Name,Last Name,Mobile Phone,E-mail,Lead Source,Rating,Amount,UTM Campaign,gclid,IP Address,Company",
			"Asha| Rao |98765 43210|A@example.com|Expo|Hot|₹1,20,000|diwali|x|203.0.113.7|Acme",
			`{"customFields":{"Company":"Acme"},"email":"a@example.com","leadTemperature":"hot",` +
				`"metadata":{"gclid":"x","ip":"203.0.113.7","source":"Expo","utm_campaign":"diwali"},` +
				`"name":"Asha Rao","opportunityValue":"₹1,20,000","phone":"+919876543210"}`, nil,
		},
		"Meta lead ads": {
			"id,created_time,ad_id,campaign_id,campaign_name,form_id,is_organic,platform,full_name,phone_number,work_email,city,inbox_url,lead_status",
			"l:91|2026-09-12T15:05:13+05:30|ag:12|c:34|Monsoon|f:56|false|ig|Asha " +
				"Rao|p:+919876500001|asha@example.com|Pune||complete",
			`{"customFields":{"city":"Pune","lead_status":"complete"},"email":"asha@example.com",` +
				`"metadata":{"ad_id":"12","campaign_id":"34",` +
				`"campaign_name":"Monsoon","form_id":"56","is_organic":"false","platform":"ig"},"name":"Asha Rao",` +
				`"phone":"+919876500001"}`, nil,
		},
		"Meta leads center": {
			"Created,Name,Email address,Source,Form,Stage,Owner,Phone number (recommended),Secondary phone number",
			"08/10/2026, 21:35|Asha Rao|asha@example.com|Paid|Form A, Oct|Intake|Unassigned||+919876588011",
			`{"customFields":{"Owner":"Unassigned","Stage":"Intake"},"email":"asha@example.com",` +
				`"metadata":{"form_name":"Form A, Oct","source":"Paid"},"name":"Asha Rao","phone":"+919876588011"}`,
			[]string{"Stage STATUS_UNKNOWN"},
		},
		"Google Contacts": {
			"First Name,Last Name,E-mail 1 - Value,Phone 1 - Value,Phone 2 - Value",
			"Asha|Rao|asha@example.com ::: rao@example.com|98765 10002 ::: 98765 10003|98765 10002",
			`{"customFields":{"E-mail 1 - Value":"rao@example.com","Phone 1 - Value":"98765 10003"},` +
				`"email":"asha@example.com","name":"Asha Rao",` +
				`"phone":"+919876510002"}`, nil,
		},
		"Salesforce": {
			"First Name,Company,Phone,Mobile Phone,Email,Lead Status",
			"Asha|Acme|022 2345 6000|98765 88041|asha@example.com|-None-",
			`{"customFields":{"Company":"Acme","Phone":"022 2345 6000"},"email":"asha@example.com","name":"Asha",` +
				`"phone":"+919876588041"}`, nil,
		},
		"Google lead form": {
			"Lead ID,Full name,User email,Google Click ID", "abc|Asha|asha@example.com|Cj0",
			`{"email":"asha@example.com","metadata":{"gclid":"Cj0"},"name":"Asha"}`, nil,
		},
	} {
		read := record(t, c.header, c.row, rules, leadfile.Options{})
		require.Equal(t, c.body, bodyOf(t, read), name)
		require.Equal(t, c.warnings, warned(read), name)
	}
}

func TestColumns_DatesAndIDs(t *testing.T) {
	t.Parallel()
	meta := record(t, "id,created_time,form_id,phone", "l:91|2026-09-12T15:05:13+05:30|f:1|9876543210",
		rules, leadfile.Options{})
	require.Equal(t, "91", meta.DeliveryID)
	require.Equal(t, time.Date(2026, 9, 12, 9, 35, 13, 0, time.UTC), meta.ReceivedAt)
	google := record(t, "Lead ID,GCLID,Email", "abc|x|asha@example.com", rules, leadfile.Options{})
	require.Equal(t, "abc", google.DeliveryID)
	other := record(t, "Lead ID,id,Email,Joined", "abc|7|asha@example.com|5 Jan 2026", rules,
		leadfile.Options{At: "Joined"})
	require.Empty(t, other.DeliveryID)
	require.Equal(t, time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC), other.ReceivedAt)
	require.Equal(t, `{"customFields":{"Lead ID":"abc","id":"7"},"email":"asha@example.com"}`, bodyOf(t, other))
}

// A spreadsheet has rounded the ids of many leads to one.
func TestColumns_RoundedID(t *testing.T) {
	t.Parallel()
	for header, id := range map[string]string{
		"id,form_id,phone": "8.27641E+14", "Lead ID,GCLID,phone": "8,27641E+14",
	} {
		name, _, _ := strings.Cut(header, ",")
		read := record(t, header, id+"|5|9876543210", rules, leadfile.Options{})
		require.Empty(t, read.DeliveryID)
		require.Equal(t, []string{name + " VALUE_UNREADABLE"}, warned(read))
		require.Contains(t, bodyOf(t, read), id)
	}
}

func TestColumns_ContactOfOneCell(t *testing.T) {
	t.Parallel()
	german := lead.Rules{Region: "DE", Stages: rules.Stages}
	for name, c := range map[string]struct {
		header, row string
		rules       lead.Rules
		body        string
		warnings    []string
	}{
		"an empty cell of the first": {"Mobile,Phone", "9876543210| ", rules, `{"phone":"+919876543210"}`, nil},
		"a number with decimals":     {"Mobile", "9876543210.00", rules, `{"phone":"+919876543210"}`, nil},
		"a placeholder of the first": {"Mobile,Phone", "N/A|9876543210", rules, `{"phone":"+919876543210"}`, nil},
		"one that cannot be used": {
			"Mobile,Phone", "call me|9876543210", rules,
			`{"customFields":{"Mobile":"call me"},"phone":"+919876543210"}`, []string{"Mobile VALUE_UNREADABLE"},
		},
		"one beside an email": {
			"Phone,Email", "12|asha@example.com", rules, `{"customFields":{"Phone":"12"},"email":"asha@example.com"}`,
			[]string{"Phone VALUE_UNREADABLE"},
		},
		"one that nobody has": {
			"Phone,Email", "0000000000|asha@example.com", rules, `{"email":"asha@example.com"}`,
			[]string{"Phone PLACEHOLDER_CONTACT"},
		},
		"an email that nobody has": {
			"Phone,Email", "9876543210|test@fb.com", rules, `{"phone":"+919876543210"}`,
			[]string{"Email PLACEHOLDER_CONTACT"},
		},
		"none that can be used": {"Phone,Email", "12|nope", rules, `{"email":"nope","phone":"12"}`, nil},
		"none":                  {"Phone,Email", "-|", rules, `{}`, nil},
		"several": {
			"Email", "binu@example.com, b.nair@example.org;binu@example.com", rules,
			`{"customFields":{"Email":"b.nair@example.org"},"email":"binu@example.com"}`, nil,
		},
		"several, one of them a word": {
			"Phone", "9876543210 / home", rules, `{"customFields":{"Phone":"home"},"phone":"+919876543210"}`,
			[]string{"Phone VALUE_UNREADABLE"},
		},
		"lines": {
			"Phone", "9876543210\n9876543211", rules, `{"customFields":{"Phone":"9876543211"},"phone":"+919876543210"}`,
			nil,
		},
		"a guard": {
			"Phone,Note", `="9876560021"|'=1+1`, rules, `{"customFields":{"Note":"=1+1"},"phone":"+919876560021"}`, nil,
		},
		"a text":    {"Phone", `'9876560021`, rules, `{"phone":"+919876560021"}`, nil},
		"a decimal": {"Phone", `9876560021.0`, rules, `{"phone":"+919876560021"}`, nil},
		"a country's code": {
			"Phone,Country Code", "9876560021|+91", german,
			`{"customFields":{"Country Code":"+91"},"phone":"+919876560021"}`, nil,
		},
		"a country": {
			"Telefon,Land", "030 1234567|Deutschland", rules,
			`{"customFields":{"Land":"Deutschland"},"phone":"+49301234567"}`, nil,
		},
		"a doubled column": {
			"Email,Phone,Email", "a@example.com||b@example.com", rules,
			`{"customFields":{"Email (2)":"b@example.com"},"email":"a@example.com"}`, nil,
		},
	} {
		read := record(t, c.header, c.row, c.rules, leadfile.Options{})
		require.Equal(t, c.body, bodyOf(t, read), name)
		require.Equal(t, c.warnings, warned(read), name)
	}
}

// Nothing but a missing contact costs a row.
func TestColumns_ExtrasStay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		header, row, body string
		warnings          []string
	}{
		"values": {
			"Phone,Lead Status,Rating,Amount,Created", "9876543210|Open|Active|1.5 Cr|soon",
			`{"customFields":{"Amount":"1.5 Cr","Created":"soon","Lead Status":"Open","Rating":"Active"},` +
				`"phone":"+919876543210"}`,
			[]string{
				"Lead Status STATUS_UNKNOWN", "Rating TEMPERATURE_UNKNOWN", "Amount VALUE_UNREADABLE",
				"Created VALUE_UNREADABLE",
			},
		},
		"placeholders": {
			"Phone,Lead Status,Rating,Amount,Name", "9876543210|-None-|N/A|TBD|null", `{"phone":"+919876543210"}`, nil,
		},
		"names": {
			"Name,Phone,First Name", "{{name}} x|9876543210|Asha",
			`{"customFields":{"First Name":"Asha"},"name":"{{name}} x","phone":"+919876543210"}`, nil,
		},
		"a name that is none": {"Name,Phone", "{{name}} ?|9876543210", `{"phone":"+919876543210"}`, nil},
		"two names": {
			"Full Name,First Name,Mobile", "Asha Rao|Asha|9876543210",
			`{"customFields":{"First Name":"Asha"},"name":"Asha Rao","phone":"+919876543210"}`, nil,
		},
		"two sources": {
			"Phone,Lead Source,Original Source", "9876543210|Expo|website",
			`{"customFields":{"Original Source":"website"},"metadata":{"source":"Expo"},"phone":"+919876543210"}`, nil,
		},
		"metadata as JSON": {
			"Phone,Source,Metadata,IP", `9876543210|Expo|{"source":"website","n":1}|203.0.113.8`,
			`{"customFields":{"Source":"Expo"},"metadata":{"ip":"203.0.113.8","n":1,"source":"website"},` +
				`"phone":"+919876543210"}`, nil,
		},
		"a column without a name": {
			"Phone,,x", "9876543210|a|b", `{"customFields":{"column 2":"a","x":"b"},"phone":"+919876543210"}`, nil,
		},
	} {
		read := record(t, c.header, c.row, rules, leadfile.Options{})
		require.Equal(t, c.body, bodyOf(t, read), name)
		require.Equal(t, c.warnings, warned(read), name)
	}
}

func TestColumns_TooLongOrMany(t *testing.T) {
	t.Parallel()
	question := "Are you interested in a free consultation with one of our experts this "
	read := record(t, "Phone,"+question+"month?,"+question+"year?,Note",
		"9876543210|yes|no|"+strings.Repeat("é", 2001), rules, leadfile.Options{})
	var body struct {
		CustomFields map[string]string `json:"customFields"`
	}
	require.NoError(t, json.Unmarshal([]byte(bodyOf(t, read)), &body))
	require.Equal(t, map[string]string{
		strings.TrimSpace(question[:50]): "yes", strings.TrimSpace(question[:46]) + " (2)": "no",
		"Note": strings.Repeat("é", 2000),
	}, body.CustomFields)
	require.Equal(t,
		[]string{question + "month? VALUE_SHORTENED", question + "year? VALUE_SHORTENED", "Note VALUE_SHORTENED"},
		warned(read))

	header, row := "", ""
	for i := range 60 {
		header, row = header+fmt.Sprintf("c%02d,", i), row+"x|"
	}
	read = record(t, header+"Phone,Mobile", row+"9876543210|9876543211", rules, leadfile.Options{})
	require.Contains(t, bodyOf(t, read), `"Phone":"9876543210"`, "contacts come first")
	require.Equal(t, 50, strings.Count(bodyOf(t, read), `"x"`)+1)
	require.Len(t, read.Warnings, 11)
	require.Equal(t, "c59 FIELD_DROPPED", warned(read)[10])
}

func TestColumns_Mapping(t *testing.T) {
	t.Parallel()
	header := []string{"Name", "Tel.", "Mobile", "Status", "Notes", "Ad", "Email"}
	columns, err := leadfile.MapColumns(header, leadfile.Options{Keep: []string{"email"}, Map: map[string]string{
		"tel": "phone", "Status": "customFields.Old status", "Notes": "", "Ad": "metadata.ad",
	}})
	require.NoError(t, err)
	read, err := columns.Record([]string{"Asha", "9876543211", "9876543212", "open", "secret", "7", "a@example.com"},
		rules)
	require.NoError(t, err)
	require.Equal(t,
		`{"customFields":{"Email":"a@example.com","Mobile":"9876543212","Old status":"open"},"metadata":{"ad":"7"},`+
			`"name":"Asha",`+
			`"phone":"+919876543211"}`, bodyOf(t, read))

	for wrong, given := range map[string]map[string]string{
		`there is no column "Fax"; the file has ["Name" "Tel." "Mobile"`: {"Fax": "phone"},
		`there is no field "phones": a column may be name, firstName, lastName, phone, email, status, ` +
			`leadTemperature, opportunityValue, ` +
			`visitorId, receivedAt, country, metadata, customFields, metadata.KEY, customFields.KEY, consent.PURPOSE, optOut.PURPOSE, or nothing, to ` +
			`be left out`: {"Mobile": "phones"},
		`there is no field "lead.phone"`: {"Mobile": "lead.phone"},
		`there is no field "metadata."`:  {"Mobile": "metadata."},
	} {
		_, err := leadfile.MapColumns(header, leadfile.Options{Map: given})
		require.ErrorContains(t, err, wrong)
	}
	_, err = leadfile.MapColumns(header, leadfile.Options{At: "Date"})
	require.ErrorContains(t, err, `there is no column "Date"`)
}

func TestColumns_InvalidJSON(t *testing.T) {
	t.Parallel()
	columns, err := leadfile.MapColumns([]string{"phone", "Custom Fields"}, leadfile.Options{})
	require.NoError(t, err)
	for _, cell := range []string{"city=Pune", "[1]", `{"a":1,"a":2}`, `{"a":"` + "\xff" + `"}`} {
		_, err = columns.Record([]string{"9876543210", cell}, rules)
		require.EqualError(t, err, "Custom Fields must be a JSON object", cell)
	}
}

func TestSurvey_Questions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		header, row string
		options     leadfile.Options
		none        bool
		contacts    []string
	}{
		"known": {"Name,Phone", "Asha|9876543210", leadfile.Options{}, false, nil},
		"unknown contacts": {
			"Name,Rufnr", "Asha|9876543210", leadfile.Options{}, true,
			[]string{`column "Rufnr" has phones in 1 of 1 cells`},
		},
		"a second one": {
			"Phone,Mitarbeiter", "9876543210|x@example.com", leadfile.Options{}, false,
			[]string{`column "Mitarbeiter" has emails in 1 of 1 cells`},
		},
		"kept": {
			"Phone,Mitarbeiter", "9876543210|x@example.com", leadfile.Options{Keep: []string{"Mitarbeiter"}}, false,
			nil,
		},
		"an owner's": {
			"Phone,Owner Email,Company Phone,Record ID", "9876543210|x@example.com|9876543211|9876543212",
			leadfile.Options{}, false, nil,
		},
	} {
		columns, err := leadfile.MapColumns(strings.Split(c.header, ","), c.options)
		require.NoError(t, err)
		survey := columns.NewSurvey(rules)
		survey.Add(strings.Split(c.row, "|"))
		none, contacts := survey.Questions()
		require.Equal(t, c.none, none, name)
		require.Equal(t, c.contacts, contacts, name)
	}
}
