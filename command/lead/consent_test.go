package lead

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leadlog/leadlog/command/contact"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/eventstore/event"
)

func withConsent(consent string) map[string]jsontext.Value {
	return raw("phone", `"9876543210"`, "metadata", `{"consent":`+consent+`}`)
}

func TestParseArrival_Consents(t *testing.T) {
	t.Parallel()
	long := func(n int) string { return strings.Repeat("x", n) }
	many := "[" + strings.Repeat(`{"purpose":"a"},`, 20) + `{"purpose":"a"}]`
	for consent, want := range map[string]struct {
		purposes []string
		warnings []string
	}{
		`{"purpose":" call "}`: {[]string{"call+"}, nil},
		`[{"purpose":"call","granted":false},{"purpose":"mail","granted":null,"text":null,"other":[1]}]`: {
			[]string{"call-", "mail+"}, nil,
		},
		`{"purpose":"a","granted":false,"optIn":true}`:   {[]string{"a-"}, nil},
		`{"purpose":"a","basis":"Consent","optIn":true}`: {[]string{"a+"}, nil},
		`{"purpose":"a","grant":false}`:                  {nil, []string{".grant"}},
		`{"purpose":"a","status":"Denied"}`:              {nil, []string{".status"}},
		`{"purpose":"a","at":"2026-01-02T03:04:05Z"}`:    {[]string{"a+"}, nil},
		`{"purpose":"a","text":"` + long(4000) + `"}`:    {[]string{"a+"}, nil},
		`""`: {}, `null`: {}, `[]`: {}, `{}`: {},
		`"yes"`:                          {nil, []string{""}},
		`true`:                           {nil, []string{""}},
		`["call"]`:                       {nil, []string{"[0]"}},
		`{"granted":true}`:               {nil, []string{".purpose"}},
		`{"purpose":7}`:                  {nil, []string{".purpose"}},
		`{"purpose":"a","version":1}`:    {nil, []string{".version"}},
		many:                             {nil, []string{""}},
		`{"purpose":"` + long(51) + `"}`: {nil, []string{".purpose"}},
		`[{"purpose":"a"},{"purpose":"b","granted":"yes"}]`: {nil, []string{"[1].granted"}},
		`{"purpose":"a","text":"` + long(4001) + `"}`:       {nil, []string{".text"}},
		`{"purpose":"a","method":"` + long(51) + `"}`:       {nil, []string{".method"}},
	} {
		for _, from := range []contact.Source{contact.Call, contact.Post} {
			rules := someRules
			rules.From = from
			a, err := ParseArrival(withConsent(consent), rules, Client{})
			require.NoError(t, err, consent)
			var purposes, warnings []string
			for _, c := range a.Consents {
				sign := "-"
				if c.Granted {
					sign = "+"
				}
				purposes = append(purposes, c.Purpose+sign)
			}
			for _, w := range a.Warnings {
				require.Equal(t, field.ConsentUnreadable, w.Code)
				warnings = append(warnings, strings.TrimPrefix(w.Field, "metadata.consent"))
			}
			require.Equal(t, want.purposes, purposes, consent)
			require.Equal(t, want.warnings, warnings, consent)
			if consent != "null" {
				require.JSONEq(t, consent, string(a.Metadata[keyConsent]), "stored as given")
			}
		}
	}
	large := "[" + strings.TrimSuffix(strings.Repeat(`{"purpose":"a","text":"`+long(3500)+`"},`, 5), ",") + "]"
	_, err := ParseArrival(withConsent(large), someRules, Client{})
	require.Equal(t, field.Errors{{Field: "metadata.consent", Message: "must be at most 16 KiB"}}, err)
}

func TestRepaired_Consents(t *testing.T) {
	t.Parallel()
	repaired := func(t require.TestingT, consent string) (Arrival, field.Warnings) {
		body, warnings := Repaired(withConsent(consent), post, false)
		a, err := ParseArrival(body, post, Client{})
		require.NoError(t, err)
		return a, append(warnings, a.Warnings...)
	}
	a, warnings := repaired(t, `{"purpose":"call","text":"`+strings.Repeat("é", 4001)+`","method":"`+
		strings.Repeat("m", 60)+`"}`)
	require.Equal(t, []string{"metadata.consent VALUE_SHORTENED"}, codes(warnings))
	require.Equal(t, []GivenConsent{{
		Purpose: "call", Granted: true, Text: strings.Repeat("é", 4000), Method: strings.Repeat("m", 50),
	}}, a.Consents)
	a, warnings = repaired(t, "["+strings.Repeat(`{"purpose":"a"},`, 21)+`{"purpose":"z"}]`)
	require.Equal(t, []string{"metadata.consent FIELD_DROPPED"}, codes(warnings))
	require.Len(t, a.Consents, MaxConsents)
	a, warnings = repaired(t, `{"purpose":"`+strings.Repeat("p", 51)+`","text":"`+strings.Repeat("x", 4001)+`"}`)
	require.Equal(t, []string{"metadata.consent VALUE_SHORTENED", "metadata.consent[0].purpose CONSENT_UNREADABLE"},
		codes(warnings))
	require.Empty(t, a.Consents, "another purpose is another consent")

	rapid.Check(t, func(t *rapid.T) {
		words := rapid.Custom(func(t *rapid.T) string {
			return strings.Repeat(rapid.SampledFrom([]string{"x", "é", "\"", "😀", "\u2028x"}).Draw(t, "of"),
				rapid.SampledFrom([]int{0, 1, 40, 2100, 5000}).Draw(t, "length"))
		})
		consents := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) GivenConsent {
			return GivenConsent{
				Purpose: rapid.SampledFrom([]string{"call", strings.Repeat("é", 50)}).Draw(t, "purpose"),
				Text:    words.Draw(t, "text"), Version: words.Draw(t, "version"), URL: words.Draw(t, "url"),
				Method: words.Draw(t, "method"),
			}
		}), 1, 22).Draw(t, "consents")
		given, err := json.Marshal(consents)
		require.NoError(t, err)
		a, warnings := repaired(t, string(given))
		require.Len(t, a.Consents, min(len(consents), MaxConsents), "the person is kept, and so are the consents")
		require.LessOrEqual(t, len(a.Metadata[keyConsent]), MaxConsentBytes)
		for i, c := range a.Consents {
			require.True(t, strings.HasPrefix(consents[i].Text, c.Text))
		}
		require.Equal(t, fmt.Sprint(consents[:len(a.Consents)]) == fmt.Sprint(a.Consents) &&
			len(a.Consents) == len(consents), len(warnings) == 0)
	})
}

func TestRecorded_MarksChanges(t *testing.T) {
	t.Parallel()
	at := someDay
	had := State{}
	had.consent([]GivenConsent{{Purpose: "call", Granted: true, Text: "Call me"}, {Purpose: "mail"}}, at, "E")
	for name, c := range map[string]struct {
		given []GivenConsent
		at    time.Time
		want  []string
	}{
		"another":                 {[]GivenConsent{{Purpose: "sms"}}, at, []string{"sms"}},
		"the same":                {[]GivenConsent{{Purpose: "call", Granted: true, Text: "Call me"}}, at, nil},
		"a withdrawal":            {[]GivenConsent{{Purpose: "call", Text: "Call me"}}, at, []string{"call"}},
		"in other words":          {[]GivenConsent{{Purpose: "call", Granted: true, Text: "Call"}}, at, []string{"call"}},
		"an earlier one":          {[]GivenConsent{{Purpose: "call"}}, at.Add(-time.Second), nil},
		"twice, the last counts":  {[]GivenConsent{{Purpose: "mail", Granted: true}, {Purpose: "mail"}}, at, nil},
		"some of them":            {[]GivenConsent{{Purpose: "mail"}, {Purpose: "call"}}, at, []string{"call"}},
		"an earlier, unknown one": {[]GivenConsent{{Purpose: "sms"}}, at.Add(-time.Second), []string{"sms"}},
	} {
		require.Equal(t, c.want, had.recorded(c.given, c.at).ChangedConsents, name)
	}
	require.Equal(t, event.Purposes{
		Consents: map[string]bool{"mail": true}, ChangedConsents: []string{"call", "mail"},
	}, changedConsents(had.Consents, map[string]event.ConsentState{"mail": {Granted: true}}))
}

// A lead has at most 200 purposes. Those that it has can still change.
func TestConsents_MorePurposesThanALeadHas(t *testing.T) {
	t.Parallel()
	target := *leadA("website")
	for i := range maxPurposes - 1 {
		target.consent([]GivenConsent{{Purpose: fmt.Sprint(i), Granted: true}}, target.UpdatedAt, "E")
	}
	for consents, want := range map[string][]string{
		`{"purpose":"call"}`:                                                nil,
		`[{"purpose":"call"},{"purpose":"0"}]`:                              nil,
		`[{"purpose":"0","granted":false}]`:                                 nil,
		`[{"purpose":"call"},{"purpose":"mail"}]`:                           {"[1].purpose"},
		`[{"purpose":"a"},{"purpose":"b"},{"purpose":"1"},{"purpose":"c"}]`: {"[1].purpose", "[3].purpose"},
	} {
		var byHand []string
		_, _, err := target.RecordConsents("acme", jsontext.Value(consents))
		if err != nil {
			for _, name := range fieldNames(t, err) {
				byHand = append(byHand, strings.TrimPrefix(name, "consent"))
			}
		}
		require.Equal(t, want, byHand, consents)

		a, err := ParseArrival(withConsent(consents), someRules, Client{})
		require.NoError(t, err)
		decision, err := Decide(a, someRules, &target, nil, NewIDs{})
		require.NoError(t, err)
		warnings := codes(a.WarningsOf(decision.Fact, Evolve(target, leadFact(idA, someDay, decision.Fact))))
		require.Equal(t, want != nil, slices.Equal(warnings, []string{"metadata.consent CONSENT_UNREADABLE"}))
	}
	full := target
	full.consent([]GivenConsent{{Purpose: "call"}}, target.UpdatedAt, "E")
	_, _, err := full.RecordConsents("acme", jsontext.Value(`{"purpose":"mail"}`))
	require.Equal(t, field.Errors{{
		Field: "consent.purpose", Message: "is one more than the 200 purposes that a lead can have",
	}}, err)
}

// A lead whose metadata are full still has the consent, without its words.
func TestConsentsOf_WithoutWords(t *testing.T) {
	t.Parallel()
	merged := event.LeadMerged{Purposes: event.Purposes{Consents: map[string]bool{"call": false, "mail": true}}}
	given, _ := ConsentsOf(&event.Fact{Data: merged})
	require.Equal(t, []GivenConsent{{Purpose: "call"}, {Purpose: "mail", Granted: true}}, given)
	merged.Metadata = raw(keyConsent, `[{"purpose":"call","granted":false,"text":"x"},{"purpose":"mail"}]`)
	given, _ = ConsentsOf(&event.Fact{Data: merged})
	require.Equal(t, "x", given[0].Text)
}

// An export says since when the person is known, not when it withdrew.
func TestWarningsOf_OutdatedWithdrawal(t *testing.T) {
	t.Parallel()
	target := *leadA("website")
	target.consent([]GivenConsent{{Purpose: "mail", Granted: true}, {Purpose: "call"}}, target.UpdatedAt, "E")
	for consents, want := range map[string][]string{
		`{"purpose":"mail","granted":false}`: {"metadata.consent CONSENT_OUTDATED"},
		`{"purpose":"call","granted":false}`: {}, `{"purpose":"mail"}`: {}, `{"purpose":"sms","granted":false}`: {},
	} {
		a, err := ParseArrival(withConsent(consents), someRules, Client{})
		require.NoError(t, err)
		a.Ref.ReceivedAt = target.UpdatedAt.AddDate(-1, 0, 0)
		decision, err := Decide(a, someRules, &target, nil, NewIDs{})
		require.NoError(t, err)
		require.Equal(t, want, codes(a.WarningsOf(decision.Fact, Evolve(target, leadFact(idA, someDay, decision.Fact)))))
	}
}
