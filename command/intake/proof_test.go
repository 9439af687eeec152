package intake

import (
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"hash"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/eventstore/event"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

type headers map[string]string

func (h headers) get(name string) string { return h[strings.ToLower(name)] }

// sent has these headers. A name that begins with ? is that of a query parameter.
func (h headers) sent() Sent {
	return Sent{Header: h.get, Query: func(name string) string { return h["?"+name] }}
}

func mac(algorithm func() hash.Hash, secret string, body []byte) []byte {
	m := hmac.New(algorithm, []byte(secret))
	m.Write(body)
	return m.Sum(nil)
}

// The examples are from the documentation of Standard Webhooks and of GitHub, whose scheme Meta and many others use.
func TestVerify_DocumentedSignatures(t *testing.T) {
	t.Parallel()
	standard := headers{
		"webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "webhook-timestamp": "1614265330",
		"webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
	}
	secrets := Secrets{Secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}
	at := time.Unix(1614265330, 0)
	require.NoError(t,
		Verify(event.IntakeSettings{Kind: StandardWebhooks}, secrets, standard.sent(),
			[]byte(`{"test": 2432232314}`), at))

	const signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
	meta := headers{"x-hub-signature-256": signature}
	secrets = Secrets{Secret: "It's a Secret to Everybody"}
	require.NoError(t,
		Verify(event.IntakeSettings{Kind: MetaLeadAds}, secrets, meta.sent(), []byte("Hello, World!"), noon))
	webhook := event.IntakeSettings{Kind: Webhook, Signature: &event.IntakeSignature{
		Scheme: SchemeHMAC, Header: "X-Hub-Signature-256", Prefix: "sha256=", Algorithm: "sha256", Encoding: "hex",
	}}
	require.NoError(t, Verify(webhook, secrets, meta.sent(), []byte("Hello, World!"), noon))
}

// proof builds the settings, headers and body of a valid request that is signed with secret.
type proof func(secret string, body []byte) (event.IntakeSettings, headers, []byte)

func hmacProof(algorithm, encoding, prefix string) proof {
	algorithms := map[string]func() hash.Hash{"sha256": sha256.New, "sha1": sha1.New, "sha512": sha512.New}
	return func(secret string, body []byte) (event.IntakeSettings, headers, []byte) {
		sum := mac(algorithms[algorithm], secret, body)
		encoded := hex.EncodeToString(sum)
		if encoding == "base64" {
			encoded = base64.StdEncoding.EncodeToString(sum)
		}
		return event.IntakeSettings{Kind: Webhook, Signature: &event.IntakeSignature{
			Scheme: SchemeHMAC, Header: "X-Sig", Algorithm: algorithm, Encoding: encoding, Prefix: prefix,
		}}, headers{"x-sig": prefix + encoded}, body
	}
}

// signers are the kinds whose proof is a MAC over the body.
var signers = map[string]proof{
	"meta_lead_ads": func(secret string, body []byte) (event.IntakeSettings, headers, []byte) {
		return event.IntakeSettings{Kind: MetaLeadAds}, headers{
			"x-hub-signature-256": "sha256=" + hex.EncodeToString(mac(sha256.New, secret, body)),
		}, body
	},
	"typeform": func(secret string, body []byte) (event.IntakeSettings, headers, []byte) {
		return event.IntakeSettings{Kind: Typeform}, headers{
			"typeform-signature": "sha256=" + base64.StdEncoding.EncodeToString(mac(sha256.New, secret, body)),
		}, body
	},
	"razorpay": func(secret string, body []byte) (event.IntakeSettings, headers, []byte) {
		return event.IntakeSettings{Kind: Razorpay}, headers{
			"x-razorpay-signature": hex.EncodeToString(mac(sha256.New, secret, body)),
		}, body
	},
	"standard_webhooks": func(secret string, body []byte) (event.IntakeSettings, headers, []byte) {
		sender, _ := standardwebhooks.NewWebhook(secret)
		signature, _ := sender.Sign("msg", noon, body)
		return event.IntakeSettings{Kind: StandardWebhooks}, headers{
			"webhook-id": "msg", "webhook-timestamp": strconv.FormatInt(noon.Unix(), 10),
			"webhook-signature": "v2,x v1,AAAA " + signature,
		}, body
	},
	"sha1 hex":      hmacProof("sha1", "hex", ""),
	"sha256 base64": hmacProof("sha256", "base64", "sig="),
	"sha512 hex":    hmacProof("sha512", "hex", "v1,"),
}

// bearers are the kinds whose proof is the secret itself.
var bearers = map[string]proof{
	"google_lead_form": func(secret string, _ []byte) (event.IntakeSettings, headers, []byte) {
		return event.IntakeSettings{
			Kind: GoogleLeadForm,
		}, nil, []byte(`{"lead_id": "1", "google_key": "` + secret + `"}`)
	},
	"bearer": func(secret string, body []byte) (event.IntakeSettings, headers, []byte) {
		return event.IntakeSettings{
			Kind: Webhook, Signature: &event.IntakeSignature{Scheme: SchemeBearer},
		}, headers{"authorization": "bearer " + secret}, body
	},
	"basic": func(secret string, body []byte) (event.IntakeSettings, headers, []byte) {
		return event.IntakeSettings{Kind: Webhook, Signature: &event.IntakeSignature{Scheme: SchemeBasic}},
			headers{"authorization": "Basic " + base64.StdEncoding.EncodeToString([]byte(secret))}, body
	},
	"header": func(secret string, body []byte) (event.IntakeSettings, headers, []byte) {
		return event.IntakeSettings{
				Kind: Webhook, Signature: &event.IntakeSignature{Scheme: SchemeHeader, Header: "X-Key", Prefix: "k-"},
			},
			headers{"x-key": "k-" + secret}, body
	},
	"query": func(secret string, body []byte) (event.IntakeSettings, headers, []byte) {
		return event.IntakeSettings{
			Kind: Webhook, Signature: &event.IntakeSignature{Scheme: SchemeQuery, Name: "token"},
		}, headers{"?token": secret}, body
	},
}

func standardSecrets(t *rapid.T) string {
	return webhook.SecretPrefix + base64.StdEncoding.EncodeToString(rapid.SliceOfN(rapid.Byte(), 24, 64).Draw(t, "key"))
}

func TestVerify_OnlyUnchangedBodies(t *testing.T) {
	t.Parallel()
	for name, make := range signers {
		rapid.Check(t, func(t *rapid.T) {
			secret := standardSecrets(t)
			body := rapid.SliceOf(rapid.Byte()).Draw(t, "body")
			settings, header, posted := make(secret, body)
			require.NoError(t, Verify(settings, Secrets{Secret: secret}, header.sent(), posted, noon), name)
			changed := append([]byte(nil), posted...)
			if at := rapid.IntRange(0, len(changed)).Draw(t, "at"); at == len(changed) {
				changed = append(changed, rapid.Byte().Draw(t, "more"))
			} else {
				changed[at] ^= rapid.ByteRange(1, 255).Draw(t, "bits")
			}
			require.ErrorIs(t, Verify(settings, Secrets{Secret: secret}, header.sent(), changed, noon), ErrProof, name)
		})
	}
}

func TestVerify_OnlyItsSecret(t *testing.T) {
	t.Parallel()
	const secret, other = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3", "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY4"
	for _, all := range []map[string]proof{signers, bearers} {
		for name, make := range all {
			settings, header, body := make(secret, []byte(`{"a": 1}`))
			require.NoError(t, Verify(settings, Secrets{Secret: secret}, header.sent(), body, noon), name)
			for _, wrong := range []string{other, "", secret + "=", secret[:len(secret)-1]} {
				require.ErrorIs(t, Verify(settings, Secrets{Secret: wrong}, header.sent(), body, noon),
					ErrProof, "%s %s", name, wrong)
			}
			require.ErrorIs(t, Verify(settings, Secrets{Secret: secret}, headers{}.sent(), []byte(`{}`), noon),
				ErrProof, "%s without proof", name)
			settings, header, body = make("", []byte(`{"a": 1}`))
			require.ErrorIs(t, Verify(settings, Secrets{}, header.sent(), body, noon), ErrProof,
				"%s without a secret", name)
		}
	}
}

func TestVerifyHeaders_BeforeBody(t *testing.T) {
	t.Parallel()
	const secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3"
	for _, all := range []map[string]proof{signers, bearers} {
		for name, make := range all {
			settings, header, _ := make(secret, []byte(`{"a": 1}`))
			_, signer := signers[name]
			inBody := name == "google_lead_form"
			proven, err := VerifyHeaders(settings, Secrets{Secret: secret}, header.sent(), noon)
			require.NoError(t, err, name)
			require.Equal(t, !signer && !inBody, proven, name)
			for _, wrong := range []headers{
				{}, {"authorization": "Bearer x", "x-key": "k-x"},
				{
					"x-sig": "00", "x-hub-signature-256": "sha256=00", "typeform-signature": "sha256=AA==",
					"x-razorpay-signature": "00", "webhook-signature": "v1,AA==",
				},
			} {
				proven, err = VerifyHeaders(settings, Secrets{Secret: secret}, wrong.sent(), noon)
				require.False(t, proven, name)
				require.Equal(t, inBody, err == nil, name)
			}
		}
	}
}

func TestVerify_StandardTimestamps(t *testing.T) {
	t.Parallel()
	const secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3"
	settings, header, body := signers["standard_webhooks"](secret, []byte(`{}`))
	for age, want := range map[time.Duration]error{
		0: nil, DefaultTolerance: nil, -DefaultTolerance: nil, DefaultTolerance + time.Second: ErrProof,
		-DefaultTolerance - time.Second: ErrProof,
	} {
		require.ErrorIs(t, Verify(settings, Secrets{Secret: secret}, header.sent(), body, noon.Add(age)), want, age)
	}
	header["webhook-id"] = "msg2"
	require.ErrorIs(t, Verify(settings, Secrets{Secret: secret}, header.sent(), body, noon),
		ErrProof, "the id is signed too")
}

func TestVerify_MetaSecrets(t *testing.T) {
	t.Parallel()
	settings, header, body := signers["meta_lead_ads"]("app", []byte(`{}`))
	require.NoError(t, Verify(settings, Secrets{AppSecret: "app", Secret: "x"}, header.sent(), body, noon))
	require.ErrorIs(t, Verify(settings, Secrets{AppSecret: "other", Secret: "app"}, header.sent(), body, noon),
		ErrProof)
}

func TestVerify_Misconfigured(t *testing.T) {
	t.Parallel()
	require.NoError(t, Verify(event.IntakeSettings{Kind: Form}, Secrets{}, headers{}.sent(), nil, noon))
	for _, settings := range []event.IntakeSettings{
		{Kind: Webhook}, {}, {Kind: Webhook, Signature: &event.IntakeSignature{Scheme: "other"}},
		{Kind: Webhook, Signature: &event.IntakeSignature{}},
		{Kind: Webhook, Signature: &event.IntakeSignature{Scheme: SchemeHeader}},
	} {
		require.ErrorIs(t, Verify(settings, Secrets{Secret: "s"}, headers{"authorization": "s"}.sent(), nil, noon),
			ErrProof)
	}
	for _, body := range []string{
		``, `[]`, `{`, `{"google_key": "s"`, `{"google_key": 5}`, `{"a": {"google_key": "s"}}`,
		`{"google_key": "s", "google_key": "s"}`,
	} {
		require.ErrorIs(t,
			Verify(event.IntakeSettings{Kind: GoogleLeadForm}, Secrets{Secret: "s"}, headers{}.sent(),
				[]byte(body), noon), ErrProof, body)
	}
}

func TestVisibleHeaders_WithoutProofs(t *testing.T) {
	t.Parallel()
	settings := event.IntakeSettings{
		Kind: Webhook, Signature: &event.IntakeSignature{Scheme: SchemeHeader, Header: "X-Own-Key"},
	}
	visible := VisibleHeaders(settings, map[string][]string{
		"Content-Type": {"application/json"}, "X-Own-Key": {"secret"}, "Authorization": {"secret"},
		"Cookie": {"secret"}, "X-Two": {"1", "2"}, "X-None": {}, "X-Raw": {"a\xff\x00b"},
	})
	require.Equal(t, map[string]string{"content-type": "application/json", "x-two": "1", "x-raw": "a\uFFFDb"}, visible)
	standard := VisibleHeaders(event.IntakeSettings{Kind: StandardWebhooks}, map[string][]string{
		"Webhook-Signature": {"secret"}, "Webhook-Id": {"m"}, "Svix-Signature": {"secret"},
	})
	require.Equal(t, map[string]string{"webhook-id": "m"}, standard)
	require.Less(t,
		len(VisibleHeaders(settings, map[string][]string{"A": {strings.Repeat("x", maxHeaders)}, "B": {"1"}})), 2)
}

func TestVisibleQuery_WithoutSecret(t *testing.T) {
	t.Parallel()
	const query = "k%65y=secret&a=1&a=2&&b=%zz&c=x+y"
	settings := event.IntakeSettings{Kind: Webhook, Signature: &event.IntakeSignature{Scheme: SchemeQuery}}
	require.Equal(t, map[string]string{"a": "1", "c": "x y"}, VisibleQuery(settings, query, false))
	require.Equal(t, map[string]string{"a": "1", "c": "x y", "key": "secret"},
		VisibleQuery(event.IntakeSettings{Kind: Form}, query, false))
}

func TestVisibleQuery_LostPlus(t *testing.T) {
	t.Parallel()
	const query = "lost=+919876512345&kept=%2B919876512345&space=%2098765+12345&text=+a"
	none := event.IntakeSettings{Kind: Webhook}
	require.Equal(t, map[string]string{
		"lost": "+919876512345", "kept": "+919876512345", "space": " 98765 12345", "text": " a",
	}, VisibleQuery(none, query, false))
	require.Equal(t, " 919876512345", VisibleQuery(none, query, true)["lost"], "a browser escapes a plus")
}

func TestVerify_SecretBeforeRotation(t *testing.T) {
	t.Parallel()
	secrets := Secrets{Secret: "new", Old: "old", OldUntil: noon.Add(time.Hour)}
	for name, c := range map[string]struct {
		secret string
		at     time.Duration
		want   error
	}{
		"new":         {"new", 0, nil},
		"old":         {"old", 0, nil},
		"old expired": {"old", time.Hour, ErrProof},
		"new, later":  {"new", time.Hour, nil},
		"other":       {"other", 0, ErrProof},
	} {
		for kind, make := range map[string]proof{
			"razorpay": signers["razorpay"], "bearer": bearers["bearer"], "google": bearers["google_lead_form"],
		} {
			settings, header, body := make(c.secret, []byte(`{}`))
			require.ErrorIs(t, Verify(settings, secrets, header.sent(), body, noon.Add(c.at)),
				c.want, "%s %s", kind, name)
		}
	}
}

func TestMasked_HidesKeyOnly(t *testing.T) {
	t.Parallel()
	masked := Masked(GoogleLeadForm, []byte(`{ "google_key" : "sec\"ret", "lead_id": "1" }`))
	require.Equal(t, `{ "google_key" : "***", "lead_id": "1" }`, string(masked))
	for _, body := range []string{``, `{"a": 1}`, `[1]`, `x`} {
		require.Equal(t, body, string(Masked(GoogleLeadForm, []byte(body))))
		require.Equal(t, body, string(Masked(Form, []byte(body))))
	}
}

func TestAuthenticate_HTTPSchemes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		signature *event.IntakeSignature
		want      string
	}{
		"bearer": {&event.IntakeSignature{Scheme: SchemeBearer}, "Bearer"},
		"basic, named": {
			&event.IntakeSignature{
				Scheme: SchemeBasic, Header: "authorization",
			}, `Basic realm="intake", charset="UTF-8"`,
		},
		"bearer in its header": {&event.IntakeSignature{Scheme: SchemeBearer, Header: "X-Token"}, ""},
		"hmac":                 {&event.IntakeSignature{Scheme: SchemeHMAC, Header: "X-Signature"}, ""},
		"no own signature":     {nil, ""},
	} {
		require.Equal(t, c.want, Authenticate(event.IntakeSettings{Signature: c.signature}), name)
	}
}
