package spend

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore/event"
)

func parse(rows string) ([]event.SpendRow, error) { return Parse(jsontext.Value(rows), "INR") }

func TestParse_Rows(t *testing.T) {
	t.Parallel()
	rows, err := parse(`[
		{"day":"2026-11-28","key":{"source":"google_ad"},"amount":12.50},
		{"day":"2026-11-28","key":{"utmSource":" Google ","utmMedium":"cpc","utmCampaign":"größe","source":null},
		 "amount":"₹1,234.5"}]`)
	require.NoError(t, err)
	require.Equal(t, []event.SpendRow{
		{Day: "2026-11-28", SpendKey: event.SpendKey{Source: "google_ad"}, Amount: "12.5"},
		{
			Day: "2026-11-28", SpendKey: event.SpendKey{UTMSource: "Google", UTMMedium: "cpc", UTMCampaign: "größe"},
			Amount: "1234.5",
		},
	}, rows)
}

func TestParse_Errors(t *testing.T) {
	t.Parallel()
	row := func(day, key, amount string) string {
		return fmt.Sprintf(`{"day":%s,"key":%s,"amount":%s}`, day, key, amount)
	}
	const day, key = `"2026-11-28"`, `{"utmCampaign":"a"}`
	for rows, want := range map[string]string{
		``:   "rows must be a list of objects",
		`{}`: "rows must be a list of objects",
		`[]`: "rows must have 1 to 10,000 rows",
		`[` + strings.Repeat(`0,`, MaxRows) + `0]`: "rows must have 1 to 10,000 rows",
		`[1]`: "rows[0] must be an object",
		`[` + row(`"28.11.2026"`, key, `1`) + `]`:                                 "rows[0].day must be a day such as 2026-01-31",
		`[` + row(`"2026-02-30"`, key, `1`) + `]`:                                 "rows[0].day must be a day such as 2026-01-31",
		`[` + row(`20261128`, key, `1`) + `]`:                                     "rows[0].day must be a day such as 2026-01-31",
		`[` + row(day, key, `-1`) + `]`:                                           "rows[0].amount must not be negative",
		`[` + row(day, key, `1.23456`) + `]`:                                      "rows[0].amount must have at most 4 decimals",
		`[` + row(day, key, `"much"`) + `]`:                                       "rows[0].amount is not a number such as 1250.50",
		`[` + row(day, key, `"$100"`) + `]`:                                       "rows[0].amount is in $, and the account's currency is INR",
		`[` + row(day, key, `null`) + `]`:                                         "rows[0].amount must be a decimal such as 12.50",
		`[` + row(day, `"a"`, `1`) + `]`:                                          "rows[0].key must be an object",
		`[` + row(day, `{"utmSource":" "}`, `1`) + `]`:                            "rows[0].key must have one to four of source, utmSource, utmMedium and utmCampaign",
		`[` + row(day, `{"utmSource":1}`, `1`) + `]`:                              "rows[0].key.utmSource must be a text; rows[0].key must have one to four of source, utmSource, utmMedium and utmCampaign",
		`[` + row(day, `{"utmTerm":"a","source":"api"}`, `1`) + `]`:               "rows[0].key.utmTerm is not a known field",
		`[` + row(day, `{"utmMedium":"`+strings.Repeat("ü", 201)+`"}`, `1`) + `]`: "rows[0].key.utmMedium must have at most 200 characters",
		`[` + row(day, key, `1`) + `,` + row(day, key, `2`) + `]`:                 "rows[1] has the day and key of rows[0]",
		`[{"day":` + day + `,"key":` + key + `,"amount":1,"currency":"EUR"},{}]`:  "rows[0].currency is not a known field",
	} {
		_, err := parse(rows)
		require.ErrorContains(t, err, "validation failed: "+want, "%.100s", rows)
	}
	_, err := parse(`[` + row(day, `{"source":"google"}`, `1`) + `]`)
	require.ErrorContains(t, err, "rows[0].key.source must be one of api, ")
}

func TestState_SetKeepsWhatIsTheSame(t *testing.T) {
	t.Parallel()
	row := func(day, campaign, amount string) event.SpendRow {
		return event.SpendRow{Day: day, SpendKey: event.SpendKey{UTMCampaign: campaign}, Amount: amount}
	}
	set := func(rows ...event.SpendRow) event.Fact { return event.Fact{Data: event.SpendSet{Rows: rows}} }
	var s State
	first := []event.SpendRow{row("2026-11-27", "a", "1"), row("2026-11-28", "a", "0")}
	require.Equal(t, first, s.Set(first), "an amount of 0 is not the absence of one")
	s = Evolve(s, set(first...))
	require.Empty(t, s.Set(first))
	second := []event.SpendRow{row("2026-11-27", "a", "2"), row("2026-11-28", "a", "0"), row("2026-11-28", "b", "1")}
	require.Equal(t, []event.SpendRow{second[0], second[2]}, s.Set(second))
	s = Evolve(s, set(second[0], second[2]))
	require.Empty(t, s.Set(second))
	require.Equal(t, first[:1], s.Set(first), "an earlier amount is set again")
	require.Equal(t, s, Evolve(s, event.Fact{Data: event.StorageLow{}}))
}

func TestState_OthersOfTheSameDaysAndChannels(t *testing.T) {
	t.Parallel()
	row := func(day, source, utmSource, campaign, amount string) event.SpendRow {
		return event.SpendRow{
			Day: day, SpendKey: event.SpendKey{Source: source, UTMSource: utmSource, UTMCampaign: campaign}, Amount: amount,
		}
	}
	s := Evolve(nil, event.Fact{Data: event.SpendSet{Rows: []event.SpendRow{
		row("2026-11-27", "google_ad", "", "renamed", "5"), row("2026-11-27", "google_ad", "google", "b", "1"),
		row("2026-11-27", "google_ad", "", "kept", "2"), row("2026-11-27", "google_ad", "", "none", "0"),
		row("2026-11-26", "google_ad", "", "renamed", "5"), row("2026-11-27", "facebook_ad", "", "renamed", "5"),
		row("2026-11-27", "", "news", "a", "1"), row("2026-11-27", "", "mail", "a", "1"),
	}}})
	require.Equal(t, []event.SpendRow{
		row("2026-11-27", "", "news", "a", "0"), row("2026-11-27", "google_ad", "", "renamed", "0"),
		row("2026-11-27", "google_ad", "google", "b", "0"),
	}, s.Others([]event.SpendRow{
		row("2026-11-27", "google_ad", "", "kept", "3"), row("2026-11-27", "google_ad", "", "new", "5"),
		row("2026-11-27", "", "news", "b", "1"),
	}))
	require.Empty(t, State(nil).Others([]event.SpendRow{row("2026-11-27", "google_ad", "", "kept", "3")}))
}

func TestParseAmount_Currency(t *testing.T) {
	t.Parallel()
	for written, mark := range map[string]string{
		"100": "", "₹100": "", "INR 100": "", "inr100": "", "Rs. 100": "", "Dhs 100": "",
		"$100": "$", "100 €": "€", "USD 100": "USD", "USD100": "USD", "100usd": "usd", "US$ 100": "$",
	} {
		amount, err := ParseAmount(written, "INR")
		if mark == "" {
			require.NoError(t, err, written)
			require.Equal(t, "100", amount.String(), written)
			continue
		}
		require.EqualError(t, err, "is in "+mark+", and the account's currency is INR", written)
	}
	_, err := ParseAmount("$100", "")
	require.NoError(t, err, "an account that is not provisioned")
}
