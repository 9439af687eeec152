package intake

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore/event"
)

func TestMap_ConsentsOfForm(t *testing.T) {
	t.Parallel()
	m, err := Compile(event.IntakeSettings{Kind: Form})
	require.NoError(t, err)
	for name, c := range map[string]struct {
		form     url.Values
		metadata string
		custom   string
	}{
		"none": {url.Values{"email": {"a@example.com"}}, ``, ``},
		"a ticked box with its words": {
			url.Values{
				"consent[whatsapp]": {"on"}, "consent_text[whatsapp]": {"Send me offers"},
				"consent_version[whatsapp]": {"3"}, "page_url": {"https://example.com/f"},
			},
			`{"consent":[{"purpose":"whatsapp","granted":true,"text":"Send me offers","version":"3",` +
				`"url":"https://example.com/f","method":"form"}],"page_url":"https://example.com/f"}`, ``,
		},
		"a hidden field before the box": {
			url.Values{"consent[a]": {"0", "1"}, "consent[b]": {"0"}},
			`{"consent":[{"purpose":"a","granted":true,"method":"form"},{"purpose":"b","granted":false,` +
				`"method":"form"}]}`, ``,
		},
		"the answers of radios": {
			url.Values{"consent[a]": {"Nein"}, "consent[b]": {"Ja"}},
			`{"consent":[{"purpose":"a","granted":false,"method":"form"},{"purpose":"b","granted":true,` +
				`"method":"form"}]}`, ``,
		},
		"other fields": {
			url.Values{"consent": {"yes"}, "consent[]": {"x"}, "consent[open": {"x"}, "consent_text[a]": {"x"}},
			``, `{"consent":"yes","consent (2)":"x","consent[open":"x","a":"x"}`,
		},
	} {
		mapped, wrong := m.Map(Request{ContentType: "application/x-www-form-urlencoded", Body: []byte(c.form.Encode())})
		require.Nil(t, wrong, name)
		for field, want := range map[string]string{fieldMetadata: c.metadata, fieldCustomFields: c.custom} {
			if got := string(mapped.Body[field]); want == "" {
				require.Contains(t, []string{"", "{}", `{"source":"website"}`}, got, "%s: %s", name, field)
			} else if field == fieldMetadata {
				require.JSONEq(t, want[:len(want)-1]+`,"source":"website"}`, got, name)
			} else {
				require.JSONEq(t, want, got, name)
			}
		}
	}
}

func TestTicked_Values(t *testing.T) {
	t.Parallel()
	for _, yes := range []any{
		"on", "1", "Ja", "oui", "subscribe", "offers by mail", true, int64(1), 1.0, []any{"0", "1"},
		map[string]any{"email": "yes"},
	} {
		require.True(t, ticked(yes), "%v", yes)
	}
	for _, no := range []any{
		"", " ", "0", "off", "False", "no", "n", "Nein", "non", "Não", "nee", "declined", "✗", false, int64(0), 0.0, nil,
		[]any{}, []any{"1", "0"}, []any{"nein"},
	} {
		require.False(t, ticked(no), "%v", no)
	}
}

func TestMap_Consent(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]string{
		`{"purpose": "whatsapp", "granted": body.ok}`: `{"consent":{"granted":true,"purpose":"whatsapp"},` +
			`"source":"webhook"}`,
		`body.list.map(p, {"purpose": p})`: `{"consent":[{"purpose":"a"},{"purpose":"b"}],` +
			`"source":"webhook"}`,
		`body.raw`:     `{"consent":[{"purpose":"c"}],"source":"webhook"}`,
		`body.missing`: `{"source":"webhook"}`,
	} {
		m, err := Compile(event.IntakeSettings{Kind: Webhook, Mapping: map[string]string{"consent": expression}})
		require.NoError(t, err, expression)
		mapped, wrong := m.Map(Request{
			ContentType: "application/json", Body: []byte(`{"ok":true,"list":["a","b"],"raw":[{"purpose":"c"}]}`),
		})
		require.Nil(t, wrong, expression)
		require.JSONEq(t, want, string(mapped.Body[fieldMetadata]), expression)
		require.NotContains(t, mapped.Body, fieldConsent)
	}
	_, err := Compile(event.IntakeSettings{Kind: Webhook, Mapping: map[string]string{"consent": `"yes"`}})
	require.ErrorContains(t, err, "mapping.consent")
	m, err := Compile(event.IntakeSettings{Kind: Webhook, Mapping: map[string]string{"consent": `body.ok`}})
	require.NoError(t, err)
	mapped, wrong := m.Map(Request{ContentType: "application/json", Body: []byte(`{"ok":true}`)})
	require.Nil(t, wrong, "the arrival has a warning, and is captured")
	require.JSONEq(t, `{"consent":true,"source":"webhook"}`, string(mapped.Body[fieldMetadata]))
}
