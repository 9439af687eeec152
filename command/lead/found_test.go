package lead

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/field"
)

func TestParseArrival_NamesWhatItFound(t *testing.T) {
	t.Parallel()
	const elsewhere = "or email is required, by exactly this name at the top level; the body has "
	for body, want := range map[string]string{
		`{}`: "or email is required",
		`{"phone":"","name":"Asha","metadata":{"source":"website"}}`:  "or email is required",
		`{"Phone":"9876543210","city":"Pune","b":1}`:                  elsewhere + `"Phone", "b", "city"`,
		`{"data":{"phone":"9876543210","city":"Pune"}}`:               elsewhere + `"data.phone"`,
		`{"data":{"name":"Asha"}}`:                                    elsewhere + `"data"`,
		`{"lead":[{"phone":"9876543210"}],"id":7}`:                    elsewhere + `"lead", "id"`,
		`{"customFields":{"email":"a@example.com"}}`:                  elsewhere + `"customFields.email"`,
		`{"phone_number":"9876543210","e-mail":"a@b.c","a":1,"b":{}}`: elsewhere + `"e-mail", "phone_number", "b"`,
		`{"phone\u202e\n\"":1}`:                                       elsewhere + `"phone\u202e\n\""`,
		`{"phone` + strings.Repeat("x", 1000) + `":"9876543210"}`: elsewhere + `"phone` + strings.Repeat("x",
			45) + `…"`,
		`{"data":{"phone` + strings.Repeat("x", 1000) + `":1},"z":"z"}`: elsewhere + `"data.phone` + strings.Repeat("x",
			45) + `…", "z"`,
	} {
		_, err := parse(t, body)
		var wrong field.Errors
		require.ErrorAs(t, err, &wrong, body)
		require.Contains(t, wrong, field.Error{Field: "phone", Message: want}, body)
	}
	_, err := parse(t, `{"phone":"12","Phone":"9876543210"}`)
	require.Equal(t, field.Errors{{Field: "phone", Message: "is not a valid phone number"}}, err)
}
