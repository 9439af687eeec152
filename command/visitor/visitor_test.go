package visitor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore/event"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 5e6, time.UTC)

func parse(t *testing.T, id, body string) (event.VisitorActed, error) {
	t.Helper()
	members, err := lead.Members(jsontext.Value(body))
	require.NoError(t, err, body)
	return ParseActivity(id, members, noon)
}

func accepted(t *testing.T, body string) event.VisitorActed {
	t.Helper()
	acted, err := parse(t, "v-1", body)
	require.NoError(t, err, body)
	return acted
}

// fieldErrors returns one line for each field.Error of err.
func fieldErrors(t *testing.T, err error) []string {
	t.Helper()
	var wrong field.Errors
	require.ErrorAs(t, err, &wrong)
	lines := make([]string, len(wrong))
	for i, one := range wrong {
		lines[i] = one.Field + " " + one.Message
	}
	return lines
}

func TestParseActivity_Full(t *testing.T) {
	t.Parallel()
	require.Equal(t, event.VisitorActed{
		VisitorID: "v-1", Kind: "form_view", URL: "https://example.com/prices?a=1#form", Title: "Prices now",
		Referrer: "android-app://com.example.mail/", At: time.Date(2026, 3, 1, 6, 30, 0, 123e6, time.UTC),
		Properties: map[string]jsontext.Value{
			"plan": jsontext.Value(`"pro"`), "empty": jsontext.Value(`""`), "n": jsontext.Value(`1.0`),
		},
	}, accepted(t, `{"type":"Form_View","url":" https://example.com/prices?a=1#form ","title":" Prices\tnow\n",
		"referrer":"android-app://com.example.mail/","at":"2026-03-01T12:00:00.123999+05:30",
		"properties":{"plan":"pro","empty":"","n":1.0,"none":null},"phone":"9876543210"}`))
}

func TestParseActivity_Omitted(t *testing.T) {
	t.Parallel()
	minimal := event.VisitorActed{VisitorID: "v-1", Kind: "click"}
	for _, body := range []string{
		`{"type":"click"}`,
		`{"type":"click","url":null,"title":null,"referrer":null,"at":null,"properties":null}`,
		`{"type":"click","url":"","title":" ","referrer":"","at":"","properties":{}}`,
		`{"type":"click","properties":{"a":null}}`,
	} {
		require.Equal(t, minimal, accepted(t, body), body)
	}
}

func TestParseActivity_ID(t *testing.T) {
	t.Parallel()
	for _, id := range []string{
		"v", " v ", "a/b?c#d", "größe", "e\u0301", "\u200b", "<b>", strings.Repeat("é", 200),
		strings.Repeat("e\u0301", 200), "line\nbreak",
	} {
		acted, err := parse(t, id, `{"type":"click"}`)
		require.NoError(t, err, "%q", id)
		require.Equal(t, id, acted.VisitorID)
	}
	for _, id := range []string{"", " ", "\t\u00a0", "a\x00b", "\xff", strings.Repeat("é", 201)} {
		_, err := parse(t, id, `{"type":"click"}`)
		require.Equal(t, []string{"visitorId must be text of 1 to 200 characters"}, fieldErrors(t, err), "%q", id)
	}
}

func TestParseActivity_InvalidField(t *testing.T) {
	t.Parallel()
	const (
		kind     = "type must be one of page_view, form_view, click, custom"
		address  = "url must be an absolute http or https URL"
		referrer = "referrer must be an absolute http, https or android-app URL"
		badTime  = "at must be a time such as 2006-01-02T15:04:05Z, from 1970 on"
		future   = "at must not be more than a day ahead"
	)
	long := strings.Repeat("x", 2048)
	for member, want := range map[string]string{
		`"type":"view"`: kind, `"type":""`: kind, `"type":null`: kind, `"type":7`: "type must be a string",
		`"type":["click"]`: "type must be a string", `"url":"/prices"`: address, `"url":"example.com"`: address,
		`"url":"https:///x"`: address, `"url":"https:x"`: address, `"url":"ftp://example.com"`: address,
		`"url":"javascript:alert(1)"`: address, `"url":"android-app://com.example"`: address,
		`"url":"https://exa mple.com"`: address, `"url":"https://example.com/\u0007"`: address,
		`"url":"https://example.com/\u0085x"`:    address,
		`"url":"https://[::1"`:                   address,
		`"url":"https://ann:secret@example.com"`: "url must not contain a user name or password",
		`"url":"https://` + long + `"`:           "url must be at most 2048 characters",
		`"url":5`:                                "url must be a string",
		`"url":{}`:                               "url must be a string",
		`"referrer":"example.com"`:               referrer, `"referrer":"data:text/html,x"`: referrer,
		`"referrer":"https://ann@example.com"`:       "referrer must not contain a user name or password",
		`"referrer":"https://` + long + `"`:          "referrer must be at most 2048 characters",
		`"title":"` + strings.Repeat("ü", 501) + `"`: "title must be at most 500 characters",
		`"title":true`:                              "title must be a string",
		`"at":"yesterday"`:                          badTime,
		`"at":"2026-03-01"`:                         badTime,
		`"at":"2026-03-01T12:00:00"`:                badTime,
		`"at":"1969-12-31T23:59:59.999Z"`:           badTime,
		`"at":"0000-01-01T00:00:00Z"`:               badTime,
		`"at":1772366400`:                           "at must be a string",
		`"at":"2026-03-02T12:00:00.006Z"`:           future,
		`"at":"9999-12-31T23:59:59-23:59"`:          future,
		`"properties":[]`:                           "properties must be an object",
		`"properties":"a=1"`:                        "properties must be an object",
		`"properties":` + members(65):               "properties must have at most 64 keys",
		`"properties":{"a":"` + long16(2049) + `"}`: "properties must be at most 32 KiB",
	} {
		body := `{` + member + `}`
		if !strings.HasPrefix(member, `"type"`) {
			body = `{"type":"click",` + member + `}`
		}
		_, err := parse(t, "v-1", body)
		require.Error(t, err, "%.80s", member)
		require.Equal(t, []string{want}, fieldErrors(t, err), "%.80s", member)
	}
}

func TestParseActivity_Limits(t *testing.T) {
	t.Parallel()
	url := "https://" + strings.Repeat("x", 2048-len("https://"))
	acted := accepted(t,
		`{"type":"CLICK","url":"`+url+`","title":"`+strings.Repeat("e\u0301", 500)+
			`","at":"2026-03-02T12:00:00.005Z","properties":`+members(64)+`}`)
	require.Equal(t, url, acted.URL)
	require.Equal(t, noon.Add(Ahead), acted.At)
	require.Len(t, acted.Properties, 64)
	require.Equal(t, time.Unix(0, 0).UTC(), accepted(t, `{"type":"click","at":"1970-01-01T00:00:00Z"}`).At)
	require.Len(t,
		accepted(t, `{"type":"click","properties":{"a":"`+strings.Repeat("x", 32<<10-len(`{"a":""}`))+`"}}`).Properties,
		1)
}

func TestParseActivity_CollectsErrors(t *testing.T) {
	t.Parallel()
	_, err := parse(t, "", `{"url":1,"title":2,"referrer":3,"at":4,"properties":5}`)
	require.Len(t, fieldErrors(t, err), 7)
	_, err = parse(t, "v", `{}`)
	require.Equal(t, []string{"type must be one of page_view, form_view, click, custom"}, fieldErrors(t, err))
}

// members returns a JSON object of n members.
func members(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`"k%d":%d`, i, i))
	}
	return "{" + strings.Join(all, ",") + "}"
}

// long16 returns n times 16 characters.
func long16(n int) string { return strings.Repeat("0123456789abcdef", n) }

func TestParseActivity_Campaign(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]event.VisitorActed{
		"https://example.com/?utm_source=Google&utm_campaign=a%20b&utm_id=7": {
			Touch: true, Campaign: event.Campaign{UTMSource: "Google", UTMCampaign: "a b", UTMID: "7"},
		},
		"https://example.com/?utm_medium=a%40example.com": {Touch: true},
		"https://example.com/?utm_term=shoes":             {Touch: true},
		"https://example.com/?utm_source=caf%E9&utm_medium=a%00b": {
			Touch: true, Campaign: event.Campaign{UTMSource: "caf\uFFFD", UTMMedium: "a\uFFFDb"},
		},
		"https://example.com/?utm_%00=x&utm_%ff=y":      {},
		"https://example.com/?utm_source=&x=utm_":       {},
		"https://example.com/utm_source=x#utm_source=x": {},
		"https://example.com/":                          {},
	} {
		acted := accepted(t, `{"type":"page_view","url":"`+address+`"}`)
		require.Equal(t, want, event.VisitorActed{Touch: acted.Touch, Campaign: acted.Campaign}, address)
	}
}
