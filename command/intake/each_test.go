package intake

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore/event"
)

// The post is in the form of Meta's documents, with two persons and a status.
const whatsAppPost = `{"object":"whatsapp_business_account","entry":[{"id":"1","changes":[
	{"field":"messages","value":{"messaging_product":"whatsapp","metadata":{"display_phone_number":"15550783881","phone_number_id":"106540352242922"},
	 "contacts":[{"profile":{"name":"Asha Rao"},"wa_id":"919876512345"},{"profile":{"name":"Wei Ling"},"wa_id":"6593334444"}],
	 "messages":[{"from":"919876512345","id":"wamid.1","timestamp":"1749416383","type":"text","text":{"body":"Does it come in another color?"}},
	  {"from":"6593334444","id":"wamid.2","type":"text","text":{"body":"Hi"},"referral":{"source_url":"https://fb.me/x","source_id":"120","ctwa_clid":"ARAk"}}]}},
	{"field":"messages","value":{"statuses":[{"id":"wamid.0","status":"read"}]}}]}]}`

func TestSplit_WhatsApp(t *testing.T) {
	t.Parallel()
	m := compiled(t, event.IntakeSettings{Kind: WhatsApp})
	elements, whole, err := m.Split(Request{Body: []byte(whatsAppPost)})
	require.NoError(t, err)
	require.False(t, whole)
	require.Len(t, elements, 2)
	var got []string
	for _, e := range elements {
		mapped, wrong := m.Map(Request{ContentType: "application/json", Body: e.Body, Item: true})
		require.Empty(t, wrong)
		got = append(got, mapped.DeliveryID+" "+object(t, mapped.Body))
	}
	require.Contains(t, got[0], "wamid.1 ")
	require.Contains(t, got[0], `"phone":"+919876512345"`)
	require.Contains(t, got[0], `"name":"Asha Rao"`)
	require.Contains(t, got[0], `"message":"Does it come in another color?"`)
	require.Contains(t, got[1], `"phone":"+6593334444"`)
	require.Contains(t, got[1], `"ctwa_clid":"ARAk"`)

	for text, want := range map[string]string{
		`"type":"interactive","interactive":{"type":"button_reply","button_reply":{"id":"1","title":"Yes"}}`: "Yes",
		`"type":"interactive","interactive":{"type":"list_reply","list_reply":{"id":"1","title":"Gold"}}`:    "Gold",
		`"type":"button","button":{"payload":"p","text":"Call me"}`:                                          "Call me",
		`"type":"image","image":{"id":"1","caption":"My roof"}`:                                              "My roof",
	} {
		mapped, wrong := m.Map(Request{
			Body: []byte(`{"message":{"from":"919876512345","id":"wamid.3",` + text + `}}`), Item: true,
		})
		require.Empty(t, wrong)
		require.JSONEq(t, `{"message":"`+want+`"}`, string(mapped.Body["customFields"]))
	}

	elements, whole, err = m.Split(Request{
		Body: []byte(`{"entry":[{"changes":[{"field":"messages","value":{"statuses":[{"id":"1"}]}}]}]}`),
	})
	require.NoError(t, err)
	require.False(t, whole)
	require.Empty(t, elements, "statuses are no arrivals")
	_, whole, err = m.Split(Request{Body: []byte(`[`)})
	require.Error(t, err)
	require.True(t, whole, "kept as it is")
}

func TestSplit_Lists(t *testing.T) {
	t.Parallel()
	each := event.IntakeSettings{Kind: Webhook, Each: "body.leads", Mapping: map[string]string{
		"phone": "item.phone", "metadata": `{"utm_campaign": body.campaign}`,
	}}
	plain := event.IntakeSettings{Kind: Webhook}
	for name, c := range map[string]struct {
		settings event.IntakeSettings
		body     string
		want     []string
		whole    bool
		err      bool
	}{
		"each": {
			each, `{"campaign":"diwali","leads":[{"phone":"1"},{"phone":"2"}]}`,
			[]string{`{"phone":"1"}`, `{"phone":"2"}`}, false, false,
		},
		"each, no list": {each, `{"leads":5}`, nil, true, true},
		"each, absent":  {each, `{}`, nil, true, true},
		"each, none":    {each, `{"leads":[]}`, []string{}, false, false},
		"a JSON list": {
			plain, ` [{"phone":"1"},{"phone":"2"}]`, []string{`{"phone":"1"}`, `{"phone":"2"}`}, false, false,
		},
		"an object":       {plain, `{"phone":"1"}`, nil, true, false},
		"a list, at form": {event.IntakeSettings{Kind: Form}, `[{"phone":"1"}]`, nil, true, false},
		"too many":        {plain, "[" + strings.Repeat("1,", MaxElements) + "1]", nil, false, true},
		"a broken list":   {plain, `[{"phone":`, nil, true, false},
	} {
		elements, whole, err := compiled(t, c.settings).Split(Request{Body: []byte(c.body)})
		require.Equal(t, c.err, err != nil, "%s: %v", name, err)
		require.Equal(t, c.whole, whole, name)
		require.Len(t, elements, len(c.want), name)
		for i, e := range elements {
			require.JSONEq(t, c.want[i], string(e.Body), name)
		}
	}
	m := compiled(t, each)
	elements, _, err := m.Split(Request{Body: []byte(`{"campaign":"diwali","leads":[{"phone":"1"}]}`)})
	require.NoError(t, err)
	mapped, wrong := m.Map(Request{
		ContentType: "application/json", Body: elements[0].Body, Item: true, Post: elements[0].Post,
	})
	require.Empty(t, wrong)
	require.Contains(t, object(t, mapped.Body), `"utm_campaign":"diwali"`)
	require.Equal(t, `{"campaign":"diwali","leads":[]}`, string(elements[0].Post))
}

func TestEach_Validation(t *testing.T) {
	t.Parallel()
	require.Empty(t, wrongEach(event.IntakeSettings{Kind: Webhook, Each: "body.leads.filter(l, has(l.phone))"}))
	require.NotEmpty(t, wrongEach(event.IntakeSettings{Kind: Webhook, Each: "body."}))
	require.NotEmpty(t, wrongEach(event.IntakeSettings{Kind: Webhook, Each: "'text'"}))
	require.NotEmpty(t, wrongEach(event.IntakeSettings{Kind: Typeform, Each: "body.leads"}))
}

// Whatever a post is, its arrivals are JSON, and as many as the post has.
func FuzzSplit(f *testing.F) {
	f.Add([]byte(whatsAppPost))
	f.Add([]byte(`[1,{"a":[]},"x"]`))
	f.Add([]byte(`{"leads":[{"phone":"1"}]}`))
	var mappings []*Mapping
	for _, s := range []event.IntakeSettings{{Kind: WhatsApp}, {Kind: Webhook}, {Kind: Webhook, Each: "body.leads"}} {
		mappings = append(mappings, compiled(f, s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, m := range mappings {
			elements, whole, _ := m.Split(Request{Body: body})
			require.False(t, whole && len(elements) > 0)
			for i, e := range elements {
				require.True(t, e.Post == nil || e.Post[0] == '{')
				require.True(t, strings.HasSuffix(e.Of, fmt.Sprint("-", i)))
				_, _ = m.Map(Request{ContentType: "application/json", Body: e.Body, Item: true, Post: e.Post})
			}
		}
	})
}
