package lead

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leadlog/leadlog/command/contact"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/eventstore/event"
)

var post = Rules{Region: "IN", Stages: []string{"new", "won"}, From: contact.Post}

func codes(warnings field.Warnings) []string {
	list := []string{}
	for _, w := range warnings {
		list = append(list, w.Field+" "+w.Code)
	}
	return list
}

func TestRepaired_KeepsPerson(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 2001)
	for name, c := range map[string]struct {
		body, want string
		warnings   []string
	}{
		"nothing to repair": {
			`{"phone":"9876543210","name":"Asha"}`, `{"phone":"9876543210","name":"Asha"}`, []string{},
		},
		"unknown stage": {
			`{"phone":"9876543210","status":"complete"}`, `{"phone":"9876543210","customFields":{"status":"complete"}}`,
			[]string{"status STATUS_UNKNOWN"},
		},
		"stage": {
			`{"phone":"9876543210","status":"WON"}`, `{"phone":"9876543210","status":"WON"}`, []string{},
		},
		"temperature": {
			`{"phone":"9876543210","leadTemperature":"lukewarm"}`,
			`{"phone":"9876543210","customFields":{"leadTemperature":"lukewarm"}}`,
			[]string{"leadTemperature TEMPERATURE_UNKNOWN"},
		},
		"value": {
			`{"phone":"9876543210","opportunityValue":"5 lakh"}`,
			`{"phone":"9876543210","customFields":{"opportunityValue":"5 lakh"}}`,
			[]string{"opportunityValue VALUE_UNREADABLE"},
		},
		"value as a number": {
			`{"phone":"9876543210","opportunityValue":12.5}`, `{"phone":"9876543210","opportunityValue":12.5}`,
			[]string{},
		},
		"phone beside email": {
			`{"phone":"12","email":"a@example.com"}`, `{"email":"a@example.com","customFields":{"phone":"12"}}`,
			[]string{"phone VALUE_UNREADABLE"},
		},
		"email beside phone": {
			`{"phone":"9876543210","email":"a@"}`, `{"phone":"9876543210","customFields":{"email":"a@"}}`,
			[]string{"email VALUE_UNREADABLE"},
		},
		"no usable contact": {`{"phone":"12"}`, `{"phone":"12"}`, []string{}},
		"several phones": {
			`{"phone":["12","9876543210","9876543211"]}`,
			`{"phone":"9876543210","customFields":{"phone":"9876543211","phone (2)":"12"}}`,
			[]string{"phone VALUE_UNREADABLE"},
		},
		"several lists of phones": {
			`{"phone":[["N/A",null,""],["9876543210","+91 98765 43210"],"080 23456000","9876543210"]}`,
			`{"phone":"9876543210","customFields":{"phone":"080 23456000"}}`, []string{"phone PLACEHOLDER_CONTACT"},
		},
		"several emails": {
			`{"email":["asha@example.com","ASHA@example.com","b@example.com"]}`,
			`{"email":"asha@example.com","customFields":{"email":"b@example.com"}}`, []string{},
		},
		"phone in parts": {
			`{"phone":{"countryCode":"+91","number":"9876512345","extension":""}}`, `{"phone":"+91 9876512345"}`,
			[]string{},
		},
		"phone of another country in parts": {
			`{"phone":{"country_code":65,"phoneNumber":"93334444"}}`, `{"phone":"+65 93334444"}`, []string{},
		},
		"phone in parts without a code": {
			`{"phone":{"countryCode":"US","number":"9845012345"},"email":"a@example.com"}`,
			`{"email":"a@example.com","customFields":{"phone":{"countryCode":"US","number":"9845012345"}}}`,
			[]string{"phone VALUE_UNREADABLE"},
		},
		"phone in other parts": {
			`{"phone":{"countryCode":"+91","number":"9876512345","kind":"home"},"email":["a@example.com",{"verified":true}]}`,
			`{"email":"a@example.com","customFields":{"phone":{"countryCode":"+91","number":"9876512345","kind":"home"},
				"email":{"verified":true}}}`, []string{"phone VALUE_UNREADABLE", "email VALUE_UNREADABLE"},
		},
		"only a phone in other parts": {`{"phone":{"main":"9876512345"}}`, `{"phone":{"main":"9876512345"}}`, []string{}},
		"yes for a phone": {
			`{"phone":true,"email":"a@example.com"}`, `{"email":"a@example.com","customFields":{"phone":true}}`,
			[]string{"phone VALUE_UNREADABLE"},
		},
		"name in parts": {
			`{"phone":"9876543210","name":{"last":"Rao","first":"Asha"}}`, `{"phone":"9876543210","name":"Asha Rao"}`,
			[]string{},
		},
		"name in other parts": {
			`{"phone":"9876543210","name":{"first":"Asha","middle":"K"}}`,
			`{"phone":"9876543210","customFields":{"name":{"first":"Asha","middle":"K"}}}`,
			[]string{"name VALUE_UNREADABLE"},
		},
		"several names": {
			`{"phone":"9876543210","name":["Asha","Binu"]}`,
			`{"phone":"9876543210","name":"Asha","customFields":{"name":"Binu"}}`, []string{},
		},
		"phone as a number": {`{"phone":9876543210}`, `{"phone":"9876543210"}`, []string{}},
		"placeholder email": {
			`{"phone":"9876543210","email":"void@razorpay.com"}`, `{"phone":"9876543210"}`,
			[]string{"email PLACEHOLDER_CONTACT"},
		},
		"placeholder phone": {
			`{"phone":"+919999999999","email":"a@example.com"}`, `{"email":"a@example.com"}`,
			[]string{"phone PLACEHOLDER_CONTACT"},
		},
		"test lead": {
			`{"phone":"<test lead: dummy data for phone>","email":"a@example.com"}`, `{"email":"a@example.com"}`,
			[]string{"phone PLACEHOLDER_CONTACT"},
		},
		"only placeholders": {
			`{"phone":"0000000000","email":"N/A"}`, `{}`,
			[]string{"phone PLACEHOLDER_CONTACT", "email PLACEHOLDER_CONTACT"},
		},
		"long message": {
			`{"phone":"9876543210","customFields":{"message":"` + long + `"}}`,
			`{"phone":"9876543210","customFields":{"message":"` + long[1:] + `"}}`, []string{"message VALUE_SHORTENED"},
		},
		"long visitor": {
			`{"phone":"9876543210","visitorId":"` + long[:201] + `"}`,
			`{"phone":"9876543210","customFields":{"visitorId":"` + long[:201] + `"}}`,
			[]string{"visitorId VALUE_UNREADABLE"},
		},
	} {
		got, warnings := Repaired(mustMembers(t, c.body), post, false)
		delete(got, "metadata")
		require.JSONEq(t, c.want, string(objectOf(got)), name)
		require.ElementsMatch(t, c.warnings, codes(warnings), name)
	}
}

// A person who can correct a contact is asked about one that is wrong, and not about a list with one that is not.
func TestRepaired_AsksPerson(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"phone":"12","email":"N/A"}`:    `{"phone":"12","email":"N/A"}`,
		`{"phone":["12","9876543210"]}`:   `{"phone":"9876543210","customFields":{"phone":"12"}}`,
		`{"phone":["12"],"email":["a@"]}`: `{"phone":"12","email":"a@"}`,
		`{"phone":"12","email":["a@example.com","b@a.com"]}`: `{"email":"a@example.com",
			"customFields":{"email":"b@a.com","phone":"12"}}`,
	} {
		got, _ := Repaired(mustMembers(t, body), post, true)
		require.JSONEq(t, want, string(objectOf(got)), body)
	}
}

// A list of contacts is not longer than the custom fields that a lead can have.
func TestRepaired_ManyContacts(t *testing.T) {
	t.Parallel()
	phones := make([]string, 10_000)
	for i := range phones {
		phones[i] = fmt.Sprintf("98765%05d", i)
	}
	body, _ := json.Marshal(map[string]any{"phone": phones})
	got, warnings := Repaired(mustMembers(t, string(body)), post, false)
	require.Equal(t, `"9876500000"`, string(got["phone"]))
	require.Equal(t, []string{"phone FIELD_DROPPED"}, codes(warnings))
	custom, err := Members(got["customFields"])
	require.NoError(t, err)
	require.Len(t, custom, MaxCustomFields)
}

// A form with two contacts may have one that is on the account's list.
func TestRepaired_IgnoredContact(t *testing.T) {
	t.Parallel()
	rules := post
	rules.Ignored = contact.Ignored{"+919123456780", "8111", "test@test.com"}
	for name, c := range map[string]struct {
		body, want string
		warnings   []string
	}{
		"before another": {
			`{"phone":["9123456780","9876543210"],"email":["test@test.com","a@example.com"]}`,
			`{"phone":"9876543210","email":"a@example.com"}`, []string{"phone IGNORED_CONTACT", "email IGNORED_CONTACT"},
		},
		"after another": {
			`{"phone":["9876543210","8111"]}`, `{"phone":"9876543210"}`, []string{"phone IGNORED_CONTACT"},
		},
		"alone": {
			`{"phone":["9123456780"],"email":"a@example.com"}`, `{"phone":"9123456780","email":"a@example.com"}`, []string{},
		},
	} {
		got, warnings := Repaired(mustMembers(t, c.body), rules, false)
		delete(got, "metadata")
		delete(got, "customFields")
		require.JSONEq(t, c.want, string(objectOf(got)), name)
		require.ElementsMatch(t, c.warnings, codes(warnings), name)
		a, err := ParseArrival(got, rules, Client{})
		require.NoError(t, err, name)
		require.False(t, rules.Ignored.HasPhone(a.Phone) || rules.Ignored.HasEmail(a.Email), name)
		require.Empty(t, a.CustomFields, name)
	}
}

// A question is kept under its first 50 characters, and two that begin alike under names of their own.
func TestRepaired_LongNames(t *testing.T) {
	t.Parallel()
	question := strings.Repeat("w", 50)
	body, _ := json.Marshal(map[string]any{
		"phone": "9876543210", "customFields": map[string]any{question + "a": "1", question + "b": "2", " \x01 ": "3"},
	})
	got, _ := Repaired(mustMembers(t, string(body)), post, false)
	var custom map[string]string
	require.NoError(t, json.Unmarshal(got["customFields"], &custom))
	require.Equal(t, map[string]string{question: "1", question[:45] + " (2)": "2", "field": "3"}, custom)
}

// Of many names that are cut to the same one, as many are kept as a lead has room for.
func TestRepaired_ManyLongNames(t *testing.T) {
	t.Parallel()
	custom := map[string]any{}
	for i := range 5000 {
		custom[strings.Repeat("w", 50)+fmt.Sprint(i)] = "1"
	}
	body, _ := json.Marshal(map[string]any{"phone": "9876543210", "customFields": custom})
	got, warnings := Repaired(mustMembers(t, string(body)), post, false)
	a, err := ParseArrival(got, post, Client{})
	require.NoError(t, err)
	require.Len(t, a.CustomFields, MaxCustomFields)
	require.Contains(t, codes(warnings), strings.Repeat("w", 50)+" FIELD_DROPPED")
}

func TestRepaired_Limits(t *testing.T) {
	t.Parallel()
	custom, metadata := map[string]any{}, map[string]any{"utm_source": "google"}
	for i := range 70 {
		custom[fmt.Sprintf("field %02d", i)], metadata[fmt.Sprintf("key %02d", i)] = strings.Repeat("y", 100), "m"
	}
	body, _ := json.Marshal(map[string]any{"phone": "9876543210", "customFields": custom, "metadata": metadata})
	got, warnings := Repaired(mustMembers(t, string(body)), post, false)
	a, err := ParseArrival(got, post, Client{})
	require.NoError(t, err)
	require.Len(t, a.CustomFields, MaxCustomFields)
	require.Len(t, a.Metadata, MaxMetadataKeys)
	require.Contains(t, a.Metadata, "utm_source")
	require.Len(t, warnings, 20+7)
}

// Whatever a mapping returns, only the contacts can be wrong afterwards.
func TestRepaired_OnlyContactsAreWrong(t *testing.T) {
	t.Parallel()
	value := rapid.OneOf(
		rapid.SampledFrom([]string{
			`""`, `"x"`, `0`, `1.5`, `true`, `[]`, `["a","b"]`, `{"a":1}`, `[1,[2]]`, `"9876543210"`, `"a@example.com"`,
			`"won"`, `"5 lakh"`, `null`,
		}),
		rapid.Custom(func(t *rapid.T) string { return string(quote(rapid.String().Draw(t, "text"))) }),
	)
	rapid.Check(t, func(t *rapid.T) {
		body := map[string]jsontext.Value{
			"metadata": jsontext.Value(`{"source":"website","userAgent":` + value.Draw(t, "agent") + `}`),
		}
		for _, name := range append(FieldNames(), "visitorId") {
			if rapid.Bool().Draw(t, "has "+name) {
				body[name] = jsontext.Value(value.Draw(t, name))
			}
		}
		custom := map[string]jsontext.Value{}
		for range rapid.IntRange(0, 4).Draw(t, "custom") {
			custom[rapid.StringN(0, 60, -1).Draw(t, "key")] = jsontext.Value(value.Draw(t, "value"))
		}
		body["customFields"] = objectOf(custom)
		before := string(objectOf(body))
		got, _ := Repaired(body, post, false)
		require.Equal(t, before, string(objectOf(body)), "the body is unchanged")
		_, err := ParseArrival(got, post, Client{})
		var wrong field.Errors
		if err != nil {
			require.ErrorAs(t, err, &wrong)
		}
		for _, one := range wrong {
			require.Contains(t, []string{"phone", "email"}, one.Field, one.Message)
		}
		again, _ := Repaired(got, post, false)
		require.Equal(t, string(objectOf(got)), string(objectOf(again)), "once is enough")
	})
}

func mustMembers(t *testing.T, body string) map[string]jsontext.Value {
	t.Helper()
	members, err := Members(jsontext.Value(body))
	require.NoError(t, err)
	return members
}

// A sender that cannot correct an arrival loses the fields for which the lead has no room, and not the person.
func TestDecide_KeepsPersonWithoutSurplus(t *testing.T) {
	t.Parallel()
	target := leadA("website")
	target.CustomFields, target.Metadata = map[string]jsontext.Value{}, map[string]jsontext.Value{}
	for i := range MaxCustomFields - 1 {
		target.CustomFields[fmt.Sprintf("has %02d", i)] = quote("old")
	}
	for i := range MaxMetadataKeys - 1 {
		target.Metadata[fmt.Sprintf("has %02d", i)] = quote("old")
	}
	a := accepted(t, `{"phone":"`+phoneA+`","customFields":{"a":"1","b":"2","has 00":"new"},
		"metadata":{"a":"1","utm_source":"google","has 00":"new"}}`)
	for _, from := range []contact.Source{contact.Post, contact.File} {
		rules := someRules
		rules.From = from
		decision, err := Decide(a, rules, target, nil, NewIDs{})
		require.NoError(t, err)
		merged := decision.Fact.(event.LeadMerged)
		require.JSONEq(t, `{"a":"1","has 00":"new"}`, string(objectOf(merged.CustomFields)))
		require.JSONEq(t, `{"utm_source":"google","has 00":"new"}`, string(objectOf(merged.Metadata)))
		require.Equal(t, []string{"b FIELD_DROPPED", "metadata.a FIELD_DROPPED"}, codes(a.WarningsOf(merged, State{})))
	}
	_, err := Decide(a, someRules, target, nil, NewIDs{})
	var wrong field.Errors
	require.ErrorAs(t, err, &wrong)
	require.Equal(t, field.Errors{
		{Field: "customFields", Message: tooManyCustom},
		{Field: "metadata", Message: "must have at most 64 keys and 32 KiB, with those that the lead has"},
	}, wrong)
}

func TestUnaliased_FieldsUnderOwnNames(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{}`: `{}`,
		`{"phone":1,"name":"{{name}}","contactName":"Asha","full_name":"x","visitor_id":"v","leadId":"l"}`: `{"name":"Asha",` +
			`"phone":1,"visitorId":"v"}`,
		`{"a":1,"b":2,"fields":{"a":3,"c":null},"customFields":{"a":4}}`: `{"customFields":{"a":4,"b":2}}`,
		`{"customFields":"x","metadata":7}`:                              `{"customFields":{"customFields":"x"},"metadata":7}`,
	} {
		members, err := ParseObject([]byte(body))
		require.NoError(t, err)
		require.JSONEq(t, want, string(objectOf(Unaliased(members))), body)
	}
}
