package leadfile_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/leadfile"
)

func TestColumns_Names(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ header, row, body string }{
		"our export": {
			"leadId,name,phone,email,status,leadTemperature,opportunityValue,source,createdAt,customFields",
			"01X|Asha|'+919876543210|a@example.com|won|hot|12.50|website|2026|{\"city\":\"Pune\",\"n\":1}",
			`{"customFields":{"city":"Pune","n":1},"email":"a@example.com","leadTemperature":"hot","metadata":{"source":"website"},` +
				`"name":"Asha","opportunityValue":"12.50","phone":"+919876543210","status":"won"}`,
		},
		"a CRM's export": {
			"First Name,Last Name,Mobile Phone,E-mail,Lead Source,Rating,Amount,UTM Campaign,gclid,IP Address,Company",
			"Asha| Rao |98765|a@example.com|Expo|Hot|₹1,20|diwali|x|203.0.113.7|Acme",
			`{"customFields":{"Company":"Acme"},"email":"a@example.com","leadTemperature":"Hot",` +
				`"metadata":{"gclid":"x","ip":"203.0.113.7","source":"Expo","utm_campaign":"diwali"},` +
				`"name":"Asha Rao","opportunityValue":"₹1,20","phone":"98765"}`,
		},
		"two names of one field": {
			"Mobile,PHONE,Full Name,First Name",
			"111|222|Asha Rao|Asha",
			`{"customFields":{"Mobile":"111","firstName":"Asha"},"name":"Asha Rao","phone":"222"}`,
		},
		"an empty cell of the first name": {"Mobile,Phone", "111| ", `{"phone":"111"}`},
		"an apostrophe that is no escape": {"name,a,b,c,d", "'tHooft|'=1+1|'|''=1|'-x;'=1\n''＝2",
			`{"customFields":{"a":"=1+1","b":"'","c":"'=1","d":"-x;=1\n'＝2"},"name":"'tHooft"}`},
		"a second column of metadata is a custom field": {
			"Lead Source,Original Source,fbclid,UTM", "Expo|website|x|y", `{"customFields":{"Original Source":"website","UTM":"y"},"metadata":{"fbclid":"x","source":"Expo"}}`,
		},
		"metadata as JSON does not override an earlier column": {
			"Source,Metadata,IP", `Expo|{"source":"website","ip":"203.0.113.7","n":1}|203.0.113.8`,
			`{"customFields":{"IP":"203.0.113.8"},"metadata":{"ip":"203.0.113.7","n":1,"source":"Expo"}}`,
		},
		"reserved as a custom field": {"Phone,source system,_id", "1|x|y", `{"customFields":{"_id":"y","source system":"x"},"phone":"1"}`},
		"nothing":                    {"name,", " |x", `{}`},
	} {
		columns, err := leadfile.MapColumns(strings.Split(c.header, ","), nil)
		require.NoError(t, err, name)
		body, err := columns.Body(strings.Split(c.row, "|"))
		require.NoError(t, err, name)
		require.Equal(t, c.body, string(body), name)
	}
}

func TestColumns_Mapping(t *testing.T) {
	t.Parallel()
	header := []string{"Name", "Tel.", "Mobile", "Status", "Notes", "Ad"}
	columns, err := leadfile.MapColumns(header, map[string]string{
		"mobile": "phone", "Status": "customFields.Old status", "Notes": "", "Ad": "metadata.ad",
	})
	require.NoError(t, err)
	body, err := columns.Body([]string{"Asha", "111", "222", "open", "secret", "7"})
	require.NoError(t, err)
	require.Equal(t, `{"customFields":{"Old status":"open","Tel.":"111"},"metadata":{"ad":"7"},"name":"Asha","phone":"222"}`, string(body))

	for wrong, given := range map[string]map[string]string{
		`there is no column "Fax"; the file has ["Name" "Tel." "Mobile"`: {"Fax": "phone"},
		`there is no field "phones": a column may be name, firstName, lastName, phone, email, status, leadTemperature, ` +
			`opportunityValue, visitorId, metadata, customFields, metadata.KEY, customFields.KEY, or nothing, to be left out`: {"Mobile": "phones"},
		`there is no field "lead.phone"`: {"Mobile": "lead.phone"},
		`there is no field "metadata."`:  {"Mobile": "metadata."},
	} {
		_, err := leadfile.MapColumns(header, given)
		require.ErrorContains(t, err, wrong)
	}
	_, err = leadfile.MapColumns([]string{"a", "b", "a"}, nil)
	require.ErrorContains(t, err, `two columns are called "a"`)
	_, err = leadfile.MapColumns([]string{"", "b", ""}, nil)
	require.NoError(t, err)
}

// An explicit mapping takes precedence over the name of a column, also for the first column and for two similar names.
func TestColumns_MappingWins(t *testing.T) {
	t.Parallel()
	columns, err := leadfile.MapColumns([]string{"WhatsApp", "E mail", "Phone", "E-mail", "Cell"},
		map[string]string{"whatsapp": "customFields.chat", "E-mail": "", "Cell": "phone"})
	require.NoError(t, err)
	body, err := columns.Body([]string{"111", "a@example.com", "222", "b@example.com", "333"})
	require.NoError(t, err)
	require.Equal(t, `{"customFields":{"Phone":"222","chat":"111"},"email":"a@example.com","phone":"333"}`, string(body))
}

func TestColumns_InvalidJSON(t *testing.T) {
	t.Parallel()
	columns, err := leadfile.MapColumns([]string{"phone", "Custom Fields"}, nil)
	require.NoError(t, err)
	for _, cell := range []string{"city=Pune", "[1]", `{"a":1,"a":2}`, `{"a":"` + "\xff" + `"}`} {
		_, err = columns.Body([]string{"1", cell})
		require.EqualError(t, err, "Custom Fields must be a JSON object", cell)
	}
}
