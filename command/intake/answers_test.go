package intake

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore/event"
)

// captured maps a post like an arrival of an account in India, and returns the capture as JSON and its warnings.
func capturedBy(t *testing.T, settings event.IntakeSettings, r Request) (mapped Mapped, capture, warnings string) {
	t.Helper()
	r.Region = "IN"
	mapped, wrong := compiled(t, settings).Map(r)
	require.Empty(t, wrong)
	rules := lead.Rules{Region: r.Region, Stages: []string{"new", "won"}}
	body, repaired := lead.Repaired(mapped.Body, rules, false)
	parsed, err := lead.ParseArrival(body, rules, lead.Client{})
	require.NoError(t, err)
	members := map[string]jsontext.Value{}
	for name, value := range lead.EachField(parsed.LeadFields) {
		members[name], _ = jsontext.AppendQuote(nil, value)
	}
	members["customFields"], err = event.AppendJSON(nil, parsed.CustomFields)
	require.NoError(t, err)
	members["metadata"], err = event.AppendJSON(nil, parsed.Metadata)
	require.NoError(t, err)
	codes := []string{}
	for _, warning := range append(mapped.Warnings, repaired...) {
		codes = append(codes, warning.Code)
	}
	return mapped, object(t, members), strings.Join(codes, " ")
}

func TestMap_GoogleColumns(t *testing.T) {
	t.Parallel()
	question := strings.Repeat("which_of_our_plans_suits_you_", 2)
	column := func(id, value string) string {
		return fmt.Sprintf(`{"column_id":%q,"string_value":%q}`, id, value)
	}
	for name, c := range map[string]struct{ columns, want, warnings string }{
		"a business form": {
			column("FULL_NAME", "Asha Rao") + "," + column("WORK_EMAIL", "asha@company.example") + "," +
				column("WORK_PHONE", "+919876512345") + "," + column("COMPANY_NAME", "Rao & Co") + "," +
				column("JOB_TITLE", "Buyer") + "," + column("COUNTRY", "IN"),
			`{"name":"Asha Rao","email":"asha@company.example","phone":"+919876512345",
			"customFields":{"COMPANY_NAME":"Rao & Co","JOB_TITLE":"Buyer","COUNTRY":"IN"},"metadata":{"source":"google_ad"}}`, "",
		},
		"both addresses": {
			column("EMAIL", "asha@example.com") + "," + column("WORK_EMAIL", "asha@company.example") + "," +
				column("PHONE_NUMBER", "+919876512345") + "," + column("WORK_PHONE", "+918012345678"),
			`{"email":"asha@example.com","phone":"+919876512345",
			"customFields":{"WORK_EMAIL":"asha@company.example","WORK_PHONE":"+918012345678"},"metadata":{"source":"google_ad"}}`, "",
		},
		"two answers of one question": {
			column("EMAIL", "a@example.com") + "," + column("PRODUCT", "A") + "," + column("PRODUCT", "B"),
			`{"email":"a@example.com","customFields":{"PRODUCT":"A","PRODUCT (2)":"B"},
			"metadata":{"source":"google_ad"}}`, "",
		},
		"questions equal in 50 characters": {
			column("EMAIL", "a@example.com") + "," + column(question+"1", "A") + "," + column(question+"2", "B"),
			`{"email":"a@example.com","customFields":{"which_of_our_plans_suits_you_which_of_our_plans_su":"A",
			"which_of_our_plans_suits_you_which_of_our_pla (2)":"B"},"metadata":{"source":"google_ad"}}`,
			"VALUE_SHORTENED VALUE_SHORTENED",
		},
		"no column id": {
			`{"column_name":"User Email","string_value":"a@example.com"}`,
			`{"email":"a@example.com","customFields":{},"metadata":{"source":"google_ad"}}`, "",
		},
		"a tracked campaign": {
			column("EMAIL", "a@example.com") + "," + column("utm_campaign", "diwali") + "," + column("source", "tv"),
			`{"email":"a@example.com","customFields":{"source":"tv"},"metadata":{"source":"google_ad",
			"utm_campaign":"diwali"}}`, "",
		},
	} {
		_, got, warnings := capturedBy(t, event.IntakeSettings{Kind: GoogleLeadForm},
			Request{Body: []byte(`{"lead_id":"1","user_column_data":[` + c.columns + `]}`)})
		require.JSONEq(t, c.want, got, name)
		require.Equal(t, c.warnings, warnings, name)
	}
}

// googleColumnIDs are those of Google's LeadFormFieldUserInputType that are no contact, name or government id.
const googleColumnIDs = `POSTAL_CODE STREET_ADDRESS CITY REGION COUNTRY COMPANY_NAME JOB_TITLE VEHICLE_MODEL VEHICLE_TYPE
	PREFERRED_DEALERSHIP VEHICLE_PURCHASE_TIMELINE VEHICLE_OWNERSHIP VEHICLE_PAYMENT_TYPE VEHICLE_CONDITION COMPANY_SIZE ANNUAL_SALES
	YEARS_IN_BUSINESS JOB_DEPARTMENT JOB_ROLE OVER_18_AGE OVER_65_AGE EDUCATION_PROGRAM EDUCATION_COURSE PRODUCT SERVICE OFFER CATEGORY
	PREFERRED_CONTACT_METHOD PREFERRED_LOCATION PREFERRED_CONTACT_TIME PURCHASE_TIMELINE YEARS_OF_EXPERIENCE JOB_INDUSTRY
	LEVEL_OF_EDUCATION PROPERTY_TYPE REALTOR_HELP_GOAL PROPERTY_COMMUNITY PRICE_RANGE NUMBER_OF_BEDROOMS FURNISHED_PROPERTY
	PETS_ALLOWED_PROPERTY NEXT_PLANNED_PURCHASE EVENT_SIGNUP_INTEREST PREFERRED_SHOPPING_PLACES FAVORITE_BRAND
	TRANSPORTATION_COMMERCIAL_LICENSE_TYPE EVENT_BOOKING_INTEREST DESTINATION_COUNTRY DESTINATION_CITY DEPARTURE_COUNTRY DEPARTURE_CITY
	DEPARTURE_DATE RETURN_DATE NUMBER_OF_TRAVELERS TRAVEL_BUDGET TRAVEL_ACCOMMODATION`

func TestMap_GoogleQuestionsAreNoContacts(t *testing.T) {
	t.Parallel()
	for id := range strings.FieldsSeq(googleColumnIDs) {
		_, got, _ := capturedBy(t, event.IntakeSettings{Kind: GoogleLeadForm}, Request{Body: fmt.Appendf(nil,
			`{"user_column_data":[{"column_id":%q,"string_value":"x"},{"column_id":"EMAIL",
			"string_value":"a@example.com"}]}`,
			id)})
		require.JSONEq(t, `{"email":"a@example.com","customFields":{"`+id+`":"x"},"metadata":{"source":"google_ad"}}`,
			got, id)
	}
}

func TestMap_MetaAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ lead, want string }{
		"work contacts": {
			`"field_data":[{"name":"work_email","values":["asha@company.example"]},{"name":"work_phone_number",
			"values":["+919876512345"]},
			{"name":"first_name","values":["Asha"]},{"name":"last_name","values":["Rao"]},{"name":"job_title","values":["Buyer"]}]`,
			`{"name":"Asha Rao","email":"asha@company.example","phone":"+919876512345",
			"customFields":{"job_title":"Buyer"},
			"metadata":{"source":"facebook_ad"}}`,
		},
		"in Portuguese": {
			`"field_data":[{"name":"nome_completo","values":["Asha Rao"]},{"name":"número_do_whatsapp",
			"values":["+919876512345"]},
			{"name":"platform","values":["PlayStation"]}]`,
			`{"name":"Asha Rao","phone":"+919876512345","customFields":{"platform":"PlayStation"},
			"metadata":{"source":"facebook_ad"}}`,
		},
		"names of the ad": {
			`"campaign_name":"Diwali","adset_name":"Pune","ad_name":"A","form_id":"5","platform":"ig",
			"is_organic":false,
			"created_time":"2025-02-28T08:49:14+0000","field_data":[{"name":"email","values":["a@example.com"]},
			{"name":"utm_campaign","values":["tracked"]}]`,
			`{"email":"a@example.com","customFields":{},"metadata":{"source":"facebook_ad","campaign_name":"Diwali",
			"adset_name":"Pune",
			"ad_name":"A","form_id":"5","platform":"ig","is_organic":false,"created_time":"2025-02-28T08:49:14+0000","utm_campaign":"tracked"}}`,
		},
		"disclaimers": {
			`"field_data":[{"name":"email","values":["a@example.com"]}],"custom_disclaimer_responses":[
			{"checkbox_key":"whatsapp_consent","is_checked":1},{"checkbox_key":"optional_1","is_checked":"1","text":"I agree"},
			{"checkbox_key":"optional_2","is_checked":""},{"checkbox_key":"optional_3","is_checked":false},{"checkbox_key":"optional_4"}]`,
			`{"email":"a@example.com","customFields":{},"metadata":{"source":"facebook_ad","consent":[
			{"purpose":"whatsapp_consent","granted":true,"method":"meta_lead_ads"},
			{"purpose":"optional_1","granted":true,"text":"I agree","method":"meta_lead_ads"}]}}`,
		},
	} {
		mapped, got, warnings := capturedBy(t, event.IntakeSettings{Kind: MetaLeadAds},
			Request{Body: []byte(`{"leadgen_id":"1",` + c.lead + `}`)})
		require.JSONEq(t, c.want, got, name)
		require.Empty(t, warnings, name)
		require.False(t, mapped.Test, name)
	}
}

// The values are those of Meta's tool for testing, now and some years ago.
func TestMap_MetaTest(t *testing.T) {
	t.Parallel()
	m := compiled(t, event.IntakeSettings{Kind: MetaLeadAds})
	for _, field := range []string{
		`{"name":"full_name","values":["<test lead: dummy data for full_name>"]}`,
		`{"name":"FULL_NAME","values":["<test lead: dummy data for FULL_NAME>"]}`,
		`{"name":"car","values":["<test lead: dummy data for car>"]}`,
		`{"name":"email","values":["test@fb.com"]}`, `{"name":"email","values":["test@meta.com"]}`,
	} {
		mapped, _ := m.Map(Request{Body: []byte(`{"field_data":[{"name":"city","values":["Pune"]},` + field + `]}`)})
		require.True(t, mapped.Test, field)
	}
}

// typeformPost is a response with answers to questions of these titles, numbered from 1.
func typeformPost(kind, titles, answers, hidden string) []byte {
	fields := []string{}
	for i, title := range strings.Split(titles, "|") {
		fields = append(fields, fmt.Sprintf(`{"id":"%d","title":%q,"ref":"ref-%d"}`, i+1, title, i+1))
	}
	for i := range 9 {
		answers = strings.ReplaceAll(answers, fmt.Sprintf("#%d", i),
			fmt.Sprintf(`"field":{"id":"%d","ref":"ref-%d","type":"short_text"}`, i, i))
	}
	return fmt.Appendf(nil, `{"event_type":%q,"form_response":{"form_id":"f","token":"tok","hidden":%s,
		"definition":{"fields":[{"id":"g","title":"Contact","properties":{"fields":[%s]}}]},"answers":[%s]}}`,
		kind, hidden, strings.Join(fields, ","), answers)
}

func TestMap_TypeformAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ titles, answers, hidden, want string }{
		"two of each": {
			"Your email|Your partner's email|Your phone|Mobile of your partner",
			`{"type":"email","email":"me@example.com",#1},{"type":"email","email":"friend@example.com",#2},
			{"type":"phone_number","phone_number":"+919876512345",#3},{"type":"phone_number","phone_number":"+919876554321",#4}`, "{}",
			`{"email":"me@example.com","phone":"+919876512345",
			"customFields":{"ref-2":"friend@example.com","ref-4":"+919876554321"},"metadata":{"source":"website","form_id":"f"}}`,
		},
		"of others, and of a company": {
			"Emergency contact phone|Reference phone|Company phone|Referrer email|Your phone|Email",
			`{"type":"phone_number","phone_number":"+919876554321",#1},
			{"type":"phone_number","phone_number":"+919876554322",#2},
			{"type":"phone_number","phone_number":"+912223456000",#3},{"type":"email","email":"friend@example.com",#4},
			{"type":"phone_number","phone_number":"+919876512345",#5},{"type":"email","email":"me@example.com",#6}`, "{}",
			`{"email":"me@example.com","phone":"+919876512345",
			"customFields":{"ref-1":"+919876554321","ref-2":"+919876554322","ref-3":"+912223456000",
			"ref-4":"friend@example.com"},
			"metadata":{"source":"website","form_id":"f"}}`,
		},
		"a company's alone": {
			"Emergency contact phone|Company phone",
			`{"type":"phone_number","phone_number":"+919876554321",#1},
			{"type":"phone_number","phone_number":"+912223456000",#2}`, "{}",
			`{"phone":"+912223456000","customFields":{"ref-1":"+919876554321"},
			"metadata":{"source":"website","form_id":"f"}}`,
		},
		"name": {
			"What's your *name*?|Email",
			`{"type":"text","text":"Asha Rao",#1},{"type":"email","email":"a@example.com",#2}`, "{}",
			`{"name":"Asha Rao","email":"a@example.com","customFields":{},"metadata":{"source":"website",
			"form_id":"f"}}`,
		},
		"contact information": {
			"First name|Last name|Phone number|Company|Name",
			`{"type":"text","text":"Asha",#1},{"type":"text","text":"Rao",#2},{"type":"phone_number",
			"phone_number":"+919876512345",#3},
			{"type":"text","text":"Rao & Co",#4},{"type":"choice","choice":{"label":"No name"},#5}`, "{}",
			`{"name":"Asha Rao","phone":"+919876512345","customFields":{"ref-4":"Rao & Co","ref-5":"No name"},
			"metadata":{"source":"website","form_id":"f"}}`,
		},
		"hidden": {
			"How did you hear of us?", `{"type":"text","text":"TV",#1}`,
			`{"email":"a@example.com","phone":"+919876512345","name":"Asha Rao","utm_source":"mail","plan":"pro",
			"source":"list","visitor_id":"v"}`,
			`{"name":"Asha Rao","email":"a@example.com","phone":"+919876512345","customFields":{"ref-1":"TV",
			"source":"list"},
			"metadata":{"source":"website","form_id":"f","utm_source":"mail","plan":"pro"}}`,
		},
		"answered and hidden": {
			"First name|Email", `{"type":"text","text":"Asha",#1},{"type":"email","email":"new@example.com",#2}`,
			`{"email":"old@example.com","name":"Old Name","phone":"+919876512345"}`,
			`{"name":"Asha","email":"new@example.com","phone":"+919876512345","customFields":{},
			"metadata":{"source":"website","form_id":"f","email":"old@example.com","name":"Old Name"}}`,
		},
		"an id that looks like a phone": {
			"Age|Email", `{"type":"number","number":7,#1},{"type":"email",
			"email":"a@example.com",#2}`, `{"id":"9876512345"}`,
			`{"email":"a@example.com","customFields":{"ref-1":7},"metadata":{"source":"website","form_id":"f",
			"id":"9876512345"}}`,
		},
	} {
		_, got, _ := capturedBy(t, event.IntakeSettings{Kind: Typeform},
			Request{Body: typeformPost("form_response", c.titles, c.answers, c.hidden)})
		require.JSONEq(t, c.want, got, name)
	}
}

func TestMap_TypeformPartial(t *testing.T) {
	t.Parallel()
	m := compiled(t, event.IntakeSettings{Kind: Typeform})
	ids := map[string]string{"form_response": "tok", "form_response_partial": "tok/partial", "": "tok"}
	for kind, want := range ids {
		mapped, wrong := m.Map(Request{Body: typeformPost(kind, "Email", `{"type":"email",
			"email":"a@example.com",#1}`, "null")})
		require.Empty(t, wrong)
		require.Equal(t, want, mapped.DeliveryID)
	}
	mapped, wrong := m.Map(Request{Body: []byte(`{"form_response":{"token":"tok","answers":null}}`)})
	require.Empty(t, wrong)
	require.Equal(t, "tok", mapped.DeliveryID)
}

func TestMap_RazorpayEvents(t *testing.T) {
	t.Parallel()
	const link = `"payment_link":{"entity":{"id":"plink_1","amount":50000,"currency":"INR","notes":{"plan":"pro"},
		"customer":{"name":"Asha Rao","email":"a@example.com","contact":"+919876512345"}}}`
	const payment = `"payment":{"entity":{"id":"pay_1","amount":20000,"currency":"INR","email":"void@razorpay.com",
			"contact":"+919876512345","notes":[]}}`
	for name, c := range map[string]struct{ payload, source, value string }{
		"payment_link.expired":        {link, "payment_page_drop", "500"},
		"payment_link.cancelled":      {link, "payment_page_drop", "500"},
		"payment_link.paid":           {link + "," + payment, "webhook", "200"},
		"payment_link.partially_paid": {link + "," + payment, "webhook", "200"},
		"payment.failed":              {payment, "payment_page_drop", "200"},
		"payment.captured":            {payment, "webhook", "200"},
		"order.paid":                  {payment, "webhook", "200"},
	} {
		mapped, got, _ := capturedBy(t, event.IntakeSettings{Kind: Razorpay, Source: "payment_page_drop"},
			Request{Body: []byte(`{"event":"` + name + `","payload":{` + c.payload + `}}`)})
		require.Equal(t, c.source, mapped.Source, name)
		require.Contains(t, got, `"source":"`+c.source+`"`, name)
		require.Contains(t, got, `"opportunityValue":"`+c.value+`"`, name)
		require.Contains(t, got, `"phone":"+919876512345"`, name)
		require.NotContains(t, got, "void@", name)
		if strings.Contains(c.payload, "plink_1") {
			require.Contains(t, got, `"name":"Asha Rao"`, name)
			require.Contains(t, got, `"email":"a@example.com"`, name)
			require.Contains(t, got, `"customFields":{"plan":"pro"}`, name)
		}
	}
	mapped, _, _ := capturedBy(t, event.IntakeSettings{Kind: Razorpay, Source: "website"},
		Request{Body: []byte(`{"event":"order.paid","payload":{` + payment + `}}`)})
	require.Equal(t, "website", mapped.Source, "the owner's choice")
}

// Razorpay sends void@razorpay.com, and payers type zeros, which would merge all of them into one lead.
func TestMap_RazorpayPlaceholders(t *testing.T) {
	t.Parallel()
	_, got, warnings := capturedBy(t, event.IntakeSettings{Kind: Razorpay}, Request{Body: []byte(
		`{"payload":{"payment":{"entity":{"contact":"+910000000000","email":"a@example.com","notes":[]}}}}`)})
	require.JSONEq(t, `{"email":"a@example.com","customFields":{},"metadata":{"source":"payment_page_drop"}}`, got)
	require.Equal(t, "PLACEHOLDER_CONTACT", warnings)
	_, got, warnings = capturedBy(t, event.IntakeSettings{Kind: Razorpay}, Request{Body: []byte(
		`{"payload":{"payment":{"entity":{"contact":"+919876512345","email":"void@razorpay.com","notes":[]}}}}`)})
	require.JSONEq(t, `{"phone":"+919876512345","customFields":{},"metadata":{"source":"payment_page_drop"}}`, got)
	require.Equal(t, "PLACEHOLDER_CONTACT", warnings)
}

func TestMap_StandardWebhookEnvelope(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"type":"contact.created","timestamp":"2026-01-02T03:04:05Z","data":{"fullName":"Asha Rao",
			"phone":"+919876512345","city":"Pune"}}`: `
			{"name":"Asha Rao","phone":"+919876512345","customFields":{"city":"Pune"},"metadata":{"source":"webhook"}}`,
		`{"email":"a@example.com","data":{"k":1}}`: `{"email":"a@example.com","customFields":{"data":{"k":1}},
			"metadata":{"source":"webhook"}}`,
	} {
		for _, header := range []string{"webhook-id", "svix-id"} {
			mapped, got, _ := capturedBy(t, event.IntakeSettings{Kind: StandardWebhooks},
				Request{Body: []byte(body), Headers: map[string]string{header: "msg_1"}})
			require.JSONEq(t, want, got)
			require.Equal(t, "msg_1", mapped.DeliveryID)
		}
	}
}

func TestMap_FormContacts(t *testing.T) {
	t.Parallel()
	for post, want := range map[string]string{
		// of the person, not of who handles the post
		`{"assigned_to":{"email":"agent@example.com","name":"Agent"},"contact":{"email":"a@example.com","name":"Asha"}}`: `
			{"name":"Asha","email":"a@example.com","customFields":{"email":"agent@example.com","name":"Agent"}}`,
		`{"called":"02223456000","caller":"9876512345","agent_number":"9876554321"}`: `
			{"phone":"+919876512345","customFields":{"called":"02223456000","agent_number":"9876554321"}}`,
		`{"parent_phone":"9876554321","student_phone":"9876512345"}`: `
			{"phone":"+919876512345","customFields":{"parent_phone":"9876554321"}}`,
		`{"parent_phone":"9876554321","grade":"5"}`: `{"phone":"+919876554321","customFields":{"grade":"5"}}`,
		// by the value
		`{"recipient":"shop@example.com","2":"9876512345"}`: `
			{"phone":"+919876512345","customFields":{"recipient":"shop@example.com"}}`,
		`{"order_id":"9876543210","text":"9876512345"}`: `
			{"phone":"+919876512345","customFields":{"order_id":"9876543210"}}`,
		`{"invoice_no":"9876543210","3":"a@example.com"}`: `
			{"email":"a@example.com","customFields":{"invoice_no":"9876543210"}}`,
		`{"company_email":"a@example.com"}`: `{"email":"a@example.com","customFields":{}}`,
		// an entry of Gravity Forms with an empty phone
		`{"form_id":"3","ip":"61.12.123.145","4":"61.12.123.146","2":"a@example.com","3":""}`: `
			{"email":"a@example.com","customFields":{"4":"61.12.123.146"}}`,
		`{"platform":"9876554321","text":"9876512345"}`: `{"phone":"+919876512345","customFields":{}}`,
		// repeated
		`{"email":["a@example.com","b@example.com"],"phone":["9876512345","9876554321"],"name":["Asha","Rao"]}`: `
			{"name":"Asha","email":"a@example.com","phone":"+919876512345",
			"customFields":{"email":"b@example.com","phone":"9876554321","name":"Rao"}}`,
		`{"attendees":[{"name":"Binu","email":"b@example.com"}],"name":"Asha","your_email":"a@example.com"}`: `
			{"name":"Asha","email":"a@example.com","customFields":{"name":"Binu","email":"b@example.com"}}`,
		// in full
		`{"phone":"7911 123456","phone_full":"+447911123456"}`: `
			{"phone":"+447911123456","customFields":{"phone":"7911 123456"}}`,
		`{"phone":"07911123456","e164":"+447911123456"}`: `
			{"phone":"+447911123456","customFields":{"phone":"07911123456"}}`,
		`{"phone":"9876512345","other_phone":"+919876554321"}`: `
			{"phone":"+919876512345","customFields":{"other_phone":"+919876554321"}}`,
		`{"q5_phone":{"country":"1","area":"202","phone":"555 0123"}}`: `{"phone":"+12025550123","customFields":{}}`,
		`{"q5_phone":{"country":"","area":"98765","phone":"12345"}}`:   `{"phone":"+919876512345","customFields":{}}`,
		`[{"name":"name","value":"Asha"},{"name":"email","value":"a@example.com"}]`: `
			{"name":"Asha","email":"a@example.com","customFields":{}}`,
		`{"emails":[{"address":"a@example.com"},{"address":"b@example.com"}]}`: `
			{"email":"a@example.com","customFields":{"address":"b@example.com"}}`,
	} {
		_, got, _ := capturedBy(t, event.IntakeSettings{Kind: Form, Mapping: map[string]string{"metadata": "{}"}},
			Request{Body: []byte(post)})
		require.JSONEq(t, want[:strings.LastIndex(want, "}")]+`,"metadata":{"source":"website"}}`, got, post)
	}
}

// The organizer, or the owner, would be the lead, and all bookings one.
func TestMap_HandledPosts(t *testing.T) {
	t.Parallel()
	const calCom = `{"triggerEvent":"BOOKING_CREATED","createdAt":"2026-05-24T09:30:00.538Z","payload":{"type":"60min",
		"title":"60min between Host and Asha Rao","additionalNotes":"","customInputs":{},
		"startTime":"2026-05-25T09:30:00Z","endTime":"2026-05-25T10:30:00Z",
		"organizer":{"id":5,"name":"Host","email":"host@example.org","username":"host","timeZone":"Asia/Kolkata","language":{"locale":"en"},"timeFormat":"h:mma","phoneNumber":"+919876554321"},
		"responses":{"name":{"label":"your_name","value":"Asha Rao"},
		"email":{"label":"email_address","value":"asha@example.com"},
		"location":{"label":"location","value":{"optionValue":"","value":"inPerson"}},"notes":{"label":"additional_notes"},
		"guests":{"label":"additional_guests","value":["guest@example.com"]}},"userFieldsResponses":{},
		"attendees":[{"email":"asha@example.com","name":"Asha Rao","timeZone":"Asia/Kolkata","language":{"locale":"en"}}],
		"location":"Pune","destinationCalendar":{"id":10,"integration":"apple_calendar",
		"externalId":"https://example.net/c/1","primaryEmail":"calendar@example.org","userId":5,"eventTypeId":null},
		"hideCalendarNotes":false,"requiresConfirmation":null,"eventTypeId":7,"uid":"bFJeNb2uX8ANpT3JL5EfXw",
		"eventTitle":"60min","price":0,"currency":"usd","length":60,"bookingId":91,"metadata":{},"status":"ACCEPTED"}}`
	const pipedrive = `{"id":1,"company_id":12,"owner_id":{"id":123,"name":"Agent","email":"agent@example.org","has_pic":1,
		"active_flag":true%s},"org_id":{"name":"Rao & Co","people_count":1,"owner_id":123,"address":"1 MG Road",
		"active_flag":true,"cc_email":"org@example.net","value":1234},"name":"Asha Rao","first_name":"Asha","last_name":"Rao",
		"open_deals_count":2,"visible_to":"3","phone":[{"value":"+919876512345","primary":true,"label":"work"}],
		"email":[{"value":"asha@example.com","primary":true,"label":"work"}],"first_char":"a","cc_email":"cc@example.net",
		"add_time":"2026-04-30 06:17:00","owner_name":"Agent","org_name":"Rao & Co","label":5}`
	asha := []string{"Asha Rao", "asha@example.com", ""}
	withPhone := []string{"Asha Rao", "asha@example.com", "+919876512345"}
	for post, want := range map[string][]string{
		calCom:                                 asha,
		fmt.Sprintf(pipedrive, ""):             withPhone,
		fmt.Sprintf(pipedrive, `,"value":123`): withPhone,
		`{"payload":{"attendees":[{"name":"Asha Rao","email":"asha@example.com"}],"organizer":{"name":"Host",
			"email":"host@example.org"},"responses":{"email":{"label":"email_address","value":"asha@example.com"}}}}`: asha,
		`{"attendees":[{"name":"Asha Rao","email":"asha@example.com"}],
			"host":{"name":"Host","email":"host@example.org"}}`: asha,
		`{"owner_id":{"name":"Agent","email":"agent@example.org"},"email":[{"label":"work","value":"asha@example.com"}],
			"name":"Asha Rao"}`: asha,
		`{"user_id":"9876554321","creator":"9876554321","email":"asha@example.com","name":"Asha Rao"}`: asha,
	} {
		for _, settings := range []event.IntakeSettings{{Kind: Form}, knownWebhook} {
			_, got, _ := capturedBy(t, settings, Request{Body: []byte(post)})
			var lead struct{ Name, Email, Phone string }
			require.NoError(t, json.Unmarshal([]byte(got), &lead, json.MatchCaseInsensitiveNames(true)))
			require.Equal(t, want, []string{lead.Name, lead.Email, lead.Phone}, post)
		}
	}
}

// knownWebhook has the mapping that the manual has for connectors.
var knownWebhook = event.IntakeSettings{Kind: Webhook, Mapping: map[string]string{
	"name": "known.name", "email": "known.email", "phone": "known.phone", "customFields": "known.rest", "metadata": "{}",
}}

// Only the first would be a lead, with the others as its custom fields.
func TestMap_SeveralPersons(t *testing.T) {
	t.Parallel()
	several := field.Errors{{Field: "body", Message: errSeveral.Error()}}
	for _, post := range []string{
		`[{"name":"Asha","phone":"9876512345"},{"name":"Binu","phone":"9876554321"}]`,
		`{"leads":[{"first_name":"Asha","email":"a@example.com"},{"first_name":"Binu","phone":"9876554321"}]}`,
		`{"attendees":[{"name":"Asha","email":"a@example.com"},{"name":"Binu","email":"b@example.com"}]}`,
	} {
		for _, settings := range []event.IntakeSettings{{Kind: Form}, knownWebhook} {
			_, wrong := compiled(t, settings).Map(Request{Body: []byte(post), Region: "IN"})
			require.Equal(t, several, wrong, "%s %s", settings.Kind, post)
		}
		// whom the mapping names itself
		own := event.IntakeSettings{Kind: Webhook, Mapping: map[string]string{
			"phone": "null", "email": `"a@example.com"`, "customFields": "known.rest",
		}}
		_, wrong := compiled(t, own).Map(Request{Body: []byte(post), Region: "IN"})
		require.Empty(t, wrong, post)
	}
}

// An intake with an expression of the arrivals but no other mapping read the post, which has none of their fields.
func TestMap_DefaultsReadItem(t *testing.T) {
	t.Parallel()
	m := compiled(t, event.IntakeSettings{Kind: Webhook, Each: "body.leads"})
	elements, _, err := m.Split(Request{Body: []byte(`{"campaign":"x","leads":[{"full_name":"Asha",
			"phone":"9876512345"}]}`)})
	require.NoError(t, err)
	mapped, wrong := m.Map(Request{Body: elements[0].Body, Item: true, Post: elements[0].Post})
	require.Empty(t, wrong)
	require.JSONEq(t, `["9876512345"]`, string(mapped.Body["phone"]))
	require.JSONEq(t, `"Asha"`, string(mapped.Body["name"]))
}
