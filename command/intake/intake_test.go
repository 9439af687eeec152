package intake_test

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/intake"
	"github.com/leadlog/leadlog/eventstore/event"
)

var (
	created = time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	form    = intake.Update{Name: new("Site"), Kind: new(intake.Form)}
)

func random() (string, error) { return "a+b/c=", nil }

// evolveAfter folds facts that occur some time after the creation.
func evolveAfter(s intake.State, after time.Duration, facts ...event.Data) intake.State {
	for _, data := range facts {
		at := created.Add(after)
		s = intake.Evolve(s, event.Fact{
			ID: ulid.MustNew(ulid.Timestamp(at), nil), At: at, Metadata: event.Metadata{Account: "acme"}, Data: data,
		})
	}
	return s
}

// live creates an intake and returns its state and secrets.
func live(t *testing.T, c intake.Update) (intake.State, intake.Secrets) {
	t.Helper()
	fact, secrets, _, err := intake.Create(c, random, false)
	require.NoError(t, err)
	return evolveAfter(intake.State{}, 0, fact), secrets
}

// fields returns the field names of an error, which must be field.Errors.
func fields(t *testing.T, err error) (names []string) {
	t.Helper()
	var wrong field.Errors
	require.ErrorAs(t, err, &wrong)
	for _, one := range wrong {
		names = append(names, one.Field)
	}
	return names
}

func TestCreate_Defaults(t *testing.T) {
	t.Parallel()
	for kind, c := range map[string]struct{ source, secret string }{
		intake.Form:             {"website", ""},
		intake.GoogleLeadForm:   {"google_ad", "a-b_c"},
		intake.Typeform:         {"website", "a-b_c"},
		intake.Razorpay:         {"payment_page_drop", "a-b_c"},
		intake.StandardWebhooks: {"webhook", "whsec_a+b/c="},
		intake.Webhook:          {"webhook", "a-b_c"},
	} {
		change := intake.Update{Name: new(" Site "), Kind: &kind}
		if kind == intake.Webhook {
			change.Signature = &event.IntakeSignature{Header: "X-Signature"}
		}
		fact, secrets, made, err := intake.Create(change, random, false)
		require.NoError(t, err, kind)
		require.Equal(t, "Site", fact.Name)
		require.Equal(t, c.source, fact.Source, kind)
		require.True(t, fact.Enabled)
		require.Equal(t, intake.Secrets{Secret: c.secret}, secrets, kind)
		require.Equal(t, c.secret != "", made, kind)
	}
}

func TestCreate_GivenSecrets(t *testing.T) {
	t.Parallel()
	fact, secrets, made, err := intake.Create(intake.Update{
		Name: new("Ads"), Kind: new(intake.MetaLeadAds), AppSecret: new("app"), VerifyToken: new("verify"),
		AccessToken: new("access"),
		GraphURL:    new("https://graph.example.com/v25.0/"),
	}, random, false)
	require.NoError(t, err)
	require.False(t, made)
	require.Equal(t, "facebook_ad", fact.Source)
	require.Equal(t, "https://graph.example.com/v25.0", fact.GraphURL)
	require.Equal(t, "app", secrets.Signing())
	require.Equal(t, "verify", secrets.Verifying())

	_, secrets, _, err = intake.Create(intake.Update{
		Name: new("Ads"), Kind: new(intake.MetaLeadAds), Secret: new("both"),
	}, random, false)
	require.NoError(t, err)
	require.Equal(t, "both", secrets.Signing())
	require.Equal(t, "both", secrets.Verifying())
}

func TestCreate_Signature(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ in, want event.IntakeSignature }{
		"hmac by default": {event.IntakeSignature{Header: " X-Sig "}, event.IntakeSignature{
			Scheme: "hmac", Header: "X-Sig", Algorithm: "sha256", Encoding: "hex",
		}},
		"hmac, all settings": {
			event.IntakeSignature{
				Scheme: "hmac", Header: "X-Sig", Algorithm: "sha1", Encoding: "base64", Prefix: "sha1=",
			}, event.IntakeSignature{
				Scheme: "hmac", Header: "X-Sig", Algorithm: "sha1", Encoding: "base64", Prefix: "sha1=",
			},
		},
		"bearer, no header": {event.IntakeSignature{Scheme: "bearer"}, event.IntakeSignature{Scheme: "bearer"}},
		"basic": {
			event.IntakeSignature{Scheme: "basic"}, event.IntakeSignature{Scheme: "basic"},
		},
		"header, no hash": {
			event.IntakeSignature{Scheme: "header", Header: "X-Key"},
			event.IntakeSignature{Scheme: "header", Header: "X-Key"},
		},
	} {
		fact, secrets, _, err := intake.Create(intake.Update{
			Name: new("Shop"), Kind: new(intake.Webhook), Signature: &c.in,
		}, random, false)
		require.NoError(t, err, name)
		require.Equal(t, c.want, *fact.Signature, name)
		require.Equal(t, c.want.Scheme == "basic", strings.HasPrefix(secrets.Secret, "leadlog:"), name)
	}
}

func TestCreate_NamesWrongField(t *testing.T) {
	t.Parallel()
	kind := func(kind string, change func(*intake.Update)) intake.Update {
		c := intake.Update{Name: new("Site"), Kind: &kind}
		if kind == intake.Webhook {
			c.Signature = &event.IntakeSignature{Header: "X-Sig"}
		}
		change(&c)
		return c
	}
	for _, c := range []struct {
		name   string
		change intake.Update
		want   []string
	}{
		{"nothing", intake.Update{}, []string{"kind", "name"}},
		{"unknown kind", kind("fax", func(*intake.Update) {}), []string{"kind"}},
		{"blank name", kind(intake.Form, func(c *intake.Update) { c.Name = new(" ") }), []string{"name"}},
		{
			"name of 101 characters",
			kind(intake.Form, func(c *intake.Update) { c.Name = new(strings.Repeat("é", 101)) }), []string{"name"},
		},
		{
			"source in capitals", kind(intake.Form, func(c *intake.Update) { c.Source = new("Website") }),
			[]string{"source"},
		},
		{"curated source", kind(intake.Form, func(c *intake.Update) { c.Source = new("manual") }), []string{"source"}},
		{
			"origin with a path",
			kind(intake.Form, func(c *intake.Update) { c.Origins = &[]string{"https://example.com/"} }),
			[]string{"origins"},
		},
		{
			"origin without a scheme",
			kind(intake.Form, func(c *intake.Update) { c.Origins = &[]string{"example.com"} }), []string{"origins"},
		},
		{"any origin", kind(intake.Form, func(c *intake.Update) { c.Origins = &[]string{"*"} }), []string{"origins"}},
		{
			"origin in another script",
			kind(intake.Form, func(c *intake.Update) { c.Origins = &[]string{"https://bücher.example"} }),
			[]string{"origins"},
		},
		{
			"null origin", kind(intake.Form, func(c *intake.Update) { c.Origins = &[]string{"null"} }),
			[]string{"origins"},
		},
		{
			"origin with a user",
			kind(intake.Form, func(c *intake.Update) { c.Origins = &[]string{"https://ann@example.com"} }),
			[]string{"origins"},
		},
		{
			"51 origins",
			kind(intake.Form, func(c *intake.Update) {
				c.Origins = new(slices.Repeat([]string{"https://example.com"}, 51))
			}), []string{"origins"},
		},
		{
			"redirect by http", kind(intake.Form, func(c *intake.Update) { c.Redirect = new("http://example.com/") }),
			[]string{"redirect"},
		},
		{
			"redirect by script", kind(intake.Form, func(c *intake.Update) { c.Redirect = new("javascript:alert(1)") }),
			[]string{"redirect"},
		},
		{
			"redirect to a path", kind(intake.Form, func(c *intake.Update) { c.Redirect = new("/thanks") }),
			[]string{"redirect"},
		},
		{
			"redirect with a header",
			kind(intake.Form, func(c *intake.Update) { c.Redirect = new("https://example.com/\r\nX: 1") }),
			[]string{"redirect"},
		},
		{
			"honeypot of 101 characters",
			kind(intake.Form, func(c *intake.Update) { c.Honeypot = new(strings.Repeat("h", 101)) }),
			[]string{"honeypot"},
		},
		{
			"unknown provider",
			kind(intake.Form, func(c *intake.Update) {
				c.Challenge = &intake.Challenge{Provider: "captcha", Secret: "s"}
			}), []string{"challenge.provider"},
		},
		{
			"challenge without its secret",
			kind(intake.Form, func(c *intake.Update) { c.Challenge = &intake.Challenge{Provider: "turnstile"} }),
			[]string{"challenge.secret"},
		},
		{
			"negative rate", kind(intake.Form, func(c *intake.Update) { c.RateLimit = &intake.Rate{Limit: new(-1.0)} }),
			[]string{"rateLimit"},
		},
		{
			"expected each second", kind(intake.Form, func(c *intake.Update) { c.ExpectEvery = new("59s") }),
			[]string{"expectEvery"},
		},
		{
			"expected each day", kind(intake.Form, func(c *intake.Update) { c.ExpectEvery = new("1 day") }),
			[]string{"expectEvery"},
		},
		{
			"expected each decade", kind(intake.Form, func(c *intake.Update) { c.ExpectEvery = new("87600h") }),
			[]string{"expectEvery"},
		},
		{"secret of a form", kind(intake.Form, func(c *intake.Update) { c.Secret = new("s") }), []string{"secret"}},
		{
			"origins of another kind",
			kind(intake.Typeform, func(c *intake.Update) { c.Origins = &[]string{"https://example.com"} }),
			[]string{"origins"},
		},
		{
			"challenge of another kind",
			kind(intake.Typeform, func(c *intake.Update) {
				c.Challenge = &intake.Challenge{Provider: "turnstile", Secret: "s"}
			}), []string{"challenge"},
		},
		{
			"signature of another kind",
			kind(intake.Typeform, func(c *intake.Update) { c.Signature = &event.IntakeSignature{Header: "X"} }),
			[]string{"signature"},
		},
		{
			"app secret of another kind", kind(intake.Typeform, func(c *intake.Update) { c.AppSecret = new("s") }),
			[]string{"appSecret"},
		},
		{"Meta without a secret", kind(intake.MetaLeadAds, func(*intake.Update) {}), []string{"secret"}},
		{
			"Graph API in a private network",
			kind(intake.MetaLeadAds, func(c *intake.Update) {
				c.Secret, c.GraphURL = new("s"), new("https://10.0.0.1")
			}), []string{"graphUrl"},
		},
		{
			"Graph API with a query",
			kind(intake.MetaLeadAds, func(c *intake.Update) {
				c.Secret, c.GraphURL = new("s"), new("https://example.com/?a=1")
			}), []string{"graphUrl"},
		},
		{
			"webhook without a signature", kind(intake.Webhook, func(c *intake.Update) { c.Signature = nil }),
			[]string{"signature"},
		},
		{
			"signature without a header",
			kind(intake.Webhook, func(c *intake.Update) { c.Signature = &event.IntakeSignature{Scheme: "hmac"} }),
			[]string{"signature.header"},
		},
		{
			"default signature",
			kind(intake.Webhook, func(c *intake.Update) { c.Signature = &event.IntakeSignature{} }),
			[]string{"signature"},
		},
		{
			"header with a space",
			kind(intake.Webhook, func(c *intake.Update) { c.Signature = &event.IntakeSignature{Header: "X Sig"} }),
			[]string{"signature.header"},
		},
		{
			"unknown scheme",
			kind(intake.Webhook, func(c *intake.Update) {
				c.Signature = &event.IntakeSignature{Header: "X", Scheme: "none"}
			}), []string{"signature.scheme"},
		},
		{"unknown hash", kind(intake.Webhook, func(c *intake.Update) {
			c.Signature = &event.IntakeSignature{Header: "X", Algorithm: "md5", Encoding: "hex2"}
		}), []string{"signature.algorithm", "signature.encoding"}},
		{"members of another scheme", kind(intake.Webhook, func(c *intake.Update) {
			c.Signature = &event.IntakeSignature{Scheme: "basic", Header: "Authorization", Algorithm: "sha256"}
		}), []string{"signature.header", "signature.algorithm"}},
		{"basic without a user", kind(intake.Webhook, func(c *intake.Update) {
			c.Signature, c.Secret = &event.IntakeSignature{Scheme: "basic"}, new("password")
		}), []string{"secret"}},
		{
			"secret with a line break", kind(intake.Typeform, func(c *intake.Update) { c.Secret = new("a\nb") }),
			[]string{"secret"},
		},
		{
			"no standard secret", kind(intake.StandardWebhooks, func(c *intake.Update) { c.Secret = new("secret") }),
			[]string{"secret"},
		},
	} {
		_, _, _, err := intake.Create(c.change, random, false)
		require.Equal(t, c.want, fields(t, err), c.name)
	}
}

func TestCreate_PrivateTargets(t *testing.T) {
	t.Parallel()
	redirected := intake.Update{
		Name: new("Site"), Kind: new(intake.Form), Redirect: new("http://localhost:8080/thanks"),
	}
	_, _, _, err := intake.Create(redirected, random, true)
	require.NoError(t, err)
	graph := intake.Update{
		Name: new("Ads"), Kind: new(intake.MetaLeadAds), Secret: new("s"), GraphURL: new("http://127.0.0.1:9000"),
	}
	_, _, _, err = intake.Create(graph, random, true)
	require.NoError(t, err)
}

func TestCreate_Origins(t *testing.T) {
	t.Parallel()
	fact, _, _, err := intake.Create(intake.Update{
		Name: new("Site"), Kind: new(intake.Form),
		Origins: &[]string{
			"https://WWW.example.com:443", "http://localhost:3000", "https://www.example.com", "http://a.example:80",
		},
	}, random, false)
	require.NoError(t, err)
	require.Equal(t, []string{"http://a.example", "http://localhost:3000", "https://www.example.com"}, fact.Origins,
		"origins have the form that browsers send")
}

func TestChange_OnlyDifferences(t *testing.T) {
	t.Parallel()
	s, secrets := live(t, intake.Update{
		Name: new("Site"), Kind: new(intake.Form), Redirect: new("https://example.com/"),
		Challenge: &intake.Challenge{Provider: "turnstile", Secret: "s"},
	})
	for name, c := range map[string]struct {
		change intake.Update
		want   []string
	}{
		"nothing": {intake.Update{}, nil},
		"the same": {
			intake.Update{
				Name: new("Site "), Kind: new(intake.Form), Enabled: new(true), Redirect: new("https://example.com/"),
			}, nil,
		},
		"the same challenge": {
			intake.Update{Challenge: &intake.Challenge{Provider: "turnstile", Secret: "s"}}, nil,
		},
		"the same provider": {intake.Update{Challenge: &intake.Challenge{Provider: "turnstile"}}, nil},
		"another secret": {
			intake.Update{Challenge: &intake.Challenge{Provider: "turnstile", Secret: "t"}},
			[]string{"challenge.secret"},
		},
		"another provider": {
			intake.Update{Challenge: &intake.Challenge{Provider: "hcaptcha", Secret: "t"}},
			[]string{"challenge", "challenge.secret"},
		},
		"no challenge": {
			intake.Update{Challenge: &intake.Challenge{}}, []string{"challenge", "challenge.secret"},
		},
		"off, and no redirect": {
			intake.Update{Enabled: new(false), Redirect: new("")}, []string{"enabled", "redirect"},
		},
		"default source":         {intake.Update{Source: new("")}, nil},
		"rate, then the default": {intake.Update{RateLimit: &intake.Rate{Limit: new(0.0)}}, []string{"rateLimit"}},
		"no mapping":             {intake.Update{Mapping: &map[string]string{}}, nil},
	} {
		changed, after, err := s.Change("acme", c.change, secrets, false)
		require.NoError(t, err, name)
		if c.want == nil {
			require.Nil(t, changed, name)
			require.Equal(t, secrets, after, name)
			continue
		}
		require.Equal(t, c.want, changed.Changed, name)
		require.Equal(t, slices.Contains(c.want, "challenge.secret"), after != secrets, name)
		require.Equal(t, after != secrets, intake.SetsSecrets(*changed), name)
	}
}

func TestChange_ZeroRemovesSecret(t *testing.T) {
	t.Parallel()
	none, signature := new(""), &event.IntakeSignature{Scheme: "bearer"}
	for name, c := range map[string]struct {
		created, change intake.Update
		want            []string // what has changed
		wrong           string   // the field that is
	}{
		"those of Meta": {
			intake.Update{Kind: new(intake.MetaLeadAds), Secret: new("s"), AppSecret: new("a"), AccessToken: new("t")},
			intake.Update{AppSecret: none, VerifyToken: none, AccessToken: none},
			[]string{"appSecret", "accessToken"}, "",
		},
		"secret beside an appSecret": {
			intake.Update{Kind: new(intake.WhatsApp), Secret: new("s"), AppSecret: new("a")},
			intake.Update{Secret: none}, []string{"secret"}, "",
		},
		"the only secret that signs": {
			intake.Update{Kind: new(intake.WhatsApp), AppSecret: new("a"), VerifyToken: new("v")},
			intake.Update{AppSecret: none}, nil, "secret",
		},
		"secret of another kind": {intake.Update{Kind: new(intake.Typeform)}, intake.Update{Secret: none}, nil, "secret"},
		"secret of a form":       {intake.Update{Kind: new(intake.Form)}, intake.Update{Secret: none}, nil, ""},
		"signature of a webhook": {
			intake.Update{Kind: new(intake.Webhook), Signature: signature},
			intake.Update{Signature: &event.IntakeSignature{}}, nil, "signature",
		},
		"signature of another kind": {
			intake.Update{Kind: new(intake.Typeform)}, intake.Update{Signature: &event.IntakeSignature{}}, nil, "",
		},
	} {
		c.created.Name = new("Site")
		s, secrets := live(t, c.created)
		changed, after, err := s.Change("acme", c.change, secrets, false)
		switch {
		case c.wrong != "":
			require.Equal(t, []string{c.wrong}, fields(t, err), name)
			require.ErrorContains(t, err, "is required", name)
		case c.want == nil:
			require.NoError(t, err, name)
			require.Nil(t, changed, name)
		default:
			require.NoError(t, err, name)
			require.NotNil(t, changed, name)
			require.Equal(t, c.want, changed.Changed, name)
			require.NotEqual(t, secrets, after, name)
		}
	}
}

// The address that a caller sets got the token of the page.
func TestChange_GraphURLRemovesToken(t *testing.T) {
	t.Parallel()
	s, secrets := live(t, intake.Update{
		Name: new("Page"), Kind: new(intake.MetaLeadAds), Secret: new("app"), AccessToken: new("of the page"),
		GraphURL: new("https://graph.example.com/v1"),
	})
	for name, c := range map[string]struct {
		change intake.Update
		want   string
	}{
		"another address": {intake.Update{GraphURL: new("https://elsewhere.example.com")}, ""},
		"another path":    {intake.Update{GraphURL: new("https://graph.example.com/v2")}, ""},
		"the default":     {intake.Update{GraphURL: new("")}, ""},
		"the same address": {
			intake.Update{GraphURL: new("https://graph.example.com/v1/"), Name: new("Shop")}, "of the page",
		},
		"no address": {intake.Update{Name: new("Shop")}, "of the page"},
		"another address with one": {
			intake.Update{GraphURL: new("https://elsewhere.example.com"), AccessToken: new("new")}, "new",
		},
	} {
		changed, after, err := s.Change("acme", c.change, secrets, false)
		require.NoError(t, err, name)
		require.Equal(t, c.want, after.AccessToken, name)
		require.Equal(t, "app", after.Secret, name)
		require.Equal(t, c.want != "of the page", slices.Contains(changed.Changed, "accessToken"), name)
	}
}

func TestChange_Refuses(t *testing.T) {
	t.Parallel()
	s, secrets := live(t, form)
	_, _, err := s.Change("acme", intake.Update{Kind: new(intake.Typeform)}, secrets, false)
	require.Equal(t, []string{"kind"}, fields(t, err))
	_, _, err = s.Change("acme", intake.Update{Name: new("")}, secrets, false)
	require.Equal(t, []string{"name"}, fields(t, err))
	_, _, err = s.Change("globex", intake.Update{Name: new("")}, secrets, false)
	require.ErrorIs(t, err, intake.ErrNotFound, "the owner is checked before the change")
	_, _, err = evolveAfter(s, 0, event.IntakeDeleted{}).Change("acme", intake.Update{}, secrets, false)
	require.ErrorIs(t, err, intake.ErrNotFound)
	challenged, secrets := live(t, intake.Update{
		Name: new("Site"), Kind: new(intake.Form), Challenge: &intake.Challenge{Provider: "turnstile", Secret: "s"},
	})
	_, _, err = challenged.Change("acme", intake.Update{
		Challenge: &intake.Challenge{Provider: "hcaptcha"},
	}, secrets, false)
	require.Equal(t, []string{"challenge.secret"}, fields(t, err), "the stored secret belongs to the previous provider")
}

// An intake that was changed to basic authentication kept a secret that no sender can present: from then on, every post
// was 401.
func TestChange_SchemeSuitsSecret(t *testing.T) {
	t.Parallel()
	bearer := intake.Update{
		Name: new("Calls"), Kind: new(intake.Webhook), Secret: new("token"),
		Signature: &event.IntakeSignature{Scheme: "bearer"},
	}
	s, secrets := live(t, bearer)
	basic := &event.IntakeSignature{Scheme: "basic"}
	_, after, err := s.Change("acme", intake.Update{Signature: basic}, secrets, false)
	require.Equal(t, []string{"secret"}, fields(t, err))
	require.Equal(t, secrets, after)
	_, after, err = s.Change("acme", intake.Update{Signature: basic, Secret: new("user:password")}, secrets, false)
	require.NoError(t, err)
	require.Equal(t, "user:password", after.Secret)
	_, after, err = s.Change("acme", intake.Update{
		Signature: &event.IntakeSignature{Scheme: "header", Header: "X-Key"},
	}, secrets, false)
	require.NoError(t, err, "the other schemes take any secret")
	require.Equal(t, secrets, after)
	bearer.Secret = new("user:password")
	s, secrets = live(t, bearer)
	_, _, err = s.Change("acme", intake.Update{Signature: basic}, secrets, false)
	require.NoError(t, err)
}

func TestRotate_ByKind(t *testing.T) {
	t.Parallel()
	s, secrets := live(t, intake.Update{Name: new("Forms"), Kind: new(intake.Typeform), Secret: new("old")})
	_, after, err := s.Rotate("acme", intake.Rotation{Secret: nil, New: random}, secrets)
	require.NoError(t, err)
	require.Equal(t, "a-b_c", after.Secret)
	_, after, err = s.Rotate("acme", intake.Rotation{Secret: new("theirs"), New: random}, secrets)
	require.NoError(t, err)
	require.Equal(t, "theirs", after.Secret)
	_, _, err = s.Rotate("globex", intake.Rotation{Secret: nil, New: random}, secrets)
	require.ErrorIs(t, err, intake.ErrNotFound)

	public, none := live(t, form)
	_, _, err = public.Rotate("acme", intake.Rotation{Secret: nil, New: random}, none)
	require.Equal(t, []string{"secret"}, fields(t, err))

	meta, separate := live(t, intake.Update{
		Name: new("Ads"), Kind: new(intake.MetaLeadAds), AppSecret: new("app"), VerifyToken: new("verify"),
		AccessToken: new("access"),
	})
	_, _, err = meta.Rotate("acme", intake.Rotation{Secret: nil, New: random}, separate)
	require.Equal(t, []string{"secret"}, fields(t, err))
	_, after, err = meta.Rotate("acme", intake.Rotation{Secret: new("new"), New: random}, separate)
	require.NoError(t, err)
	require.Equal(t, intake.Secrets{Secret: "new", AccessToken: "access"}, after, "the old secrets are removed")
}

func TestRotate_RandomFails(t *testing.T) {
	t.Parallel()
	errRandom := errors.New("no random")
	s, secrets := live(t, intake.Update{Name: new("Forms"), Kind: new(intake.Typeform)})
	_, _, err := s.Rotate("acme", intake.Rotation{
		Secret: nil, New: func() (string, error) { return "", errRandom },
	}, secrets)
	require.ErrorIs(t, err, errRandom)
}

func TestState_SecretID(t *testing.T) {
	t.Parallel()
	s, _ := live(t, form)
	at := func(after time.Duration) string {
		return ulid.MustNew(ulid.Timestamp(created.Add(after)), nil).String()
	}
	require.Equal(t, at(0), s.SecretID)
	s = evolveAfter(s, time.Second, event.IntakeChanged{IntakeSettings: s.Settings, Changed: []string{"name"}})
	require.Equal(t, at(0), s.SecretID)
	s = evolveAfter(s, 2*time.Second, event.IntakeChanged{
		IntakeSettings: s.Settings, Changed: []string{"name", "accessToken"},
	})
	require.Equal(t, at(2*time.Second), s.SecretID)
	s = evolveAfter(s, 3*time.Second, event.IntakeRotated{})
	require.Equal(t, at(3*time.Second), s.SecretID)
}

func TestSecrets_NeverPrinted(t *testing.T) {
	t.Parallel()
	secrets := intake.Secrets{
		Secret: "hunter2", AppSecret: "hunter2", VerifyToken: "hunter2", AccessToken: "hunter2", Challenge: "hunter2",
	}
	var logged strings.Builder
	slog.New(slog.NewTextHandler(&logged, nil)).Info("x", "secrets", secrets)
	for _, text := range []string{
		fmt.Sprint(secrets), fmt.Sprintf("%+v %#v %v", secrets, secrets, &secrets), logged.String(),
	} {
		require.NotContains(t, text, "hunter2")
	}
}

func TestSilence_CountsFrom(t *testing.T) {
	t.Parallel()
	expecting, _ := live(t, intake.Update{Name: new("Site"), Kind: new(intake.Form), ExpectEvery: new("1h")})
	off := evolveAfter(expecting, time.Minute, event.IntakeChanged{
		IntakeSettings: event.IntakeSettings{ExpectEvery: "1h"},
	})
	on := evolveAfter(off, 5*time.Hour, event.IntakeChanged{
		IntakeSettings: event.IntakeSettings{ExpectEvery: "1h", Enabled: true},
	})
	unmonitored, _ := live(t, form)
	silent := evolveAfter(expecting, time.Hour, event.IntakeSilent{Since: created})
	for name, c := range map[string]struct {
		state        intake.State
		arrived, now time.Duration // 0: no arrival
		want         bool
	}{
		"creation":                     {expecting, 0, time.Hour, true},
		"creation, too soon":           {expecting, 0, time.Hour - 1, false},
		"the latest arrival":           {expecting, 30 * time.Minute, 90 * time.Minute, true},
		"the latest arrival, too soon": {expecting, 30 * time.Minute, 89 * time.Minute, false},
		"nothing is expected":          {unmonitored, 0, 1000 * time.Hour, false},
		"disabled":                     {off, 0, 1000 * time.Hour, false},
		"enabled again, too soon":      {on, 0, 5*time.Hour + time.Minute, false},
		"enabled again":                {on, 0, 6 * time.Hour, true},
		"reported before":              {silent, 0, 9 * time.Hour, false},
		"deleted":                      {evolveAfter(expecting, 0, event.IntakeDeleted{}), 0, 9 * time.Hour, false},
	} {
		var arrived time.Time
		since := created
		if c.arrived > 0 {
			arrived = created.Add(c.arrived)
			since = arrived
		}
		fact, due := c.state.ReportSilence(arrived, created.Add(c.now))
		require.Equal(t, c.want, due, name)
		require.Equal(t, since, fact.Since, name)
	}
}

func TestSilence_EndsByChange(t *testing.T) {
	t.Parallel()
	expecting, _ := live(t, intake.Update{Name: new("Site"), Kind: new(intake.Form), ExpectEvery: new("1h")})
	silent := evolveAfter(expecting, time.Hour, event.IntakeSilent{Since: created})
	for name, c := range map[string]struct {
		settings event.IntakeSettings
		want     bool
	}{
		"another name":        {event.IntakeSettings{Enabled: true, Name: "X", ExpectEvery: "1h"}, true},
		"nothing is expected": {event.IntakeSettings{Enabled: true}, false},
		"a longer time":       {event.IntakeSettings{Enabled: true, ExpectEvery: "3h"}, false},
		"a shorter time":      {event.IntakeSettings{Enabled: true, ExpectEvery: "1m"}, true},
		"disabled":            {event.IntakeSettings{ExpectEvery: "1h"}, true},
	} {
		after := evolveAfter(silent, 2*time.Hour, event.IntakeChanged{IntakeSettings: c.settings})
		require.Equal(t, c.want, after.Silent, name)
	}
}

// Each silence is reported once and ended once, for any sequence of checks and arrivals.
func TestSilence_ReportedOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		s, _ := live(t, intake.Update{Name: new("Site"), Kind: new(intake.Form), ExpectEvery: new("10m")})
		var now time.Duration
		var arrived time.Time
		reported := false
		for range rapid.IntRange(1, 60).Draw(r, "steps") {
			now += time.Duration(rapid.IntRange(1, 15).Draw(r, "minutes")) * time.Minute
			if rapid.Bool().Draw(r, "arrives") {
				arrived = created.Add(now)
				continue
			}
			if fact, due := s.Resume(arrived); due {
				require.True(r, reported)
				s, reported = evolveAfter(s, now, fact), false
			}
			if fact, due := s.ReportSilence(arrived, created.Add(now)); due {
				require.False(r, reported)
				require.GreaterOrEqual(r, created.Add(now).Sub(fact.Since), 10*time.Minute)
				s, reported = evolveAfter(s, now, fact), true
			}
			require.Equal(r, reported, s.Silent)
		}
	})
}

func TestRecord_States(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]intake.State{
		"active":   {Settings: event.IntakeSettings{Kind: intake.Webhook, Enabled: true}},
		"silent":   {Settings: event.IntakeSettings{Kind: intake.Webhook, Enabled: true}, Silent: true},
		"paused":   {Settings: event.IntakeSettings{Kind: intake.Webhook}, Silent: true},
		"disabled": {Settings: event.IntakeSettings{Kind: intake.Form}},
	} {
		require.Equal(t, want, s.Record("X").State)
	}
	require.Equal(t, "/in/X", intake.Path("X"))
}
