package leadfile_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/contact"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/command/leadfile"
)

func TestColumns_Consents(t *testing.T) {
	t.Parallel()
	granted := func(purpose string) string {
		return `{"purpose":"` + purpose + `","granted":true,"method":"import"}`
	}
	withdrawn := func(purpose string) string {
		return `{"purpose":"` + purpose + `","granted":false,"method":"import"}`
	}
	for name, c := range map[string]struct {
		header, row, consents, custom string
		warnings                      []string
	}{
		"HubSpot":       {"Unsubscribed from all email,Email Opt-In", "true|", withdrawn("email"), "", nil},
		"not opted out": {"Email Opt Out,SMS consent", "false|Yes", granted("sms"), `{"Email Opt Out":"false"}`, nil},
		"both":          {"Email Opt Out,Newsletter", "1|ja", withdrawn("email"), "", nil},
		"named": {"I agree to be called about my loan and offers of partners of the bank,Consent", "x|no", withdrawn("Consent"),
			`{"I agree to be called about my loan and offers of p":"x"}`, []string{
				"I agree to be called about my loan and offers of partners of the bank VALUE_SHORTENED",
			},
		},
		"unreadable": {"GDPR consent,Opt-in", "perhaps|N/A", "", `{"GDPR consent":"perhaps"}`,
			[]string{"GDPR consent CONSENT_UNREADABLE"}},
		"as in a form": {
			"consent[whatsapp],consent_text[whatsapp],consent_version[whatsapp],consent_text[sms]",
			"on|Send me offers|3|Text me",
			`{"purpose":"whatsapp","granted":true,"text":"Send me offers","version":"3","method":"import"}`,
			`{"consent_text[sms]":"Text me"}`, nil,
		},
		"blank": {"Consent,Opt-in", "|", "", "", nil},
		"beside consents": {
			"metadata,Opt-in", `{"consent":{"purpose":"a"}}|yes`, `{"purpose":"a"}`, `{"Opt-in":"yes"}`, nil,
		},
	} {
		read := record(t, "Email,"+c.header, "asha@example.com|"+c.row, rules, leadfile.Options{})
		want := ""
		if c.consents != "" {
			want = `{"consent":[` + c.consents + `]}`
		}
		if name == "beside consents" {
			want = `{"consent":` + c.consents + `}`
		}
		require.Equal(t, want, string(read.Body["metadata"]), name)
		require.Equal(t, c.custom, string(read.Body["customFields"]), name)
		require.Equal(t, c.warnings, warned(read), name)
		arrival, err := lead.ParseArrival(read.Body, rules, lead.Client{})
		require.NoError(t, err, name)
		require.Equal(t, c.consents != "", len(arrival.Consents) == 1, name)
	}
	mailchimp := record(t, "Email Address,CONFIRM_TIME,UNSUB_TIME", "asha@example.com|2024-05-01 10:00:00|", rules,
		leadfile.Options{})
	require.JSONEq(t, `{"consent":[`+granted("email")+`]}`, string(mailchimp.Body["metadata"]))
	require.Equal(t, time.Date(2024, 5, 1, 10, 0, 0, 0, time.UTC), mailchimp.ReceivedAt, "the time of the consent")
	mapped := record(t, "Email,Ja?,Stop", "asha@example.com|yes|yes", rules,
		leadfile.Options{Map: map[string]string{"Ja?": "consent.a", "Stop": "optOut.b"}})
	require.JSONEq(t, `{"consent":[`+granted("a")+`,`+withdrawn("b")+`]}`, string(mapped.Body["metadata"]))
}

// Consents of a row never cost the person: their texts are cut to 16 KiB, and further purposes become custom fields.
func TestColumns_ConsentsTooLarge(t *testing.T) {
	t.Parallel()
	var header, row []string
	for n := range lead.MaxConsents + 3 {
		header = append(header, fmt.Sprintf("consent[p%d]", n), fmt.Sprintf("consent_text[p%d]", n))
		row = append(row, "yes", strings.Repeat("\u00e9\"", 1500))
	}
	read := record(t, "Email,utm_source,"+strings.Join(header, ","), "asha@example.com|x|"+strings.Join(row, "|"), rules,
		leadfile.Options{})
	arrival, err := lead.ParseArrival(read.Body, rules, lead.Client{})
	require.NoError(t, err)
	require.Len(t, arrival.Consents, lead.MaxConsents)
	require.Contains(t, warned(read), "metadata.consent VALUE_SHORTENED")
	require.Contains(t, string(read.Body["metadata"]), `"utm_source":"x"`)
	require.Contains(t, string(read.Body["customFields"]), `"consent[p22]":"yes"`)
}

func TestColumns_IgnoredContacts(t *testing.T) {
	t.Parallel()
	rules := rules
	for _, entry := range []string{"9999912345", "*@spam.example"} {
		ignored, err := contact.ParseIgnored(entry, rules.Region)
		require.NoError(t, err)
		rules.Ignored = append(rules.Ignored, ignored)
	}
	for row, want := range map[string]string{
		"99999 12345|98765 43210|":                  `{"phone":"+919876543210"}`,
		"99999 12345||a@spam.example;b@example.com": `{"email":"b@example.com"}`,
	} {
		read := record(t, "Mobile,Phone,Email", row, rules, leadfile.Options{})
		require.Equal(t, want, bodyOf(t, read), row)
		require.Contains(t, warned(read), "Mobile "+field.IgnoredContact)
	}
	alone := record(t, "Mobile,Email", "99999 12345|", rules, leadfile.Options{})
	_, err := lead.ParseArrival(alone.Body, rules, lead.Client{})
	require.ErrorContains(t, err, "on the account's list of ignored contacts")
}

func TestSurvey_CountsOldRows(t *testing.T) {
	t.Parallel()
	columns, err := leadfile.MapColumns([]string{"Email", "Created"}, leadfile.Options{})
	require.NoError(t, err)
	survey := columns.NewSurvey(rules)
	survey.CountOld(time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), now)
	for _, date := range []string{"03/02/2026", "13/05/2026", "2026-02-28", "", "soon", "1/12/2025"} {
		survey.Add([]string{"a@example.com", date})
	}
	survey.Settle(now)
	require.Equal(t, 3, survey.Old, "the third of February, as the other dates tell")
}
