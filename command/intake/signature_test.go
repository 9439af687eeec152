package intake

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/eventstore/event"
)

// The settings of providers, as their documents describe how they sign.
var (
	stripe = event.IntakeSignature{
		Scheme: SchemeHMAC, Header: "Stripe-Signature", Format: "t={timestamp},v1={signature}",
		Signed: "{timestamp}.{body}",
	}
	calendly = event.IntakeSignature{
		Scheme: SchemeHMAC, Header: "Calendly-Webhook-Signature", Format: "t={timestamp},v1={signature}",
		Signed: "{timestamp}.{body}",
	}
	webflow = event.IntakeSignature{
		Scheme: SchemeHMAC, Header: "X-Webflow-Signature", TimestampHeader: "X-Webflow-Timestamp",
		Signed: "{timestamp}:{body}",
	}
	slack = event.IntakeSignature{
		Scheme: SchemeHMAC, Header: "X-Slack-Signature", Format: "v0={signature}",
		TimestampHeader: "X-Slack-Request-Timestamp",
		Signed:          "v0:{timestamp}:{body}",
	}
	shopify  = event.IntakeSignature{Scheme: SchemeHMAC, Header: "X-Shopify-Hmac-Sha256", Encoding: "base64"}
	linkedIn = event.IntakeSignature{Scheme: SchemeHMAC, Header: "X-LI-Signature", Signed: "hmacsha256={body}"}
)

func hexMAC(secret, text string) string {
	return hex.EncodeToString(mac(sha256.New, secret, []byte(text)))
}

// The first case is the example in Slack's documentation.
func TestSignature_Providers(t *testing.T) {
	t.Parallel()
	at := noon
	seconds, milliseconds := strconv.FormatInt(at.Unix(), 10), strconv.FormatInt(at.UnixMilli(), 10)
	const secret, body = "whsec_shh", `{"event":"invitee.created"}`
	const slackBody = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar" +
		"&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands" +
		"%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
	for name, c := range map[string]struct {
		signature    event.IntakeSignature
		secret, body string
		at           time.Time
		header       headers
		want         error
	}{
		"slack": {slack, "8f742231b10e8888abcd99yyyzzz85a5", slackBody, time.Unix(1531420618, 0), headers{
			"x-slack-request-timestamp": "1531420618",
			"x-slack-signature":         "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
		}, nil},
		"stripe": {
			stripe, secret, body, at,
			headers{"stripe-signature": "t=" + seconds + ",v1=" + hexMAC(secret, seconds+"."+body)}, nil,
		},
		"stripe with an older version": {stripe, secret, body, at, headers{
			"stripe-signature": "t=" + seconds +
				",v0=6ffbb59b2300aae63f272406069a9788598b792a944a07aba816edb039989a39,v1=" +
				hexMAC(secret, seconds+"."+body),
		}, nil},
		"stripe during a rotation": {stripe, secret, body, at, headers{
			"stripe-signature": "t=" + seconds + ",v1=" + hexMAC("other", seconds+"."+body) + ",v1=" +
				hexMAC(secret, seconds+"."+body),
		}, nil},
		"stripe, another timestamp": {stripe, secret, body, at, headers{
			"stripe-signature": "t=" + strconv.FormatInt(at.Unix()+1, 10) + ",v1=" + hexMAC(secret, seconds+"."+body),
		}, ErrProof},
		"stripe, old": {stripe, secret, body, at.Add(DefaultTolerance + time.Second), headers{
			"stripe-signature": "t=" + seconds + ",v1=" + hexMAC(secret, seconds+"."+body),
		}, ErrProof},
		"stripe without a timestamp": {
			stripe, secret, body, at, headers{"stripe-signature": "v1=" + hexMAC(secret, "."+body)}, ErrProof,
		},
		"calendly": {
			calendly, secret, body, at,
			headers{"calendly-webhook-signature": "t=" + seconds + ", v1=" + hexMAC(secret, seconds+"."+body)}, nil,
		},
		"webflow": {webflow, secret, body, at, headers{
			"x-webflow-timestamp": milliseconds, "x-webflow-signature": hexMAC(secret, milliseconds+":"+body),
		}, nil},
		"shopify": {shopify, secret, body, at, headers{
			"x-shopify-hmac-sha256": base64.StdEncoding.EncodeToString(mac(sha256.New, secret, []byte(body))),
		}, nil},
		"linkedin": {linkedIn, secret, body, at, headers{"x-li-signature": hexMAC(secret, "hmacsha256="+body)}, nil},
	} {
		checked, wrong := checkedSignature(c.signature)
		require.Empty(t, wrong, name)
		settings := event.IntakeSettings{Kind: Webhook, Signature: &checked}
		require.ErrorIs(t, Verify(settings, Secrets{Secret: c.secret}, c.header.sent(), []byte(c.body), c.at),
			c.want, name)
		require.ErrorIs(t, Verify(settings, Secrets{Secret: c.secret}, c.header.sent(), []byte(c.body+" "), c.at),
			ErrProof, name)
	}
}

func TestVerify_Svix(t *testing.T) {
	t.Parallel()
	settings, header, body := signers["standard_webhooks"]("whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3", []byte(`{}`))
	svix := headers{}
	for name, value := range header {
		svix[strings.Replace(name, "webhook-", "svix-", 1)] = value
	}
	secrets := Secrets{Secret: "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3"}
	require.NoError(t, Verify(settings, secrets, svix.sent(), body, noon))
	svix["svix-id"] = "another"
	require.ErrorIs(t, Verify(settings, secrets, svix.sent(), body, noon), ErrProof)
}

func TestSignature_Validation(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*event.IntakeSignature)
		want   string // the field that is wrong; empty: none
	}{
		"valid": {func(*event.IntakeSignature) {}, ""},
		"no signature in format": {
			func(s *event.IntakeSignature) { s.Format = "t={timestamp}" }, "signature.format",
		},
		"unknown placeholder": {func(s *event.IntakeSignature) {
			s.Format = "{signature},{nonce}"
		}, "signature.format"},
		"two signatures": {func(s *event.IntakeSignature) {
			s.Format = "{signature},{signature}"
		}, "signature.format"},
		"placeholders side by side": {func(s *event.IntakeSignature) {
			s.Format = "{timestamp}{signature}"
		}, "signature.format"},
		"no separator": {func(s *event.IntakeSignature) {
			s.Format = "t={timestamp}v1={signature}"
		}, "signature.format"},
		"two separators": {func(s *event.IntakeSignature) {
			s.Format = "{timestamp},{id};{signature}"
		}, "signature.format"},
		"text at the end": {func(s *event.IntakeSignature) {
			s.Format = "v1={signature};"
		}, "signature.format"},
		"format and prefix":  {func(s *event.IntakeSignature) { s.Prefix = "v1=" }, "signature.prefix"},
		"no body":            {func(s *event.IntakeSignature) { s.Signed = "{timestamp}" }, "signature.signed"},
		"an id from nowhere": {func(s *event.IntakeSignature) { s.Signed = "{id}.{body}" }, "signature.signed"},
		"an id of its header": {func(s *event.IntakeSignature) {
			s.Signed, s.IDHeader = "{id}.{body}", "X-Id"
		}, ""},
		"a timestamp from nowhere": {func(s *event.IntakeSignature) {
			s.Format = "v1={signature}"
		}, "signature.signed"},
		"bad header": {
			func(s *event.IntakeSignature) { s.TimestampHeader = "a b" }, "signature.timestampHeader",
		},
		"bad tolerance":  {func(s *event.IntakeSignature) { s.Tolerance = "5" }, "signature.tolerance"},
		"long tolerance": {func(s *event.IntakeSignature) { s.Tolerance = "25h" }, "signature.tolerance"},
		"tolerance":      {func(s *event.IntakeSignature) { s.Tolerance = "30s" }, ""},
		"tolerance of no timestamp": {func(s *event.IntakeSignature) {
			s.Signed, s.Tolerance = "", "1m"
		}, "signature.tolerance"},
		"timestamp that is not signed": {func(s *event.IntakeSignature) {
			s.Signed, s.TimestampHeader = "v0:{body}", "X-Timestamp"
		}, "signature.timestampHeader"},
		"id that is not signed": {func(s *event.IntakeSignature) { s.IDHeader = "X-Id" }, "signature.idHeader"},
		"bad query name": {func(s *event.IntakeSignature) {
			*s = event.IntakeSignature{Scheme: SchemeQuery, Name: "a b"}
		}, "signature.name"},
	} {
		s := stripe
		c.change(&s)
		_, wrong := checkedSignature(s)
		names := []string{}
		for _, one := range wrong {
			names = append(names, one.Field)
		}
		if c.want == "" {
			require.Empty(t, names, name)
		} else {
			require.Contains(t, names, c.want, name)
		}
	}
	query, wrong := checkedSignature(event.IntakeSignature{Scheme: SchemeQuery})
	require.Equal(t, field.Errors(nil), wrong)
	require.Equal(t, event.IntakeSignature{Scheme: SchemeQuery, Name: "key"}, query)
}

// What the scheme of a signature does not have is refused, unless a form, which has all fields, leaves it out.
func TestSignature_MembersOfSchemes(t *testing.T) {
	t.Parallel()
	all := event.IntakeSignature{
		Header: "X-Sig", Algorithm: "sha1", Encoding: "hex", Prefix: "v1=", TimestampHeader: "X-Ts", IDHeader: "X-Id",
		Signed: "{id}.{timestamp}.{body}", Tolerance: "1m", Name: "token",
	}
	ofHMAC := []string{"algorithm", "encoding", "timestampHeader", "idHeader", "signed", "tolerance"}
	for scheme, want := range map[string][]string{
		"": {"name"}, SchemeHMAC: {"name"}, SchemeHeader: append([]string{"name"}, ofHMAC...),
		SchemeQuery:  append([]string{"header", "prefix"}, ofHMAC...),
		SchemeBearer: append([]string{"header", "prefix", "name"}, ofHMAC...),
		SchemeBasic:  append([]string{"header", "prefix", "name"}, ofHMAC...),
		"none":       {"scheme"},
	} {
		given := all
		given.Scheme = scheme
		_, wrong := checkedSignature(given)
		var names []string
		for _, one := range wrong {
			names = append(names, strings.TrimPrefix(one.Field, "signature."))
		}
		require.ElementsMatch(t, want, names, scheme)
		if scheme != "none" {
			_, wrong = checkedSignature(OfScheme(given))
			require.Empty(t, wrong, scheme)
		}
	}
}

// A valid format reads back what it was filled with.
func TestSignature_FormatRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		separator := rapid.SampledFrom([]string{",", ";", "&", " "}).Draw(t, "separator")
		prefix := rapid.StringMatching(`[a-z][a-z0-9]{0,3}=`)
		elements := []string{prefix.Draw(t, "t") + "{timestamp}", prefix.Draw(t, "s") + "{signature}"}
		if strings.HasPrefix(elements[0], elements[1][:strings.IndexByte(elements[1], '{')]) {
			t.Skip("two elements with one name")
		}
		s := event.IntakeSignature{
			Scheme: SchemeHMAC, Header: "X", Format: strings.Join(elements, separator), Signed: "{timestamp}|{body}",
		}
		checked, wrong := checkedSignature(s)
		require.Empty(t, wrong)
		body := rapid.SliceOf(rapid.Byte()).Draw(t, "body")
		seconds := strconv.FormatInt(noon.Unix(), 10)
		header := strings.NewReplacer("{timestamp}", seconds, "{signature}",
			hexMAC("s", seconds+"|"+string(body))).Replace(s.Format)
		settings := event.IntakeSettings{Kind: Webhook, Signature: &checked}
		require.NoError(t, Verify(settings, Secrets{Secret: "s"}, headers{"x": header}.sent(), body, noon), header)
	})
}

// Any header is either a proof or none.
func FuzzReadSignatures(f *testing.F) {
	f.Add("t=1,v1=00", "t={timestamp},v1={signature}", "{timestamp}.{body}")
	f.Add("v1,AAAA v2,x", "v1,{signature}", "")
	f.Add("a;b", "{id};{signature}", "{id}{body}")
	f.Fuzz(func(t *testing.T, header, format, signed string) {
		given := event.IntakeSignature{Scheme: SchemeHMAC, Header: "X", Format: format, Signed: signed}
		if strings.Contains(signed, placeholderID) {
			given.IDHeader = "I"
		}
		if strings.Contains(signed, placeholderTimestamp) {
			given.TimestampHeader = "T"
		}
		s, wrong := checkedSignature(given)
		if len(wrong) > 0 {
			return
		}
		settings := event.IntakeSettings{Kind: Webhook, Signature: &s}
		require.ErrorIs(t,
			Verify(settings, Secrets{Secret: "s"}, headers{"x": header, "i": "1", "t": "1"}.sent(), []byte("{}"), noon),
			ErrProof)
	})
}
