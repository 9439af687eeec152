package lead

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMetadata_Source(t *testing.T) {
	t.Parallel()
	for _, source := range []string{
		"api", "webhook", "website", "chatbot", "whatsapp", "google_form", "facebook_ad", "google_ad",
		"ai_powered_lead", "payment_page_drop", "landing",
	} {
		a := accepted(t, withPhone(`"metadata":{"source":"`+source+`"}`))
		require.Equal(t, source, a.Source)
	}
	for _, raw := range []string{
		`"manual"`, `"csv_import"`, `"Website"`, `"WEBSITE"`, `" website"`, `"website "`, `"tiktok"`, `""`, `5`, `true`,
		`["website"]`, `{"a":"website"}`,
	} {
		a := accepted(t, withPhone(`"metadata":{"source":`+raw+`}`))
		require.Equal(t, "api", a.Source, raw)
		require.Equal(t, raw, string(a.Metadata["source"]), "the raw value is kept")
	}
	require.Equal(t, "api", accepted(t, withPhone(`"metadata":{"utm":"x"}`)).Source, "none")
	require.Equal(t, "api", accepted(t, withPhone(`"source":"website"`)).Source,
		"the source is a member of metadata only")
}

func TestMetadata_IP(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`"198.51.100.7"`:           "198.51.100.7",
		`" 198.51.100.7 "`:         "198.51.100.7",
		`"2001:DB8::0:1"`:          "2001:db8::1",
		`"::ffff:198.51.100.7"`:    "198.51.100.7",
		`"fe80::1%eth0"`:           "fe80::1",
		`"10.0.0.1"`:               "10.0.0.1",
		`"unknown"`:                "203.0.113.9",
		`"198.51.100.7:80"`:        "203.0.113.9",
		`"198.51.100.07"`:          "203.0.113.9",
		`"198.51.100.7, 10.0.0.1"`: "203.0.113.9",
		`""`:                       "203.0.113.9",
		`5`:                        "203.0.113.9",
		`["198.51.100.7"]`:         "203.0.113.9",
	} {
		a := accepted(t, withPhone(`"metadata":{"ip":`+raw+`}`))
		require.Equal(t, want, a.IP, raw)
		require.Equal(t, raw, string(a.Metadata["ip"]), "the event has the raw value")
	}
}

func TestMetadata_UserAgent(t *testing.T) {
	t.Parallel()
	require.Equal(t, "Mozilla/5.0", accepted(t, withPhone(`"metadata":{"userAgent":"Mozilla/5.0"}`)).UserAgent)
	require.Equal(t, "curl/8", accepted(t, withPhone(`"metadata":{"userAgent":" "}`)).UserAgent, "blank is absent")
	long := accepted(t, withPhone(`"metadata":{"userAgent":"x`+strings.Repeat("é", 1<<10)+`"}`))
	require.Equal(t, "x"+strings.Repeat("é", 511), long.UserAgent, "a partial character is dropped")
	require.Len(t, long.Metadata["userAgent"], 2+1+(2<<10), "the raw value is kept")
	require.Equal(t, []string{"metadata.userAgent"}, refused(t, withPhone(`"metadata":{"userAgent":5}`)))
}

func TestMetadata_Limits(t *testing.T) {
	t.Parallel()
	keys := func(n int) string {
		members := make([]string, n)
		for i := range members {
			members[i] = `"k` + strconv.Itoa(i) + `":1`
		}
		return strings.Join(members, ",")
	}
	sized := func(n int) string { return `{"k":"` + str(n-len(`{"k":""}`)) + `"}` }

	require.Len(t, accepted(t, withPhone(`"metadata":{`+keys(64)+`}`)).Metadata, 64)
	require.Equal(t, []string{"metadata"}, refused(t, withPhone(`"metadata":{`+keys(65)+`}`)))
	require.Len(t, accepted(t, withPhone(`"metadata":{`+keys(64)+`,"none":null}`)).Metadata, 64, "null is absent")

	accepted(t, withPhone(`"metadata":`+sized(32<<10)))
	require.Equal(t, []string{"metadata"}, refused(t, withPhone(`"metadata":`+sized(32<<10+1))))
	accepted(t, withPhone(`"metadata":{ "k" :`+strings.Repeat(" ", 40<<10)+`1}`))
}

func TestMetadata_OtherKeys(t *testing.T) {
	t.Parallel()
	a := accepted(t,
		withPhone(`"metadata":{"utm_source":" Google ","n":1.50,"list":[1, {"a":null}],"yes":true,"empty":"",`+
			`"":"blank key"}`))
	require.Equal(t, map[string]string{
		"utm_source": `" Google "`, "n": "1.50", "list": `[1,{"a":null}]`, "yes": "true", "empty": `""`,
		"": `"blank key"`,
	}, values(a.Metadata))
}
