package delivery

import (
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/projectiontest"
)

// A body of lead.consent has the lead and the consent, whatever event changed it.
func TestBody_Consent(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	stream := event.LeadStream(w.NewID())
	given := func(consents string) map[string]jsontext.Value {
		return map[string]jsontext.Value{"consent": jsontext.Value(consents)}
	}
	changed := func(consents map[string]bool, purposes ...string) event.Purposes {
		return event.Purposes{Consents: consents, ChangedConsents: purposes}
	}
	at := projectiontest.Start.Add(-time.Hour)
	for _, c := range []struct {
		name string
		data event.Data
		part int
		want string // the consent, without its event and its time if that is the event's
	}{
		{
			"a new lead, its second consent", event.LeadCreated{
				Source: "website", LeadFields: event.LeadFields{Name: "Ann", Phone: "+919876543210"}, IP: "192.0.2.7",
				UserAgent: "M", Metadata: given(`[{"purpose":"call"},{"purpose":"mail","granted":false,"text":"No mail"}]`),
				Purposes: changed(map[string]bool{"call": true, "mail": false}, "call", "mail"),
			}, 2,
			`{"purpose":"mail","granted":false,"text":"No mail","version":"","url":"","method":"",
			  "credential":{"kind":"jwt","id":"urn:ada"},"ip":"192.0.2.7","userAgent":"M"}`,
		},
		{
			"a merge, the second of its consents", event.LeadMerged{
				Source:   "website",
				Metadata: given(`[{"purpose":"call"},{"purpose":"mail","version":"2","url":"https://e.example/","method":"box"}]`),
				Purposes: changed(map[string]bool{"call": true, "mail": true}, "mail"),
			}, 1,
			`{"purpose":"mail","granted":true,"text":"","version":"2","url":"https://e.example/","method":"box",
			  "credential":{"kind":"jwt","id":"urn:ada"},"ip":"","userAgent":""}`,
		},
		{
			"by hand", event.LeadConsented{
				Given:    jsontext.Value(`{"purpose":"call","granted":false,"method":"phone"}`),
				Purposes: changed(map[string]bool{"call": false}, "call"),
			}, 1,
			`{"purpose":"call","granted":false,"text":"","version":"","url":"","method":"phone",
			  "credential":{"kind":"jwt","id":"urn:ada"},"ip":"192.0.2.7","userAgent":"test/1"}`,
		},
		{
			"a split that takes it", event.LeadSplit{
				Into: "B", Purposes: changed(map[string]bool{"call": true}, "call", "mail"),
				Is: event.LeadSnapshot{Consents: map[string]event.ConsentState{
					"call": {Granted: true, At: at, EventID: "E"},
				}},
			}, 2,
			`{"purpose":"mail","granted":null,"text":"","version":"","url":"","method":"",
			  "credential":{"kind":"","id":""},"ip":"","userAgent":""}`,
		},
	} {
		w.Append(t, "acme", stream, c.data)
		last, err := w.Store.Last(t.Context(), stream)
		require.NoError(t, err)
		source := Source{
			Stream: stream, Revision: last.Revision, Position: last.Position,
			Message: webhook.Message{Type: webhook.LeadConsent, Part: c.part},
		}
		body, err := render(t.Context(), w.Store, eventstore.NewFolds(subjects), source)
		require.NoError(t, err, c.name)
		var sent struct {
			Type    string                    `json:"type"`
			ID      string                    `json:"id"`
			Data    map[string]jsontext.Value `json:"data"`
			Consent map[string]jsontext.Value `json:"consent"`
		}
		require.NoError(t, json.Unmarshal(body.JSON, &sent))
		require.Equal(t, "lead.consent", sent.Type, c.name)
		require.Contains(t, sent.Data, "consents", c.name)
		recorded := `"` + sent.ID + `"`
		if string(sent.Consent["granted"]) == "null" {
			recorded = `""`
		}
		require.Equal(t, recorded, string(sent.Consent["eventId"]), c.name)
		require.Equal(t, `"`+formatTime(last.At)+`"`, string(sent.Consent["at"]), c.name)
		delete(sent.Consent, "eventId")
		delete(sent.Consent, "at")
		got, err := json.Marshal(sent.Consent)
		require.NoError(t, err)
		require.JSONEq(t, c.want, string(got), c.name)
	}
}
