package intake

import (
	"bytes"
	"fmt"
	"mime/multipart"
	"os"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore/event"
)

func compiled(t testing.TB, settings event.IntakeSettings) *Mapping {
	t.Helper()
	m, err := Compile(settings)
	require.NoError(t, err)
	return m
}

func sample(t testing.TB, name string) []byte {
	t.Helper()
	body, err := os.ReadFile("testdata/" + name)
	require.NoError(t, err)
	return body
}

// object encodes a capture's body as one JSON object.
func object(t testing.TB, body map[string]jsontext.Value) string {
	t.Helper()
	var out strings.Builder
	out.WriteString("{")
	for i, name := range sortedKeys(body) {
		if i > 0 {
			out.WriteString(",")
		}
		fmt.Fprintf(&out, "%q:%s", name, body[name])
	}
	return out.String() + "}"
}

func TestCompile_DefaultsOfEveryKind(t *testing.T) {
	t.Parallel()
	for _, kind := range Kinds() {
		compiled(t, event.IntakeSettings{Kind: kind})
		for name := range DefaultMapping(kind) {
			require.Contains(t, MappingFields(), name, kind)
		}
	}
}

func TestMap_Kinds(t *testing.T) {
	t.Parallel()
	merged, err := Fetched([]byte(`{"leadgen_id": "123123123123", "page_id": "9", "ad_id": "older"}`),
		sample(t, "meta_lead.json"))
	require.NoError(t, err)
	for name, c := range map[string]struct {
		kind    string
		body    []byte
		headers map[string]string
		id      string
		want    string
	}{
		"google_lead_form": {GoogleLeadForm, sample(t, "google_lead_form.json"), nil,
			"TeSter-1fO7SkQ3vYx0Nn5qk2wXHg-lead", `{
			"name": "Asha Menon", "email": "asha@example.com", "phone": "+919876543210",
			"customFields": {"POSTAL_CODE": "560001", 
				"what_is_your_preferred_dealership_in_the_city_or_its_surroundings?": "Indiranagar"},
			"metadata": {"source": "google_ad", "form_id": 40000000000, "campaign_id": 9007199254740993, "gclid": "EAIaIQobChMIq8uVh5aL",
				"adgroup_id": 20000000000, "creative_id": 30000000000}}`},
		"meta_lead_ads": {MetaLeadAds, merged, nil, "123123123123", `{
			"name": "Joe Example", "email": "joe@example.com", "phone": "+14155552671",
			"customFields": {"car_make": "Honda", "days_that_suit": ["monday", "friday"],
				"what_is_the_annual_revenue_of_your_company_in_us_dollars?": "1-5m"},
			"metadata": {"source": "facebook_ad", "page_id": "9", "ad_id": "777", "form_id": "888",
				"created_time": "2025-02-28T08:49:14+0000"}}`},
		"typeform": {Typeform, sample(t, "typeform.json"), nil, "a3a12ec67a1365927098a606107fac15", `{
			"email": "laura@example.com", "phone": "+34605213447", "visitorId": "v-1",
			"customFields": {"how": "It's cold right now", "moved": "2025-10-01", "cities": ["London", "Sydney", "Pune"], "k6TP9oLGgHjl": "A friend",
				"heard": "A poster", "terms": false, "age": 5, "site": "https://example.com"},
			"metadata": {"source": "website", "form_id": "lT4Z3j", "utm_source": "newsletter"}}`},
		"razorpay": {Razorpay, sample(t, "razorpay.json"), map[string]string{
			"x-razorpay-event-id": "evt-1",
		}, "evt-1", `{
			"name": "Gaurav Kumar", "email": "gaurav.kumar@example.com", "phone": "+919876543210", "opportunityValue": "12500.50",
			"customFields": {"Policy Name": "Jeevan Saral", "name": "Gaurav Kumar"},
			"metadata": {"source": "payment_page_drop", "event": "payment.failed", "payment_id": "pay_DESlfW9H8K9uqM", "order_id": "order_DESlLckIVRkHWj"}}`},
		"standard_webhooks": {StandardWebhooks, sample(t, "standard_webhooks.json"),
			map[string]string{"webhook-id": "msg-1"}, "msg-1", `{
			"name": "Asha Menon", "email": ["asha@example.com"], "leadTemperature": "hot", "opportunityValue": 1200.5,
			"customFields": {"plan": "pro", "seats": 5}, "metadata": {"source": "webhook", "campaign": "spring"}}`},
		"webhook": {Webhook,
			[]byte(`{"first_name": "Asha", "last_name": "Menon", "mobile": 9876543210, "utm_source": "x", "fields": {"a": 1, "b": 2},
			"customFields": {"b": 3, "c": ""}, "status": "won", "visitor_id": "v", "metadata": {"source": "api", "k": true}}`), nil, "", `{
			"name": "Asha Menon", "phone": [9876543210], "status": "won", "visitorId": "v", "customFields": {"a": 1, "b": 3},
			"metadata": {"source": "webhook", "utm_source": "x", "k": true}}`},
		"form": {Form,
			[]byte(`{"your-name": "Asha", "tel": "", "phone_number": "98765 43210", "your-email": "asha@example.com", "utm_campaign": "spring",
			"gclid": "g", "page_url": "https://example.com/", "referrer": "https://example.org/", "visitor_id": "v", "message": "Hi", "status": "won"}`),
			map[string]string{"idempotency-key": "k"}, "k", `{
			"name": "Asha", "phone": "98765 43210", "email": "asha@example.com", "visitorId": "v", "customFields": {"message": "Hi", "status": "won"},
			"metadata": {"source": "website", "utm_campaign": "spring", "gclid": "g", "page_url": "https://example.com/", "referrer": "https://example.org/"}}`},
	} {
		mapped, wrong := compiled(t, event.IntakeSettings{Kind: c.kind}).Map(Request{
			ContentType: "application/json", Body: c.body, Headers: c.headers,
		})
		require.Empty(t, wrong, name)
		require.Equal(t, c.id, mapped.DeliveryID, name)
		require.False(t, mapped.Test || mapped.Skip || mapped.Honeypot, name)
		require.JSONEq(t, c.want, object(t, mapped.Body), name)
		rules := lead.Rules{Region: "IN", Stages: []string{"new", "won"}}
		repaired, _ := lead.Repaired(mapped.Body, rules, false)
		_, err := lead.ParseArrival(repaired, rules, lead.Client{})
		require.NoError(t, err, name)
	}
}

// The first usable contact counts, mobiles before other phones, and the others are kept.
func TestMap_SeveralContacts(t *testing.T) {
	t.Parallel()
	const urlencoded = "application/x-www-form-urlencoded"
	several := map[string]string{"phone": "[body.?mobile, body.?phone]", "email": "body.emails", "customFields": "{}"}
	for name, c := range map[string]struct {
		settings event.IntakeSettings
		media    string
		body     string
		want     string
	}{
		"landline and mobile": {
			event.IntakeSettings{Kind: Webhook}, "", `{"phone":"080 23456000","mobile":"9876512345"}`,
			`{"phone":"9876512345","customFields":{"phone":"080 23456000"}}`,
		},
		"no phone, and a mobile": {
			event.IntakeSettings{Kind: Webhook}, "", `{"phone":"9876512345","mobile":"N/A","email":"asha@example.com"}`,
			`{"phone":"9876512345","email":"asha@example.com"}`,
		},
		"the same phone": {
			event.IntakeSettings{Kind: Webhook}, "", `{"phone":"9876512345","tel":"+91 98765 12345"}`, `{"phone":"9876512345"}`,
		},
		"a bad email": {
			event.IntakeSettings{Kind: Webhook}, "", `{"email":"asha@","email_address":"asha@example.com"}`,
			`{"email":"asha@example.com","customFields":{"email":"asha@"}}`,
		},
		"a repeated field": {
			event.IntakeSettings{Kind: Webhook}, urlencoded, "phone=9876512345&phone=9876512346",
			`{"phone":"9876512345","customFields":{"phone":"9876512346"}}`,
		},
		"a list": {
			event.IntakeSettings{Kind: StandardWebhooks}, "",
			`{"type":"lead","data":{"phone":["12","9876512345"],"email":"asha@example.com"}}`,
			`{"phone":"9876512345","email":"asha@example.com","customFields":{"phone":"12"}}`,
		},
		"a list of the mapping": {
			event.IntakeSettings{Kind: Webhook, Mapping: several}, "",
			`{"phone":"9876512345","mobile":"12","emails":["","asha@example.com"]}`,
			`{"phone":"9876512345","email":"asha@example.com","customFields":{"phone":"12"}}`,
		},
	} {
		mapped, wrong := compiled(t, c.settings).Map(Request{ContentType: c.media, Body: []byte(c.body)})
		require.Empty(t, wrong, name)
		rules := lead.Rules{Region: "IN", Stages: []string{"new"}}
		repaired, _ := lead.Repaired(mapped.Body, rules, false)
		delete(repaired, "metadata")
		require.JSONEq(t, c.want, object(t, repaired), name)
	}
}

func TestMap_EmptyBodies(t *testing.T) {
	t.Parallel()
	for _, kind := range Kinds() {
		m := compiled(t, event.IntakeSettings{Kind: kind})
		for _, body := range []string{``, `{}`, `[]`, `null`, `"x"`, `5`,
			`{"form_response": null, "payload": [], "user_column_data": {}, "field_data": "x"}`,
			`{"form_response": {"answers": [null, {}, {"type": "choice"}]}, "field_data": [{}], ` +
				`"user_column_data": [5]}`} {
			mapped, _ := m.Map(Request{ContentType: "application/json", Body: []byte(body)})
			require.Empty(t, mapped.Body["phone"], "%s %s", kind, body)
			require.Empty(t, mapped.Body["email"], "%s %s", kind, body)
			require.JSONEq(t, `"`+DefaultSource(kind)+`"`, source(t, mapped), "%s %s", kind, body)
		}
	}
}

func source(t testing.TB, mapped Mapped) string {
	t.Helper()
	members, err := lead.Members(mapped.Body["metadata"])
	require.NoError(t, err)
	return string(members["source"])
}

func TestMap_OwnExpressions(t *testing.T) {
	t.Parallel()
	m := compiled(t, event.IntakeSettings{Kind: Webhook, Source: "chatbot", Mapping: map[string]string{
		"name":         `body.contact.name.trim()`,
		"email":        `null`,
		"phone":        `headers["x-phone"]`,
		"deliveryId":   `body.id`,
		"customFields": `{"score": body.score * 2, "tag": query.?tag, "missing": body.?missing}`,
		"skip":         `body.kind == "noise"`,
	}})
	mapped, wrong := m.Map(Request{
		Body: []byte(`{"contact": {"name": " Asha "}, "email": "a@example.com", "id": 77, "score": 4, "metadata": ` +
			`{"k": 1, "source": "api"}}`),
		Headers: map[string]string{"x-phone": "9876543210"}, Query: map[string]string{"tag": "t"},
	})
	require.Empty(t, wrong)
	require.Equal(t, "77", mapped.DeliveryID)
	require.False(t, mapped.Skip, "the expression failed on a missing member, so its field is absent")
	require.JSONEq(t,
		`{"name": "Asha", "phone": "9876543210", "customFields": {"score": 8, "tag": "t", "missing": null},
		"metadata": {"source": "chatbot", "k": 1}}`, object(t, mapped.Body))

	mapped, wrong = m.Map(Request{Body: []byte(`{"kind": "noise", "score": "x"}`)})
	require.True(t, mapped.Skip)
	require.Equal(t,
		field.Errors{{Field: "customFields", Message: "applies an operator or function to a value of another type"}},
		wrong)
	_, wrong = m.Map(Request{Body: []byte(`{}`)})
	require.Equal(t, field.Errors{{Field: "customFields", Message: "reads a member that is not there"}}, wrong,
		"a missing member must not drop the other custom fields silently")
}

func TestCompile_NamesField(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ field, source, want string }{
		"syntax": {"phone", "body.(", `is not valid at 1:6: no viable alternative at input '.('`},
		"unknown name": {
			"phone", "bodi.phone", "is not valid at 1:1: undeclared reference to 'bodi' (did you mean 'body'?)",
		},
		"type":        {"email", "1 + 2", "must be string or list(dyn), not int"},
		"bool":        {"skip", `"yes"`, "must be bool, not string"},
		"map of ints": {"customFields", `{1: "a"}`, "must be map(string, dyn), not map(int, string)"},
		"list":        {"metadata", `[1]`, "must be map(string, dyn), not list(int)"},
		"no such field": {
			"phones", `body.phone`,
			"is not known; the fields are skip, deliveryId, name, phone, email, status, leadTemperature, " +
				"opportunityValue, visitorId, customFields, metadata, consent",
		},
		"empty": {"name", " ", "is empty"},
		"cost": {
			"skip", `body.a.exists(x, body.a.exists(y, body.a.exists(z, x == y && y == z)))`,
			"could cost more than 200000 steps with lists of 100 elements",
		},
	} {
		_, err := Compile(event.IntakeSettings{Kind: Webhook, Mapping: map[string]string{c.field: c.source}})
		require.Equal(t, field.Errors{{Field: "mapping." + c.field, Message: c.want}}, err, name)
	}
}

func TestMap_ReasonsHideInput(t *testing.T) {
	t.Parallel()
	m := compiled(t, event.IntakeSettings{Kind: Webhook, Mapping: map[string]string{
		"name": `string(int(body.secret))`, "email": `body[body.secret]`,
		"phone":    `timestamp(body.secret).getFullYear() == 1 ? "1" : "2"`,
		"metadata": `{"x": body[body.secret]}`, "skip": `body.secret`,
	}})
	_, wrong := m.Map(Request{Body: []byte(`{"secret": "asha@example.com"}`)})
	require.NotEmpty(t, wrong)
	require.NotContains(t, wrong.Error(), "asha")
}

func TestMap_Forms(t *testing.T) {
	t.Parallel()
	const urlencoded = "application/x-www-form-urlencoded"
	m := compiled(t, event.IntakeSettings{Kind: Form, Mapping: map[string]string{"metadata": `{}`}})
	for name, c := range map[string]struct{ media, body, custom, reason string }{
		"repeated":          {urlencoded, "a=1&a=2&b=3&a=4", `{"a": ["1", "2", "4"], "b": "3"}`, ""},
		"names and blanks":  {urlencoded, "&&=x&a&b=&c=%20", `{"c": " "}`, ""},
		"UTF-8":             {urlencoded, "n=Jos%C3%A9+%26", `{"n": "José &"}`, ""},
		"undeclared":        {urlencoded, "n=Jos%E9+%80", `{"n": "José €"}`, ""},
		"declared":          {urlencoded + "; charset=windows-1251", "n=%C0%F1", `{"n": "Ас"}`, ""},
		"declared by field": {urlencoded, "_charset_=shift_jis&n=%82%A0", `{"n": "あ"}`, ""},
		"unknown charset":   {urlencoded + "; charset=klingon", "n=1", "", "has a character set that is not known"},
		"NUL":               {urlencoded, "n=%00", "", "must not contain NUL"},
		"broken escape":     {urlencoded, "n=%zz", "", "is not a valid form"},
		"too many":          {urlencoded, strings.Repeat("a=1&", 1001), "", "must have at most 1000 fields"},
		"no type, a form":   {"", "a=1", `{"a": "1"}`, ""},
		"JSON as a form":    {urlencoded, ` {"a": 1}`, `{"a": 1}`, ""},
		"no JSON in a form": {urlencoded, `{a=1`, `{"{a": "1"}`, ""},
		"no type, JSON":     {"", ` {"a": 1}`, `{"a": 1}`, ""},
		"text, JSON":        {"text/plain;charset=UTF-8", `{"a": 1}`, `{"a": 1}`, ""},
		"text, no JSON":     {"text/plain", `a=1`, "", "must be JSON or a form"},
		"XML":               {"application/xml", `<a/>`, "", "must be JSON or a form"},
		"JSON by suffix":    {"application/vnd.x+json", `{"a": 1}`, `{"a": 1}`, ""},
		"byte order mark":   {"application/json", "\xef\xbb\xbf{\"a\": 1}", `{"a": 1}`, ""},
		"duplicate keys":    {"application/json", `{"a": {"b": 1, "b": 2}}`, "", "has the same key twice"},
		"deep": {
			"application/json", strings.Repeat("[", 33) + strings.Repeat("]", 33), "", "must be at most 32 levels deep",
		},
		"large number":   {"application/json", `{"a": 1e999}`, "", "has a number that is too large"},
		"JSON with NUL":  {"application/json", `{"a": "\u0000"}`, "", "must not contain NUL"},
		"lone surrogate": {"application/json", `{"a": "\ud800"}`, "", "is not valid JSON in UTF-8"},
		"two values":     {"application/json", `{"a": 1} {}`, "", "has data after the JSON value"},
		"truncated":      {"application/json", `{"a": [1,`, "", "is not valid JSON in UTF-8"},
		"no boundary":    {"multipart/form-data", "x", "", "is not a valid form"},
	} {
		mapped, wrong := m.Map(Request{ContentType: c.media, Body: []byte(c.body)})
		if c.reason != "" {
			require.Equal(t, field.Errors{{Field: "body", Message: c.reason}}, wrong, name)
			continue
		}
		require.Empty(t, wrong, name)
		require.JSONEq(t, c.custom, string(mapped.Body["customFields"]), name)
	}
}

func TestMap_MultipartSkipsFiles(t *testing.T) {
	t.Parallel()
	m := compiled(t, event.IntakeSettings{Kind: Form})
	var body bytes.Buffer
	writer := multipart.NewWriter(&body)
	require.NoError(t, writer.WriteField("email", "asha@example.com"))
	file, err := writer.CreateFormFile("cv", "cv.pdf")
	require.NoError(t, err)
	_, err = file.Write([]byte("\x00\xff"))
	require.NoError(t, err)
	require.NoError(t, writer.WriteField("note", "Grüße"))
	require.NoError(t, writer.Close())
	mapped, wrong := m.Map(Request{ContentType: writer.FormDataContentType(), Body: body.Bytes()})
	require.Empty(t, wrong)
	require.JSONEq(t,
		`{"email": "asha@example.com", "customFields": {"note": "Grüße"}, "metadata": {"source": "website"}}`,
		object(t, mapped.Body))

	var many bytes.Buffer
	writer = multipart.NewWriter(&many)
	for range maxFields + 1 {
		_, err := writer.CreateFormFile("f", "f")
		require.NoError(t, err)
	}
	require.NoError(t, writer.Close())
	_, wrong = m.Map(Request{ContentType: writer.FormDataContentType(), Body: many.Bytes()})
	require.Equal(t, field.Errors{{Field: "body", Message: "must have at most 1000 fields"}},
		wrong, "files count as fields")
	for _, broken := range [][]byte{many.Bytes()[:many.Len()-9], []byte("no boundary")} {
		_, wrong = m.Map(Request{ContentType: writer.FormDataContentType(), Body: broken})
		require.Len(t, wrong, 1)
		require.Equal(t, "body", wrong[0].Field)
	}
}

func TestMap_HoneypotAndChallenge(t *testing.T) {
	t.Parallel()
	m := compiled(t, event.IntakeSettings{Kind: Form, Honeypot: "fax"})
	for body, filled := range map[string]bool{
		`{"email": "a@example.com", "fax": ""}`: false, `{"email": "a@example.com"}`: false, `{"fax": null}`: false,
		`{"fax": "x"}`: true, `{"fax": ["", "x"]}`: true, `{"fax": 1}`: true,
	} {
		mapped, wrong := m.Map(Request{Body: []byte(body)})
		require.Empty(t, wrong)
		require.Equal(t, filled, mapped.Honeypot, body)
		require.NotContains(t, object(t, mapped.Body), "fax")
	}
	mapped, _ := m.Map(Request{Body: []byte(`{"cf-turnstile-response": "token", "email": "a@example.com"}`)})
	require.Equal(t, "token", mapped.Challenge)
	require.NotContains(t, object(t, mapped.Body), "token")
}

func TestMap_GoogleTest(t *testing.T) {
	t.Parallel()
	m := compiled(t, event.IntakeSettings{Kind: GoogleLeadForm})
	mapped, _ := m.Map(Request{
		Body: bytes.Replace(sample(t, "google_lead_form.json"), []byte(`"is_test": false`), []byte(`"is_test": true`),
			1),
	})
	require.True(t, mapped.Test)
}

func TestMap_RazorpayAmounts(t *testing.T) {
	t.Parallel()
	m := compiled(t, event.IntakeSettings{Kind: Razorpay})
	for entity, want := range map[string]string{
		`"amount": 100, "currency": "INR"`:                 `"1.00"`,
		`"amount": 5, "currency": "INR"`:                   `"0.05"`,
		`"amount": 0, "currency": "USD"`:                   `"0.00"`,
		`"amount": 5000, "currency": "JPY"`:                `"5000"`,
		`"amount": 12345, "currency": "KWD"`:               `"12.345"`,
		`"amount": 99900, "currency": "IDR"`:               `"999.00"`, // CLDR has none
		`"amount": 99900, "currency": "inr"`:               `"999.00"`,
		`"amount": "99900", "currency": "INR"`:             `"999.00"`,
		`"currency": "INR"`:                                ``,
		`"amount": 9223372036854775807, "currency": "EUR"`: `"92233720368547758.07"`,
	} {
		mapped, wrong := m.Map(Request{Body: []byte(`{"payload": {"payment": {"entity": {` + entity + `}}}}`)})
		require.Empty(t, wrong, entity)
		require.Equal(t, want, string(mapped.Body["opportunityValue"]), entity)
	}
	_, wrong := m.Map(Request{Body: []byte(`{"payload": {"payment": {"entity": {"amount": 1.5, "currency": "INR"}}}}`)})
	require.Equal(t, "opportunityValue", wrong[0].Field)
	_, wrong = m.Map(Request{Body: []byte(`{"payload": {"payment": {"entity": {"amount": 1, "currency": "rupees"}}}}`)})
	require.Equal(t, "opportunityValue", wrong[0].Field)
}

func TestMap_DeliveryIDs(t *testing.T) {
	t.Parallel()
	m := compiled(t, event.IntakeSettings{Kind: Webhook, Mapping: map[string]string{"deliveryId": "body.id"}})
	for id, want := range map[string]string{
		`"a"`: "a", `" a "`: "a", `7`: "7", `null`: "", `""`: "",
		`"` + strings.Repeat("é", 200) + `"`: strings.Repeat("é", 200),
	} {
		mapped, wrong := m.Map(Request{Body: []byte(`{"id": ` + id + `}`)})
		require.Empty(t, wrong, id)
		require.Equal(t, want, mapped.DeliveryID)
	}
	for _, id := range []string{`1.5`, `{}`, `[1]`, `true`, `"` + strings.Repeat("é", 201) + `"`} {
		_, wrong := m.Map(Request{Body: []byte(`{"id": ` + id + `}`)})
		require.Equal(t,
			field.Errors{
				{Field: "deliveryId", Message: "must be text of at most 200 characters or a whole number of 64 bits"},
			}, wrong, id)
	}
}

// The cost limit of one expression also bounds the sum over all expressions of a mapping.
func TestMap_TotalCost(t *testing.T) {
	t.Parallel()
	mapping := make(map[string]string)
	for _, name := range []string{"name", "email", "phone", "status", "visitorId"} {
		mapping[name] = `body.a.exists(x, body.a.exists(y, x == -1)) ? "a" : "b"`
	}
	m := compiled(t, event.IntakeSettings{Kind: Webhook, Mapping: mapping})
	_, wrong := m.Map(Request{Body: []byte(`{"a": [` + strings.Repeat("1,", 5000) + `1]}`)})
	for _, name := range []string{"phone", "email", "name", "status", "visitorId"} {
		require.Contains(t, wrong, field.Error{Field: name, Message: "costs too much to compute"})
	}
}

func TestDefaultMapping_IsACopy(t *testing.T) {
	t.Parallel()
	DefaultMapping(Form)["name"] = "changed"
	require.NotEqual(t, "changed", DefaultMapping(Form)["name"])
}
