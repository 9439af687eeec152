package intake

import (
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore/event"
)

// A mapping is deterministic and returns compact JSON or field errors for any request.
func FuzzMap(f *testing.F) {
	mappings := map[string]*Mapping{}
	for _, kind := range Kinds() {
		mappings[kind] = compiled(f, event.IntakeSettings{Kind: kind, Honeypot: "fax"})
	}
	for kind, name := range map[string]string{
		GoogleLeadForm: "google_lead_form.json", MetaLeadAds: "meta_lead.json", Typeform: "typeform.json",
		Razorpay:         "razorpay.json",
		StandardWebhooks: "standard_webhooks.json",
	} {
		f.Add(kind, "application/json", sample(f, name))
	}
	for _, name := range []string{"elementor.form", "unbounce.form", "wpforms.form"} {
		f.Add(Form, "application/x-www-form-urlencoded", sample(f, "senders/"+name))
	}
	for _, name := range []string{"gravityforms.json", "tally.json"} {
		f.Add(Form, "application/json", sample(f, "senders/"+name))
	}
	f.Add(Form, "application/json",
		[]byte(`{"phone": {"area": "98765", "phone": "43210"}, "f": {"a": {"value": 1, "type": "tel"}}}`))
	f.Add(Form, "application/x-www-form-urlencoded", []byte("name=A&tel=1&a=%E9&a=2&_charset_=utf-8"))
	f.Add(Form, "multipart/form-data; boundary=b",
		[]byte("--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nx\r\n--b--\r\n"))
	f.Add(Form, "multipart/form-data; boundary=b",
		[]byte("--b\r\nContent-Disposition: form-data; name=\"a\"\r\nContent-Transfer-Encoding: "+
			"quoted-printable\r\n\r\nx=3D\r\n"+
			"--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\nfile\r\n--b--\r\n"))
	f.Add(Webhook, "", []byte(`{"metadata": {"source": "x", "a": [1, 2.50, 1e3]}, "customFields": {"b": {"c": null}}}`))
	f.Fuzz(func(t *testing.T, kind, media string, body []byte) {
		m := mappings[kind]
		if m == nil {
			return
		}
		r := Request{ContentType: media, Body: body}
		mapped, wrong := m.Map(r)
		again, _ := m.Map(r)
		require.Equal(t, mapped, again)
		withoutFiles, errsWithoutFiles := m.Map(Request{ContentType: media, Body: WithoutFiles(media, body)})
		require.Equal(t, mapped, withoutFiles)
		require.Equal(t, wrong, errsWithoutFiles)
		for name, value := range mapped.Body {
			require.True(t, value.IsValid(), name)
			shortest := value.Clone()
			require.NoError(t, shortest.Compact())
			require.Equal(t, string(shortest), string(value), name)
			require.True(t, utf8.Valid(value))
		}
		for _, one := range wrong {
			require.NotEmpty(t, one.Field)
		}
		if len(wrong) == 0 {
			_, _ = lead.ParseArrival(mapped.Body, lead.Rules{Region: "IN", Stages: []string{"new"}}, lead.Client{})
		}
	})
}

func FuzzChanges(f *testing.F) {
	f.Add(sample(f, "meta_post.json"), sample(f, "meta_lead.json"))
	f.Fuzz(func(t *testing.T, post, fetched []byte) {
		changes, err := Changes(post)
		if err != nil {
			return
		}
		for _, change := range changes {
			if change.Wrong != nil {
				continue
			}
			_, err := LeadQuery{}.URL(event.IntakeSettings{}, Secrets{}, change.Body)
			require.NoError(t, err)
			if merged, err := Fetched(change.Body, fetched); err == nil {
				require.True(t, jsontext.Value(merged).IsValid())
			}
		}
	})
}

func FuzzMasked(f *testing.F) {
	f.Add(sample(f, "google_lead_form.json"))
	f.Fuzz(func(t *testing.T, body []byte) {
		secret := memberText(body, googleKey)
		masked := Masked(GoogleLeadForm, body)
		if secret != "" {
			require.Equal(t, "***", memberText(masked, googleKey))
		}
	})
}
