package lead

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/contact"
	"github.com/leadlog/leadlog/command/field"
)

func TestParseArrival_Warnings(t *testing.T) {
	t.Parallel()
	rules := someRules
	rules.Ignored = contact.Ignored{"+919999999999", "0000000000", "test@test.com", "*@mailinator.com"}
	for body, want := range map[string][]string{
		`{"phone":"9876543210"}`:                                 nil,
		`{"phone":"9876543210","metadata":{"source":"website"}}`: nil,
		`{"phone":"9876543210","metadata":{"source":""}}`:        nil,
		`{"phone":"9876543210","metadata":{"source":"Website"}}`: {
			"metadata.source UNKNOWN_SOURCE",
		},
		`{"phone":"9876543210","metadata":{"source":"manual"}}`: {
			"metadata.source UNKNOWN_SOURCE",
		},
		`{"phone":"9876543210","metadata":{"source":7}}`: {
			"metadata.source UNKNOWN_SOURCE",
		},
		`{"phone":"9876543210",` +
			`"name":"undefined"}`: {"name NOT_A_NAME"},
		`{"phone":"9876543210","name":"{{name}}","fullName":"-"}`: {
			"name NOT_A_NAME", "fullName NOT_A_NAME",
		},
		`{"phone":"9876543210","name":"N/A","fullName":"Asha"}`: nil,
		`{"phone":"9876543210","name":" "}`:                     nil,
		`{"email":"asha@example.com","mobile":"98765 43210"}`: {
			"mobile CONTACT_IN_CUSTOM_FIELD",
		},
		`{"email":"asha@example.com","Téléphone (portable)":"none yet","Anzahl":"3"}`: {
			"Téléphone (portable) CONTACT_IN_CUSTOM_FIELD",
		},
		`{"phone":"9876543210","form_fields[email]":"-"}`: {
			"form_fields[email] CONTACT_IN_CUSTOM_FIELD",
		},
		`{"email":"asha@example.com","Phone":"none yet"}`: {
			"Phone CONTACT_IN_CUSTOM_FIELD",
		},
		`{"email":"asha@example.com","customFields":{"other":"+91 98765 43210"}}`: {
			"customFields.other CONTACT_IN_CUSTOM_FIELD",
		},
		`{"email":"asha@example.com","industryData":{"other":9876543210}}`: {
			"industryData.other CONTACT_IN_CUSTOM_FIELD",
		},
		`{"email":"asha@example.com","budget":"50000","day":"2026-11-28","note":"call 9876543210"}`: nil,
		`{"phone":"9876543210","fields":{"contact":"Asha@Example.com"}}`: {
			"fields.contact CONTACT_IN_CUSTOM_FIELD",
		},
		`{"phone":"9876543210","Email":"-"}`: {
			"Email CONTACT_IN_CUSTOM_FIELD",
		},
		`{"phone":"9876543210","email":"a@example.com","mobile":"9876543211"}`: nil,
		`{"phone":"9876543210",` +
			`"email":"Test@Test.com"}`: {"email IGNORED_CONTACT"},
		`{"phone":"99999 99999",` +
			`"email":"asha@example.com"}`: {"phone IGNORED_CONTACT"},
		`{"phone":"000-000-0000",` +
			`"email":"asha@example.com"}`: {"phone IGNORED_CONTACT"},
		`{"phone":"9876543210","email":"x@mailinator.com","name":"null"}`: {
			"name NOT_A_NAME", "email IGNORED_CONTACT",
		},
	} {
		members, err := Members([]byte(body))
		require.NoError(t, err)
		arrival, err := ParseArrival(members, rules, Client{})
		require.NoError(t, err, body)
		var got []string
		for _, one := range arrival.Warnings {
			require.NotEmpty(t, one.Message)
			got = append(got, one.Field+" "+one.Code)
		}
		require.Equal(t, want, got, body)
	}
}

func TestParseArrival_IgnoredContactIsAbsent(t *testing.T) {
	t.Parallel()
	rules := someRules
	rules.Ignored = contact.Ignored{"+919999999999", "0000000000", "test@test.com"}
	for body, want := range map[string][]string{
		`{"phone":"9999999999"}`:                            {"phone"},
		`{"phone":"0000000000"}`:                            {"phone"},
		`{"email":"test@test.com"}`:                         {"email"},
		`{"phone":"9999999999","email":"test@test.com"}`:    {"phone", "email"},
		`{"phone":"9999999999","email":""}`:                 {"phone"},
		`{"phone":"9876543210","email":"test@test.com"}`:    nil,
		`{"phone":"9999999999","email":"asha@example.com"}`: nil,
	} {
		members, err := Members([]byte(body))
		require.NoError(t, err)
		arrival, err := ParseArrival(members, rules, Client{})
		var got []string
		if err != nil {
			for _, one := range err.(field.Errors) {
				require.Equal(t, "is on the account's list of ignored contacts", one.Message)
				got = append(got, one.Field)
			}
		}
		require.Equal(t, want, got, body)
		require.NotEqual(t, "+919999999999", arrival.Phone)
		require.NotEqual(t, "test@test.com", arrival.Email)
	}
}
