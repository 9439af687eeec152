package delivery

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/storetest"
	"github.com/leadlog/leadlog/projection/projectiontest"
)

// A body has the same bytes whether its stream was read from the start or from a cached state. Its changes, applied to
// the previous lead, yield the lead.
func TestBody_CachedFold(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	w.WriteHistory(t, 7, 600)
	remembers := subjects
	remembers.Long = 1
	remembering := eventstore.NewFolds(remembers)
	compared := 0
	leads := map[string]map[string]string{} // built only from the changes
	for _, e := range storetest.Events(t, w.Store, eventstore.Filter{StreamPrefixes: []string{event.LeadPrefix}}) {
		fact, err := e.Fact()
		require.NoError(t, err)
		for _, m := range webhook.Messages(fact.Data) {
			r := Source{Stream: e.Stream, Revision: e.Revision, Position: e.Position, Message: m}
			whole, err := render(t.Context(), w.Store, eventstore.NewFolds(subjects), r)
			require.NoError(t, err)
			again, err := render(t.Context(), w.Store, remembering, r)
			require.NoError(t, err)
			require.Equal(t, string(whole.JSON), string(again.JSON))
			if m.Part == 0 {
				requireChangesLeadTo(t, whole.JSON, leads, e.Stream)
			}
			if r.Revision > 0 {
				compared++
			}
		}
	}
	require.Greater(t, compared, 100)
}

func TestBody_OnlyOfSentTypes(t *testing.T) {
	t.Parallel()
	all := webhook.SentTypes([]string{"*"})
	for _, eventType := range event.Catalogue() {
		data, err := event.Decode(eventType, []byte(`{}`))
		require.NoError(t, err)
		sent := slices.Contains(all, eventType) ||
			data.EventType() == (event.WebhookTested{}).EventType()
		_, err = Source{Message: webhook.Message{Type: eventType}}.encode(event.Fact{Data: data}, subject{})
		require.Equal(t, sent, err == nil, "%s: %v", eventType, err)
	}
}

// requireChangesLeadTo applies the changes of a body to the earlier lead, and compares the result with the body's data.
func requireChangesLeadTo(t *testing.T, body []byte, leads map[string]map[string]string, stream string) {
	t.Helper()
	var sent struct {
		Data    map[string]jsontext.Value `json:"data"`
		Changes []changeData              `json:"changes"`
	}
	require.NoError(t, json.Unmarshal(body, &sent))
	require.NotNil(t, sent.Changes)
	now := leads[stream]
	if now == nil {
		now = map[string]string{}
		leads[stream] = now
	}
	for _, c := range sent.Changes {
		require.NotEqual(t, string(c.Old), string(c.New), c.Field)
		was, ok := now[c.Field]
		if !ok {
			was = "null"
		}
		require.Equal(t, was, string(c.Old), c.Field)
		now[c.Field] = string(c.New)
		if string(c.New) == "null" {
			delete(now, c.Field)
		}
	}
	want := map[string]string{}
	for _, field := range []string{
		"source", "opportunityId", "name", "phone", "email", "status", "leadTemperature", "opportunityValue",
	} {
		if value := string(sent.Data[field]); value != `""` && value != "null" {
			want[field] = value
		}
	}
	for _, field := range []string{"customFields", "metadata"} {
		var members map[string]jsontext.Value
		if len(sent.Data[field]) > 0 {
			require.NoError(t, json.Unmarshal(sent.Data[field], &members))
		}
		for key, value := range members {
			if value.Kind() != 'n' {
				want[field+"."+key] = string(value)
			}
		}
	}
	require.Equal(t, want, now)
}

// renderedLatest returns the body of the latest event of a stream.
func renderedLatest(t *testing.T, w *projectiontest.World, stream string) string {
	t.Helper()
	last, err := w.Store.Last(t.Context(), stream)
	require.NoError(t, err)
	fact, err := last.Fact()
	require.NoError(t, err)
	r := Source{
		Stream: stream, Revision: last.Revision, Position: last.Position, Message: webhook.Messages(fact.Data)[0],
	}
	body, err := render(t.Context(), w.Store, eventstore.NewFolds(subjects), r)
	require.NoError(t, err)
	return string(body.JSON)
}

func TestBody_Changes(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	stream, source := event.LeadStream(w.NewID()), w.NewID()
	values := func(members ...string) map[string]jsontext.Value {
		m := map[string]jsontext.Value{}
		for i := 0; i < len(members); i += 2 {
			m[members[i]] = jsontext.Value(members[i+1])
		}
		return m
	}
	for _, c := range []struct {
		name    string
		data    event.Data
		changes string
		touch   bool
	}{
		{"a creation, all that is set", event.LeadCreated{
			Source: "website",
			LeadFields: event.LeadFields{
				Name: "Ann", Email: "a@example.com", Status: "new", Temperature: "warm",
				CustomFields: values("city", `"Pune"`),
			},
			Metadata: values("utm_source", `"g"`, "source", `"website"`, "n", `null`), IP: "198.51.100.7",
		}, `[{"field":"source","old":null,"new":"website"},{"field":"name","old":null,"new":"Ann"},{"field":"email","old":null,"new":"a@example.com"},
			{"field":"status","old":null,"new":"new"},{"field":"leadTemperature","old":null,"new":"warm"},{"field":"customFields.city","old":null,"new":"Pune"},
			{"field":"metadata.ip","old":null,"new":"198.51.100.7"},{"field":"metadata.utm_source","old":null,"new":"g"}]`, true},
		{
			"a merge of nothing new", event.LeadMerged{Source: "website", LeadFields: event.LeadFields{Name: "Ann"}},
			`[]`, true,
		},
		{"a merge", event.LeadMerged{
			Source: "whatsapp", NewSource: true,
			LeadFields: event.LeadFields{
				OpportunityID: "o", OpportunityValue: "7.50", CustomFields: values("city", `"Goa"`),
			},
			Metadata: values("utm_source", `"w"`, "n", `[1]`),
		}, `[{"field":"opportunityId","old":null,"new":"o"},{"field":"opportunityValue","old":null,"new":7.50},{"field":"customFields.city","old":"Pune","new":"Goa"},
			{"field":"metadata.n","old":null,"new":[1]},{"field":"metadata.utm_source","old":"g","new":"w"}]`, true},
		{"a change by hand", event.LeadUpdated{
			LeadFields: event.LeadFields{Status: "won"}, RemovedFields: []string{"city"},
		},
			`[{"field":"status","old":"new","new":"won"},{"field":"customFields.city","old":"Goa","new":null}]`, false},
		{
			"a release", event.LeadReleased{Field: "email", Email: "a@example.com"},
			`[{"field":"email","old":"a@example.com","new":null}]`, false,
		},
		{"a join", event.LeadJoined{
			From: source, Was: event.LeadSnapshot{LeadFields: event.LeadFields{Name: "Anna", Phone: "+919876543210"}},
		},
			`[{"field":"phone","old":null,"new":"+919876543210"}]`, false},
	} {
		w.Append(t, "acme", stream, c.data)
		var sent struct {
			Changes jsontext.Value `json:"changes"`
			Touch   jsontext.Value `json:"touch"`
		}
		require.NoError(t, json.Unmarshal([]byte(renderedLatest(t, w, stream)), &sent))
		require.JSONEq(t, c.changes, string(sent.Changes), c.name)
		require.Equal(t, c.touch, sent.Touch != nil, c.name)
	}
	w.Append(t, "acme", stream, event.LeadErased{})
	erased := renderedLatest(t, w, stream)
	require.Contains(t, erased, `"changes":[]`)
	require.NotContains(t, erased, "Ann")
}

// A body has at most 64 KiB. The changes of custom fields and metadata are dropped first, because data has them too.
func TestBody_Truncated(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	for size, kept := range map[int][2]bool{10 << 10: {true, true}, 40 << 10: {true, false}, 70 << 10: {false, false}} {
		stream, long := event.LeadStream(w.NewID()), jsontext.Value(`"`+strings.Repeat("x", size/2)+`"`)
		w.Append(t, "acme", stream, event.LeadCreated{
			Source:     "website",
			LeadFields: event.LeadFields{Name: "Ann", CustomFields: map[string]jsontext.Value{"note": long}},
			Metadata:   map[string]jsontext.Value{"utm_source": jsontext.Value(`"g"`), "note": long},
		})
		body := renderedLatest(t, w, stream)
		require.LessOrEqual(t, len(body), maxBody)
		require.Equal(t, !kept[1], strings.Contains(body, `"truncated":true`))
		require.Equal(t, kept[0], strings.Count(body, `"note":"x`) == 2)
		require.Equal(t, kept[0], strings.Contains(body, `"note":"x`))
		require.Equal(t, kept[1], strings.Contains(body, `"customFields.note"`))
		require.Equal(t, kept[1], strings.Contains(body, `"metadata.note"`))
		require.Contains(t, body, `{"field":"name","old":null,"new":"Ann"}`)
		require.Contains(t, body, `"utmSource":"g"`)
	}
}

func TestBody_Intake(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	id := w.NewID()
	settings := event.IntakeSettings{Name: "Site", Kind: "form", Source: "website", Enabled: true, ExpectEvery: "1h"}
	w.Append(t, "acme", event.IntakeStream(id), event.IntakeCreated{IntakeSettings: settings, Slot: 1},
		event.IntakeSilent{
			Since: projectiontest.Start.Add(time.Hour),
		}, event.IntakeResumed{ArrivedAt: projectiontest.Start.Add(3 * time.Hour)},
		event.IntakeFailing{Since: projectiontest.Start.Add(4 * time.Hour), Error: "phone or email is required"},
		event.IntakeRecovered{CapturedAt: projectiontest.Start.Add(5 * time.Hour)})
	resumed := formatTime(projectiontest.Start.Add(3 * time.Hour))
	for revision, c := range map[eventstore.Revision]struct {
		kind, state, arrived string
		failing, lastError   any
	}{
		1: {"intake.silent", "silent", formatTime(projectiontest.Start.Add(time.Hour)), nil, nil},
		2: {"intake.resumed", "active", resumed, nil, nil},
		3: {
			"intake.failing", "failing", resumed, formatTime(projectiontest.Start.Add(4 * time.Hour)),
			"phone or email is required",
		},
		4: {"intake.recovered", "active", resumed, nil, nil},
	} {
		r := Source{
			Stream: event.IntakeStream(id), Revision: revision, Position: eventstore.Position(revision + 1),
			Message: webhook.Message{Type: c.kind},
		}
		body, err := render(t.Context(), w.Store, eventstore.NewFolds(subjects), r)
		require.NoError(t, err)
		var sent struct {
			Type string
			Data map[string]any
		}
		require.NoError(t, json.Unmarshal(body.JSON, &sent, json.MatchCaseInsensitiveNames(true)))
		require.Equal(t, c.kind, sent.Type)
		require.Equal(t, id, sent.Data["intakeId"])
		require.Equal(t, "/in/"+id, sent.Data["url"])
		require.Equal(t, c.state, sent.Data["state"])
		require.Equal(t, c.arrived, sent.Data["lastArrivalAt"])
		require.Equal(t, c.failing, sent.Data["failingSince"])
		require.Equal(t, c.lastError, sent.Data["lastError"])
		require.NotContains(t, sent.Data, "secret")
	}
}

func TestBody_QuarantinedArrival(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	stream := event.ArrivalStream(w.NewID())
	w.Append(t, "acme", stream, event.ArrivalReceived{
		IntakeID: "in", ReceivedAt: projectiontest.Start, ExpiresAt: projectiontest.Start.Add(time.Hour),
		Raw: event.ArrivalRaw{Body: `{"name":"Asha"}`},
	}, event.ArrivalQuarantined{
		IntakeID: "in", ReceivedAt: projectiontest.Start, ExpiresAt: projectiontest.Start.Add(time.Hour),
		Reasons: []event.ArrivalReason{{Field: "phone", Message: "or email is required"}},
	}, event.ArrivalDiscarded{Reason: event.DiscardedByOwner})
	body, err := render(t.Context(), w.Store, eventstore.NewFolds(subjects), Source{
		Stream: stream, Revision: 1, Position: 2, Message: webhook.Message{Type: "arrival.quarantined"},
	})
	require.NoError(t, err)
	var sent struct {
		Type string         `json:"type"`
		Data jsontext.Value `json:"data"`
	}
	require.NoError(t, json.Unmarshal(body.JSON, &sent))
	require.Equal(t, "arrival.quarantined", sent.Type)
	require.JSONEq(t, `{"arrivalId":"`+event.ArrivalID(stream)+`","intakeId":"in","tokenId":null,"state":"quarantined",
		"reasons":[{"field":"phone","message":"or email is required"}],"warnings":[],"leadId":null,
		"receivedAt":"`+formatTime(projectiontest.Start)+`","expiresAt":"`+
		formatTime(projectiontest.Start.Add(time.Hour))+`"}`, string(sent.Data))
}
