package lead

import (
	"bytes"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
)

// FuzzCustomFields compares ParseArrival with a simple merge of the four places for custom fields.
func FuzzCustomFields(f *testing.F) {
	f.Add([]byte(`{"k":1,"a":" "}`), []byte(`{"k":2,"b":[]}`), []byte(`{"k":""}`), []byte(`{"k":{"x":1.50}}`))
	f.Add([]byte(`{"phone":1,"Phone":2,"customFields":3}`), []byte(`{"phone":1}`), []byte(`{"é":1,"é":2}`),
		[]byte(`{"\u0001":1}`))
	f.Fuzz(func(t *testing.T, top, fields, industry, custom []byte) {
		body := map[string]jsontext.Value{}
		sources := []map[string]jsontext.Value{{}}
		all, err := Members(top)
		if err != nil {
			return
		}
		for key, value := range all {
			if _, isReserved := reserved[key]; !isReserved {
				body[key], sources[0][key] = value, value
			}
		}
		for i, raw := range [][]byte{fields, industry, custom} {
			members, err := Members(raw)
			if err != nil {
				return
			}
			value := jsontext.Value(bytes.Clone(raw))
			require.NoError(t, value.Format())
			body[[]string{"fields", "industryData", "customFields"}[i]] = value
			sources = append(sources, members)
		}
		want := map[string]jsontext.Value{}
		for _, source := range sources {
			for key, value := range source {
				if !empty(value) {
					want[key] = value
				}
			}
		}
		body["phone"] = quote("9876543210")
		a, err := ParseArrival(body, someRules, someClient)
		if err != nil {
			require.LessOrEqual(t, len(err.Error()), 100*(MaxCustomKey*4+100), "the size of an error is bounded")
			return
		}
		if len(want) == 0 {
			want = nil
		}
		require.Equal(t, want, a.CustomFields)

		kept := map[string]jsontext.Value{"phone": body["phone"]}
		var object []byte
		for _, key := range slices.Sorted(maps.Keys(a.CustomFields)) {
			object = append(append(append(append(object, ','), quote(key)...), ':'), a.CustomFields[key]...)
		}
		kept["customFields"] = slices.Concat([]byte("{"), bytes.TrimPrefix(object, []byte(",")), []byte("}"))
		again, err := ParseArrival(kept, someRules, someClient)
		require.NoError(t, err)
		require.Equal(t, a.CustomFields, again.CustomFields, "parsing is idempotent")
	})
}

// FuzzAmountFromNumber compares amounts with math/big: equal to the last digit, and accepted exactly if they fit.
func FuzzAmountFromNumber(f *testing.F) {
	for _, literal := range []string{
		"0", "-0.0e-5", "1.50000", "15e-1", "999999999999999", "99999999999.9999", "1e14", "1e15", "0.00010", "1e-4",
		"1e10000000",
	} {
		f.Add(literal)
	}
	f.Fuzz(func(t *testing.T, literal string) {
		got, err := AmountFromNumber(literal)
		if !jsontext.Value(literal).IsValid() || jsontext.Value(literal).Kind() != '0' ||
			strings.TrimSpace(literal) != literal {
			require.Error(t, err, "%q is no number", literal)
			return
		}
		if len(literal) > maxAmountInput || hugeExponent(literal) {
			return
		}
		want, ok := new(big.Rat).SetString(literal)
		require.True(t, ok, "%q", literal)
		scaled := new(big.Rat).Mul(want, big.NewRat(10_000, 1))
		decimals := 4
		for ; decimals > 0 && new(big.Rat).Mul(want, new(big.Rat).SetInt(power(decimals-1))).IsInt(); decimals-- {
		}
		fits := want.Sign() >= 0 && scaled.IsInt() &&
			new(big.Rat).Mul(want, new(big.Rat).SetInt(power(decimals))).Cmp(new(big.Rat).SetInt(power(15))) < 0
		require.Equal(t, fits, err == nil, "%q: %v", literal, err)
		if err == nil {
			same, ok := new(big.Rat).SetString(got.String())
			require.True(t, ok)
			require.Zero(t, want.Cmp(same), "%q is not %s", literal, got)
		}
	})
}

func power(n int) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil) }

// hugeExponent reports whether a number has an exponent too large for math/big.
func hugeExponent(literal string) bool {
	_, exponent, _ := strings.Cut(strings.ToLower(literal), "e")
	return len(strings.TrimLeft(strings.TrimLeft(exponent, "+-"), "0")) > 3
}

// requireRoundTrip requires that the parsed values of an arrival parse to themselves.
func requireRoundTrip(t *testing.T, a Arrival) {
	t.Helper()
	body := map[string]jsontext.Value{}
	for name, value := range map[string]string{
		"name": a.Name, "phone": a.Phone, "email": a.Email, "status": a.Status, "leadTemperature": a.Temperature,
		"visitorId": a.VisitorID,
	} {
		if value != "" {
			body[name] = quote(value)
		}
	}
	if a.OpportunityValue != "" {
		body["opportunityValue"] = jsontext.Value(a.OpportunityValue)
	}
	again, err := ParseArrival(body, someRules, someClient)
	require.NoError(t, err)
	for _, pair := range [][2]string{
		{a.Name, again.Name}, {a.Phone, again.Phone}, {a.Email, again.Email}, {a.Status, again.Status},
		{a.Temperature, again.Temperature}, {a.VisitorID, again.VisitorID},
		{a.OpportunityValue, again.OpportunityValue},
	} {
		require.Equal(t, pair[0], pair[1])
	}
}
