package lead

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// members returns n members of a JSON object, named prefix0, prefix1 and so on.
func members(prefix string, n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = strconv.Quote(prefix+strconv.Itoa(i)) + ":1"
	}
	return strings.Join(list, ",")
}

func TestCustomFields_Union(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, members string
		want          map[string]string
	}{
		{"none", `"name":"Asha"`, map[string]string{}},
		{
			"one in each", `"a":1,"fields":{"b":2},"industryData":{"c":3},"customFields":{"d":4}`,
			map[string]string{"a": "1", "b": "2", "c": "3", "d": "4"},
		},
		{
			"customFields before all", `"k":1,"fields":{"k":2},"industryData":{"k":3},"customFields":{"k":4}`,
			map[string]string{"k": "4"},
		},
		{"industryData before fields", `"k":1,"fields":{"k":2},"industryData":{"k":3}`, map[string]string{"k": "3"}},
		{"fields before the top level", `"k":1,"fields":{"k":2}`, map[string]string{"k": "2"}},
		{
			"the order in the body is irrelevant",
			`"customFields":{"k":4},"industryData":{"k":3},"fields":{"k":2},"k":1`, map[string]string{"k": "4"},
		},
		{
			"an empty value does not override",
			`"k":1,"fields":{"k":""},"industryData":{"k":null},"customFields":{"k":{}}`,
			map[string]string{"k": "1"},
		},
		{"keys are compared exactly", `"city":1,"City":2,"customFields":{"CITY":3}`, map[string]string{
			"city": "1", "City": "2", "CITY": "3",
		}},
		{"empty places", `"customFields":{},"industryData":null,"fields":""`, map[string]string{}},
	} {
		require.Equal(t, c.want, values(accepted(t, withPhone(c.members)).CustomFields), c.name)
	}
}

func TestCustomFields_ReservedNames(t *testing.T) {
	t.Parallel()
	a := accepted(t,
		`{"phone":"9876543210","email":"a@example.com","name":"n","contactName":"n","contact_name":"n","fullName":"n","full_name":"n",
		"status":"new","leadTemperature":"hot","opportunityValue":1,"metadata":{"a":1},"customFields":{},"industryData":{},"fields":{},
		"visitorId":"v","visitor_id":"v"}`)
	require.Empty(t, a.CustomFields, "members of the request format")

	echoed := accepted(t,
		`{"phone":"9876543210","leadId":"01K","contactUID":"01K","opportunityId":"01K","source":"website",
		"createdAt":"2026-01-01T00:00:00.000Z","updatedAt":"2026-01-01T00:00:00.000Z","accountId":"acme"}`)
	require.Empty(t, echoed.CustomFields, "members of a response, sent back")
}

func TestCustomFields_ReservedNamesExactly(t *testing.T) {
	t.Parallel()
	require.Equal(t, map[string]string{"Phone": `"12"`, "NAME": `"n"`, "leadid": "1", "lead_id": "2"},
		values(accepted(t, withPhone(`"Phone":"12","NAME":"n","leadid":1,"lead_id":2`)).CustomFields))
	for _, member := range []string{"customFields", "industryData", "fields"} {
		a := accepted(t, withPhone(`"`+member+`":{"phone":"12","status":"x","leadId":"y","customFields":{"z":1}}`))
		require.Equal(t, map[string]string{
			"phone": `"12"`, "status": `"x"`, "leadId": `"y"`, "customFields": `{"z":1}`,
		},
			values(a.CustomFields), member)
		require.Equal(t, "+919876543210", a.Phone)
	}
}

func TestCustomFields_AtMost50(t *testing.T) {
	t.Parallel()
	require.Len(t, accepted(t, withPhone(`"customFields":{`+members("k", 50)+`}`)).CustomFields, 50)
	require.Equal(t, []string{"customFields"}, refused(t, withPhone(`"customFields":{`+members("k", 51)+`}`)))
	require.Len(t, accepted(t, withPhone(members("k", 50)+`,"fields":{`+members("k", 50)+`}`)).CustomFields,
		50, "the same keys twice")
	require.Equal(t, []string{"customFields"},
		refused(t,
			withPhone(members("a", 20)+`,"fields":{`+members("b", 20)+`},"industryData":{`+members("c", 11)+`}`)),
		"members of all places count")
	require.Len(t, accepted(t, withPhone(members("k", 50)+`,"x":"","y":null,"z":[]`)).CustomFields,
		50, "empty values do not count")
}

func TestCustomFields_ValuesKept(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		`" Pune\n"`:            `" Pune\n"`,
		`"a\u0007b"`:           `"a\u0007b"`,
		`0`:                    `0`,
		`1.50`:                 `1.50`,
		`12345678901234567890`: `12345678901234567890`,
		`true`:                 `true`,
		`false`:                `false`,
		`[1, 2]`:               `[1,2]`,
		`{"b": 1, "a": null}`:  `{"b":1,"a":null}`,
		`"<b>"`:                `"<b>"`,
		`"\u0041"`:             `"A"`,
	} {
		require.Equal(t, map[string]string{"k": want}, values(accepted(t, withPhone(`"k":`+given)).CustomFields), given)
		require.Equal(t, map[string]string{"k": want},
			values(accepted(t, withPhone(`"customFields":{"k":`+given+`}`)).CustomFields), given)
	}
	for _, given := range []string{`""`, `" \t"`, `null`, `{}`, `[]`, `[ ]`} {
		require.Empty(t, accepted(t, withPhone(`"k":`+given)).CustomFields, "%s is dropped", given)
	}
}

func TestCustomFields_ValueLimit(t *testing.T) {
	t.Parallel()
	for name, given := range map[string]string{
		"a string":                     `"` + str(2000) + `"`,
		"letters and not bytes":        `"` + strings.Repeat("é", 2000) + `"`,
		"composed by NFC":              `"` + strings.Repeat(`e\u0301`, 2000) + `"`,
		"characters, not escapes":      `"` + strings.Repeat(`\"`, 2000) + `"`,
		"an array":                     `["` + str(1996) + `"]`,
		"an array without white space": `[` + strings.Repeat(" ", 3000) + `"` + str(1996) + `"]`,
		"an object":                    `{"a":"` + str(1992) + `"}`,
		"a number":                     `1` + strings.Repeat("0", 300),
	} {
		require.Len(t, accepted(t, withPhone(`"k":`+given)).CustomFields, 1, name)
	}
	for name, given := range map[string]string{
		"a string":  `"` + str(2001) + `"`,
		"an array":  `["` + str(1997) + `"]`,
		"an object": `{"a":"` + str(1994) + `"}`,
	} {
		require.Equal(t, []string{"k"}, refused(t, withPhone(`"k":`+given)), name)
		require.Equal(t, []string{"fields.k"}, refused(t, withPhone(`"fields":{"k":`+given+`}`)), name)
	}
}

func TestCustomFields_TotalLimit(t *testing.T) {
	t.Parallel()
	const composed = "α\u0313\u0300\u0345" // one character, of eight bytes
	body := func(n int, key, value string) string {
		fields := make([]string, n)
		for i := range fields {
			fields[i] = fmt.Sprintf(`"%s%02d":"%s"`, key, i, value)
		}
		return withPhone(strings.Join(fields, ","))
	}
	require.Len(t, accepted(t, body(44, "k", strings.Repeat(composed, 2000))).CustomFields, 44)
	require.Equal(t, []string{"customFields"}, refused(t, body(50, "k", strings.Repeat(composed, 2000))))

	wide := strings.Repeat("\U0001F600", 48) // six times as long when escaped
	exact := (700<<10)/50 - len(wide) - len(`"00""" `) + 1
	value := strings.Repeat(composed, exact/8) + strings.Repeat("x", exact%8)
	require.Len(t, accepted(t, body(50, wide, value)).CustomFields, 50)
	require.Equal(t, []string{"customFields"}, refused(t, body(50, wide, value+"x")))
}

func TestCustomFields_KeyLimit(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]string{
		"50 characters": str(50), "letters and not bytes": strings.Repeat("é", 50), "with a dot": "a.b",
		"with spaces":     " a b ",
		"composed by NFC": strings.Repeat("e\u0301", 50),
	} {
		require.Len(t, accepted(t, withPhone(strconv.Quote(key)+`:1`)).CustomFields, 1, name)
	}
	for _, c := range []struct{ name, key, field string }{
		{"51 characters", str(51), "customFields." + str(50) + "…"},
		{"of any length", str(5000), "customFields." + str(50) + "…"},
		{"empty", "", "customFields."},
		{"blank", `  `, "customFields.  "},
		{"control character", `a\u0007`, "customFields.a\a"},
		{"line break", `a\n`, "customFields.a\n"},
	} {
		require.Equal(t, []string{c.field}, refused(t, withPhone(`"customFields":{"`+c.key+`":1}`)), c.name)
		require.Equal(t, []string{strings.TrimPrefix(c.field, "customFields.")},
			refused(t, withPhone(`"`+c.key+`":1`)), c.name)
		require.Empty(t, accepted(t, withPhone(`"customFields":{"`+c.key+`":""}`)).CustomFields,
			"%s: an empty value is dropped before its key is checked", c.name)
	}
	require.Equal(t, []string{"customFields.a", "customFields.c"},
		refused(t, withPhone(`"customFields":{"c":"`+str(2001)+`","a":"`+str(2001)+`","b":1}`)),
		"the order of errors is stable")
}

func TestCustomFields_ErrorsDeterministic(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", MaxCustomValue+1)
	body := withPhone(strings.ReplaceAll(members("k", 150), ":1", `:"`+long+`"`))
	first := refused(t, body)
	require.Len(t, first, 100)
	for range 10 {
		require.Equal(t, first, refused(t, body))
	}
}
