package intake

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore/event"
)

func TestHandshake_Query(t *testing.T) {
	t.Parallel()
	meta := event.IntakeSettings{Kind: Webhook, Handshake: HandshakeMeta}
	linked := event.IntakeSettings{Kind: Webhook, Handshake: HandshakeLinkedIn}
	echo := event.IntakeSettings{Kind: Webhook, Handshake: HandshakeChallenge}
	secrets := Secrets{Secret: "s", Old: "old", OldUntil: noon.Add(time.Hour)}
	for name, c := range map[string]struct {
		settings event.IntakeSettings
		query    map[string]string
		want     string
		err      error
	}{
		"meta": {
			meta, map[string]string{"hub.challenge": "42", "hub.verify_token": "s"}, "42", nil,
		},
		"meta lead ads": {
			event.IntakeSettings{Kind: MetaLeadAds}, map[string]string{"hub.challenge": "42", "hub.verify_token": "s"},
			"42", nil,
		},
		"whatsapp": {
			event.IntakeSettings{Kind: WhatsApp}, map[string]string{"hub.challenge": "42", "hub.verify_token": "s"},
			"42", nil,
		},
		"meta, secret of before": {
			meta, map[string]string{"hub.challenge": "42", "hub.verify_token": "old"}, "42", nil,
		},
		"meta, wrong token": {
			meta, map[string]string{"hub.challenge": "42", "hub.verify_token": "x"}, "", ErrVerifyToken,
		},
		"meta, no token": {meta, map[string]string{"hub.challenge": "42"}, "", ErrVerifyToken},
		"meta, none":     {meta, nil, "", ErrVerifyToken},
		"meta, none, GET accepted": {
			event.IntakeSettings{Kind: Webhook, Handshake: HandshakeMeta, AcceptGet: true}, nil, "", ErrHandshake,
		},
		"linkedin": {
			linked, map[string]string{"challengeCode": "890e4665-4dfe-4ab1-b689-ed553bceeed0"},
			`{"challengeCode":"890e4665-4dfe-4ab1-b689-ed553bceeed0",` +
				`"challengeResponse":"` + hexMAC("s", "890e4665-4dfe-4ab1-b689-ed553bceeed0") + `"}`, nil,
		},
		"linkedin, text of a post": {
			linked, map[string]string{"challengeCode": `hmacsha256={"phone":"1"}`}, "", ErrHandshake,
		},
		"linkedin, none":  {linked, nil, "", ErrHandshake},
		"challenge":       {echo, map[string]string{"challenge": "abc"}, "abc", nil},
		"challenge, none": {echo, nil, "", ErrHandshake},
		"no handshake": {
			event.IntakeSettings{Kind: Webhook},
			map[string]string{"challenge": "abc", "hub.challenge": "42", "hub.verify_token": "s"}, "", ErrHandshake,
		},
	} {
		reply, err := AnswerQuery(c.settings, secrets, func(name string) string { return c.query[name] }, noon)
		require.ErrorIs(t, err, c.err, name)
		require.Equal(t, c.want, string(reply.Body), name)
	}
	separate := Secrets{Secret: "s", VerifyToken: "v"}
	_, err := AnswerQuery(meta, separate, func(name string) string { return "s" }, noon)
	require.ErrorIs(t, err, ErrVerifyToken, "the verify token replaces the secret")
}

func TestHandshake_Body(t *testing.T) {
	t.Parallel()
	echo := event.IntakeSettings{Kind: Webhook, Handshake: HandshakeChallenge}
	for body, want := range map[string]string{
		// as Slack sends it
		`{"token":"x","challenge":"3eZbrw1a","type":"url_verification"}`: `{"challenge":"3eZbrw1a"}`,
		`{"challenge":"c"}`:                 `{"challenge":"c"}`,
		`{"challenge":"c","phone":"1"}`:     "", // a lead with a field of this name
		`{"challenge":""}`:                  "",
		`{"type":"url_verification"}`:       "",
		`[]`:                                "",
		`{"challenge":1}`:                   "",
		`{"challenge":"c","challenge":"c"}`: "",
	} {
		reply, asked := AnswerBody(echo, []byte(body))
		require.Equal(t, want != "", asked, body)
		require.Equal(t, want, string(reply.Body), body)
		_, asked = AnswerBody(event.IntakeSettings{Kind: Webhook}, []byte(body))
		require.False(t, asked)
	}
}
