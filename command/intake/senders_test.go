package intake

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore/event"
)

// manual has the settings of intakes in the manual, by their heading.
func manual(t *testing.T) map[string]Update {
	t.Helper()
	text, err := os.ReadFile("../../deploy/docs/senders.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)### ([^\n]+)\n.*?```json\n(.*?)```").FindAllSubmatch(text, -1)
	settings := map[string]Update{}
	for _, block := range blocks {
		var given struct {
			Name      string                 `json:"name"`
			Kind      string                 `json:"kind"`
			Source    *string                `json:"source"`
			Secret    *string                `json:"secret"`
			Each      *string                `json:"each"`
			AcceptGet *bool                  `json:"acceptGet"`
			Handshake *string                `json:"handshake"`
			Mapping   *map[string]string     `json:"mapping"`
			Signature *event.IntakeSignature `json:"signature"`
		}
		require.NoError(t, json.Unmarshal(block[2], &given, json.RejectUnknownMembers(true)), string(block[1]))
		settings[string(block[1])] = Update{
			Name: &given.Name, Kind: &given.Kind, Source: given.Source, Secret: given.Secret, Each: given.Each,
			AcceptGet: given.AcceptGet, Handshake: given.Handshake, Mapping: given.Mapping, Signature: given.Signature,
		}
	}
	return settings
}

// signedBy returns the headers that a sender adds to a post, as its documents say.
func signedBy(sender, secret string, body string) headers {
	mac := func(text string) []byte {
		key := []byte(secret)
		if sender == "Svix" {
			key, _ = base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
		}
		h := hmac.New(sha256.New, key)
		_, _ = h.Write([]byte(text))
		return h.Sum(nil)
	}
	seconds, milliseconds := strconv.FormatInt(noon.Unix(), 10), strconv.FormatInt(noon.UnixMilli(), 10)
	timed := "t=" + seconds + ",v1=" + hex.EncodeToString(mac(seconds+"."+body))
	switch sender {
	case "Stripe":
		return headers{"stripe-signature": timed}
	case "Calendly":
		return headers{"calendly-webhook-signature": timed}
	case "Webflow":
		return headers{
			"x-webflow-timestamp": milliseconds, "x-webflow-signature": hex.EncodeToString(mac(milliseconds + ":" + body)),
		}
	case "Slack":
		return headers{
			"x-slack-request-timestamp": seconds,
			"x-slack-signature":         "v0=" + hex.EncodeToString(mac("v0:"+seconds+":"+body)),
		}
	case "Shopify":
		return headers{
			"x-shopify-hmac-sha256": base64.StdEncoding.EncodeToString(mac(body)), "x-shopify-webhook-id": "b54557e4",
		}
	case "Svix":
		return headers{
			"svix-id": "msg_1", "svix-timestamp": seconds,
			"svix-signature": "v1," + base64.StdEncoding.EncodeToString(mac("msg_1."+seconds+"."+body)),
		}
	case "Tally":
		return headers{"tally-signature": base64.StdEncoding.EncodeToString(mac(body))}
	case "LinkedIn":
		return headers{"x-li-signature": hex.EncodeToString(mac("hmacsha256=" + body))}
	case "Zapier":
		return headers{"authorization": "Bearer " + secret}
	case "Make":
		return headers{"x-api-key": secret}
	}
	return headers{}
}

// The posts are those of the senders' documents and of public reports, with other persons.
func TestManual_Senders(t *testing.T) {
	t.Parallel()
	const urlencoded, person = "application/x-www-form-urlencoded", "Asha Rao, asha@example.com, +919876512345"
	tried := map[string]bool{}
	for name, c := range map[string]struct {
		file, media string
		want        string // name, email and phone
		id          string
		custom      string
	}{
		"Calendly": {"calendly.json", "", person,
			"https://api.calendly.com/scheduled_events/9a15cc4a-c99d-48e4-bc2b-b363b35c669c" +
				"/invitees/3e39fe12-9338-448d-b760-2217a35cc0a7",
			`{"What would you like to discuss?":"Two rooms","meeting":"30 Minute Meeting",
			"starts":"2023-12-24T21:15:00.000000Z"}`},
		"Contact Form 7": {"contactform7.json", "", person, "",
			`{"acceptance-1":"1","menu-55":"Gold","your-message":"Please call","your-subject":"Quote"}`},
		"Elementor": {"elementor.form", urlencoded, person, "", `{"credit":"Elementor","date":"October 2, 2026",
			"message":"Consult please","time":"6:52 pm"}`},
		"Elementor, labels": {"elementor-labels.form", urlencoded, person, "", `{"Powered by":"Elementor"}`},
		"Exotel": {"exotel.form", urlencoded, ", , +919876512345", "c5797dcbaaeed7678c4062a4a3ed2f8a",
			`{"CallTo":"02248930000","CallType":"call-attempt"}`},
		"Gravity Forms": {"gravityforms.json", "", person, "", ""},
		"IndiaMART":     {"indiamart.json", "", person, "2012487827", ""},
		"Jotform": {"jotform.multipart",
			"multipart/form-data; boundary=------------------------J1JNT4vbVO4FCC1qLG4HSv", person,
			"6084250982513018472", ""},
		"LinkedIn": {"linkedin.json", "", "", "urn:li:leadGenFormResponse:1a2b3c-4-1756051200", "{}"},
		"Make":     {"make.json", "", person + "; Wei Ling, , +6593334444", "", `{"city":"Pune"}`},
		"Shopify":  {"shopify.json", "", person, "b54557e4", `{"note":"Wants a call","tags":"newsletter"}`},
		"Slack": {"slack.form", urlencoded, "Asha Rao, , +919876512345", "13345224609.738474920.8088930838d88f008e0",
			`{"entered_by":"steve"}`},
		"Stripe":   {"stripe.json", "", person, "evt_1NG8Du2eZvKYlo2CUI79vXWy", `{"plan":"gold"}`},
		"Svix":     {"svix.json", "", person, "msg_1", "{}"},
		"Tally":    {"tally.json", "", person, "jaMb6Ka", `{"Budget":25000,"Which plan interests you?":"Business"}`},
		"Unbounce": {"unbounce.form", urlencoded, person, "", ""},
		"Webflow":  {"webflow.json", "", person, "6321ca84df3949bfc6752327", `{"Budget":"20k"}`},
		"WPForms":  {"wpforms.form", urlencoded, person, "", ""},
		"Zapier":   {"zapier.json", "", person, "", `{"Budget":"20k"}`},
	} {
		sender, _, _ := strings.Cut(name, ",")
		tried[sender] = true
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			settings := manual(t)[sender]
			created, secrets, _, err := Create(settings, func() (string, error) { return "a-secret", nil }, false)
			require.NoError(t, err)
			body := string(sample(t, "senders/"+c.file))
			if strings.HasPrefix(c.media, "multipart") {
				body = strings.ReplaceAll(body, "\n", "\r\n")
			}
			body = strings.TrimSuffix(body, "\n")
			header := signedBy(sender, secrets.Secret, body)
			sent := Sent{Header: header.sent().Header, Query: func(string) string { return secrets.Secret }}
			require.NoError(t, Verify(created.IntakeSettings, secrets, sent, []byte(body), noon))
			if len(header) > 0 {
				require.Error(t, Verify(created.IntakeSettings, Secrets{Secret: "another"}, sent, []byte(body), noon))
			}
			persons, id, custom := arrivals(t, compiled(t, created.IntakeSettings), Request{
				ContentType: c.media, Body: []byte(body), Headers: header, Region: "IN",
			})
			require.Equal(t, c.want, persons)
			require.Equal(t, c.id, id)
			if c.custom != "" {
				require.JSONEq(t, c.custom, custom, custom)
			}
		})
	}
	for sender := range manual(t) {
		require.True(t, tried[sender], "%s has no post", sender)
	}
}

// arrivals captures the arrivals of a post like an intake, and returns their persons, and the delivery id and custom
// fields of the first.
func arrivals(t *testing.T, m *Mapping, r Request) (persons, id, custom string) {
	t.Helper()
	elements, whole, err := m.Split(r)
	require.NoError(t, err)
	requests := []Request{r}
	if !whole {
		requests = nil
		for _, e := range elements {
			own := r
			own.ContentType, own.Body, own.Post, own.Item = "application/json", e.Body, e.Post, true
			requests = append(requests, own)
		}
	}
	all := []string{}
	for i, one := range requests {
		mapped, wrong := m.Map(one)
		require.Empty(t, wrong)
		require.False(t, mapped.Skip)
		rules := lead.Rules{Region: r.Region, Stages: []string{"new"}}
		body, _ := lead.Repaired(mapped.Body, rules, false)
		parsed, err := lead.ParseArrival(body, rules, lead.Client{})
		if i == 0 {
			id = mapped.DeliveryID
			text, err := event.AppendJSON(nil, parsed.CustomFields)
			require.NoError(t, err)
			custom = string(text)
		}
		if err != nil {
			require.IsType(t, field.Errors{}, err)
			continue // it is quarantined
		}
		all = append(all, parsed.Name+", "+parsed.Email+", "+parsed.Phone)
	}
	return strings.Join(all, "; "), id, custom
}
