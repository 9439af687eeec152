package intake

import (
	"encoding/base64"
	"errors"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/eventstore/event"
)

// Update has the settings of an intake that its owner gave. Nil leaves a field unchanged, or at its default in a new
// intake; a zero value sets the default.
type Update struct {
	Name        *string
	Kind        *string
	Source      *string
	Enabled     *bool
	Origins     *[]string
	Redirect    *string
	Honeypot    *string
	Challenge   *Challenge
	RateLimit   *Rate
	ExpectEvery *string
	Mapping     *map[string]string
	Signature   *event.IntakeSignature
	GraphURL    *string
	Each        *string
	AcceptGet   *bool
	Handshake   *string
	OnInvalid   *string

	Secret, AppSecret, VerifyToken, AccessToken *string
}

// Challenge is a provider's check that a person fills a form. The zero Challenge is none.
type Challenge struct {
	Provider string
	Secret   string // empty: as it is
}

// Rate is a limit of arrivals a second and address. Without a number, it is the account's.
type Rate struct{ Limit *float64 }

// Providers returns the providers of challenges.
func Providers() []string { return []string{"turnstile", "hcaptcha"} }

const (
	maxOrigins  = 50
	maxURL      = 2048 // characters
	maxSecret   = 1024 // bytes
	maxFieldKey = 100  // characters
	maxExpect   = 366 * 24 * time.Hour
)

// Create decides on a new intake; the caller fills in its slot. Secrets that are not given are made by newSecret. With
// privateTargets, URLs may be http and graphUrl may be private. The error is field.Errors.
func Create(
	c Update, newSecret func() (string, error), privateTargets bool,
) (created event.IntakeCreated, secrets Secrets, made bool, err error) {
	var wrong field.Errors
	settings := event.IntakeSettings{Enabled: true}
	switch {
	case c.Kind == nil:
		wrong.Add("kind", "is required: one of "+strings.Join(Kinds(), ", "))
	case !slices.Contains(Kinds(), *c.Kind):
		wrong.Add("kind", "must be one of "+strings.Join(Kinds(), ", "))
	default:
		settings.Kind = *c.Kind
	}
	if c.Name == nil {
		wrong.Add("name", "is required")
	}
	if c.Source == nil {
		settings.Source = DefaultSource(settings.Kind)
	}
	if settings.Kind == Webhook && c.Signature == nil {
		wrong.Add("signature", signatureRequired)
	}
	settings, wrong = c.apply(settings, wrong, privateTargets)
	wrong = append(wrong, wrongMapping(settings)...)
	secrets, wrong = c.applySecrets(settings, Secrets{}, wrong)
	if wrong != nil {
		return created, secrets, false, wrong
	}
	if secrets.Secret == "" && !mayLackSecret(settings.Kind) {
		if secrets.Secret, err = NewSecret(settings, newSecret); err != nil {
			return created, secrets, false, err
		}
		made = true
	}
	return event.IntakeCreated{IntakeSettings: settings}, secrets, made, nil
}

const signatureRequired = "is required for kind webhook"

// mayLackSecret reports whether intakes of a kind may be without a secret. Those of Meta may have an appSecret instead.
func mayLackSecret(kind string) bool { return kind == Form || kind == MetaLeadAds || kind == WhatsApp }

// NewSecret makes a secret of the form that a kind's senders use.
func NewSecret(settings event.IntakeSettings, random func() (string, error)) (string, error) {
	key, err := random()
	switch {
	case err != nil:
		return "", err
	case settings.Kind == StandardWebhooks:
		return webhook.SecretPrefix + key, nil
	}
	// some senders accept only letters and digits
	key = strings.TrimRight(strings.NewReplacer("+", "-", "/", "_").Replace(key), "=")
	if settings.Signature != nil && settings.Signature.Scheme == SchemeBasic {
		return "leadlog:" + key, nil
	}
	return key, nil
}

// Change decides on a change of an intake of the account, and returns its secrets afterwards. The event is nil when
// nothing changes. The error is ErrNotFound or field.Errors.
func (s State) Change(
	owner string, c Update, secrets Secrets, privateTargets bool,
) (*event.IntakeChanged, Secrets, error) {
	if err := s.ownedBy(owner); err != nil {
		return nil, secrets, err
	}
	var wrong field.Errors
	if c.Kind != nil && *c.Kind != s.Settings.Kind {
		wrong.Add("kind", "cannot be changed")
	}
	settings, wrong := c.apply(s.Settings, wrong, privateTargets)
	wrong = append(wrong, wrongMapping(settings)...)
	after := secrets
	if settings.Challenge != s.Settings.Challenge {
		after.Challenge = "" // the old secret is of another provider
	}
	if graphBase(settings) != graphBase(s.Settings) {
		after.AccessToken = "" // a new address must not get the token of the old one
	}
	after, wrong = c.applySecrets(settings, after, wrong)
	if after.Secret == "" && c.Secret != nil && !mayLackSecret(settings.Kind) {
		wrong.Add(nameSecret, "is required: a rotation replaces it")
	}
	if wrong != nil {
		return nil, secrets, wrong
	}
	if after.Signing() != secrets.Signing() {
		after.Old, after.OldUntil = "", time.Time{}
	}
	changed := append(differences(s.Settings, settings), secrets.differences(after)...)
	if len(changed) == 0 {
		return nil, secrets, nil
	}
	return &event.IntakeChanged{IntakeSettings: settings, Changed: changed}, after, nil
}

// MaxOverlap is how long the secret before a rotation may hold.
const MaxOverlap = 168 * time.Hour

// Rotation is a request for a new secret of an intake.
type Rotation struct {
	Secret  *string       // chosen by the owner; nil or empty: the result of New
	Overlap time.Duration // how long the present secret still holds
	New     func() (string, error)
	Now     time.Time
}

// Rotate decides on a new secret of an intake of the account. The errors are ErrNotFound and field.Errors.
func (s State) Rotate(
	owner string, r Rotation, before Secrets,
) (rotated event.IntakeRotated, after Secrets, err error) {
	if err := s.ownedBy(owner); err != nil {
		return rotated, before, err
	}
	given := r.Secret != nil && *r.Secret != ""
	meta := s.Settings.Kind == MetaLeadAds || s.Settings.Kind == WhatsApp
	var wrong field.Errors
	switch {
	case s.Settings.Kind == Form:
		wrong.Add(nameSecret, "is not for kind form, whose address is public")
	case meta && !given:
		wrong.Add(nameSecret, "is required: the app's secret, which Meta makes")
	}
	if r.Overlap < 0 || r.Overlap > MaxOverlap {
		wrong.Add("overlap", "must be a duration from 0 to 168h, such as 24h")
	}
	if wrong != nil {
		return rotated, before, wrong
	}
	after = before
	if given {
		after, wrong = Update{Secret: r.Secret}.applySecrets(s.Settings, before, nil)
	} else if after.Secret, err = NewSecret(s.Settings, r.New); err != nil {
		return rotated, before, err
	}
	if meta {
		after.AppSecret, after.VerifyToken = "", ""
	}
	after.Old, after.OldUntil = "", time.Time{}
	if r.Overlap > 0 {
		rotated.OldUntil = r.Now.Add(r.Overlap)
		after.Old, after.OldUntil = before.Signing(), rotated.OldUntil
	}
	return rotated, after, wrong.Err()
}

// changed are settings while a change is applied, and the errors of its fields.
type changed struct {
	event.IntakeSettings
	wrong field.Errors
}

func (s *changed) refuse(name, message string) {
	if message != "" {
		s.wrong.Add(name, message)
	}
}

// onlyFor reports whether a field may be set. If it is given and belongs to another kind, it is refused.
func (s *changed) onlyFor(name string, given bool, kind string) bool {
	if given && s.Kind != "" && s.Kind != kind {
		s.refuse(name, "is only for kind "+kind)
		return false
	}
	return true
}

// apply returns the changed settings, and the errors of the change's fields.
func (c Update) apply(
	settings event.IntakeSettings, wrong field.Errors, privateTargets bool,
) (event.IntakeSettings, field.Errors) {
	s := changed{settings, wrong}
	if c.Name != nil {
		s.Name = strings.TrimSpace(norm.NFC.String(*c.Name))
		s.refuse("name", wrongName(s.Name))
	}
	if c.Source != nil {
		if s.Source = *c.Source; s.Source == "" {
			s.Source = DefaultSource(s.Kind)
		}
		if !lead.Canonical(s.Source) {
			s.refuse("source", "must be one of "+strings.Join(lead.CanonicalSources(), ", "))
		}
	}
	if c.Enabled != nil {
		s.Enabled = *c.Enabled
	}
	c.applyForm(&s, privateTargets)
	if c.RateLimit != nil {
		s.RateLimit = c.RateLimit.Limit
		if r := s.RateLimit; r != nil && !(*r >= 0 && *r <= account.MaxRate) {
			s.refuse("rateLimit", "must be between 0 and 1000000")
		}
	}
	if c.ExpectEvery != nil {
		s.ExpectEvery = strings.TrimSpace(*c.ExpectEvery)
		s.refuse("expectEvery", wrongExpect(s.ExpectEvery))
	}
	if c.Mapping != nil {
		s.Mapping = maps.Clone(*c.Mapping)
		if len(s.Mapping) == 0 {
			s.Mapping = nil
		}
	}
	c.applyProvider(&s, privateTargets)
	if c.Each != nil {
		s.Each = strings.TrimSpace(*c.Each)
		s.refuse("each", wrongEach(s.IntakeSettings))
	}
	return s.IntakeSettings, s.wrong
}

// applyForm applies the settings of forms.
func (c Update) applyForm(s *changed, privateTargets bool) {
	if c.Origins != nil && s.onlyFor("origins", len(*c.Origins) > 0, Form) {
		var message string
		s.Origins, message = origins(*c.Origins)
		s.refuse("origins", message)
	}
	if c.Redirect != nil && s.onlyFor("redirect", *c.Redirect != "", Form) {
		s.Redirect = *c.Redirect
		s.refuse("redirect", wrongRedirect(s.Redirect, privateTargets))
	}
	if c.Honeypot != nil && s.onlyFor("honeypot", *c.Honeypot != "", Form) {
		s.Honeypot = strings.TrimSpace(*c.Honeypot)
		if utf8.RuneCountInString(s.Honeypot) > maxFieldKey || strings.ContainsFunc(s.Honeypot, unicode.IsControl) {
			s.refuse("honeypot", "must be the name of a field, at most 100 characters")
		}
	}
	if c.Challenge != nil && s.onlyFor("challenge", c.Challenge.Provider != "", Form) {
		if c.Challenge.Provider != "" && !slices.Contains(Providers(), c.Challenge.Provider) {
			s.refuse("challenge.provider", "must be one of "+strings.Join(Providers(), ", "))
		}
		s.Challenge = c.Challenge.Provider
	}
	if c.OnInvalid != nil && s.onlyFor("onInvalid", *c.OnInvalid != "" && *c.OnInvalid != InvalidAuto, Form) {
		if s.OnInvalid = *c.OnInvalid; s.OnInvalid == InvalidAuto {
			s.OnInvalid = ""
		}
		if s.OnInvalid != "" && !slices.Contains(OnInvalids(), s.OnInvalid) {
			s.refuse("onInvalid", "must be one of "+strings.Join(OnInvalids(), ", "))
		}
	}
}

// applyProvider applies the settings of webhooks and of Meta.
func (c Update) applyProvider(s *changed, privateTargets bool) {
	switch {
	case c.Signature == nil:
	case *c.Signature == event.IntakeSignature{}:
		if s.Kind == Webhook {
			s.refuse("signature", signatureRequired)
		}
	case s.onlyFor("signature", true, Webhook):
		signature, errs := checkedSignature(*c.Signature)
		s.Signature = &signature
		s.wrong = append(s.wrong, errs...)
	}
	if c.GraphURL != nil && s.onlyFor("graphUrl", *c.GraphURL != "", MetaLeadAds) {
		s.GraphURL = strings.TrimRight(*c.GraphURL, "/")
		s.refuse("graphUrl", wrongGraphURL(s.GraphURL, privateTargets))
	}
	if c.AcceptGet != nil && s.onlyFor("acceptGet", *c.AcceptGet, Webhook) {
		s.AcceptGet = *c.AcceptGet
	}
	if c.Handshake != nil && s.onlyFor("handshake", *c.Handshake != "" && *c.Handshake != HandshakeNone, Webhook) {
		if s.Handshake = *c.Handshake; s.Handshake == HandshakeNone {
			s.Handshake = ""
		}
		if s.Handshake != "" && !slices.Contains(Handshakes(), s.Handshake) {
			s.refuse("handshake", "must be one of "+strings.Join(Handshakes(), ", "))
		}
	}
}

func wrongMapping(settings event.IntakeSettings) (wrong field.Errors) {
	if len(settings.Mapping) > 0 {
		_, err := Compile(settings)
		errors.As(err, &wrong)
	}
	return wrong
}

func wrongName(name string) string {
	switch {
	case name == "":
		return "is required"
	case utf8.RuneCountInString(name) > MaxName || strings.ContainsFunc(name, unicode.IsControl):
		return "must be 1 to 100 characters, none of them a control character"
	}
	return ""
}

func wrongExpect(text string) string {
	if text == "" {
		return ""
	}
	every, err := time.ParseDuration(text)
	if err != nil || every < MinExpect || every > maxExpect {
		return "must be a duration from 1m to 8784h, such as 24h"
	}
	return ""
}

// origins returns web origins as browsers send them.
func origins(given []string) (list []string, wrong string) {
	const message = "must be web origins such as https://example.com, without a path"
	if len(given) > maxOrigins {
		return nil, "must be at most 50"
	}
	for _, text := range given {
		u, err := url.Parse(strings.ToLower(strings.TrimSpace(text)))
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || len(text) > maxURL ||
			!consistsOf(u.Host, letters+"-.:[]") {
			return nil, message
		}
		origin := u.Scheme + "://" + u.Host
		if origin != u.String() {
			return nil, message
		}
		if u.Scheme == "https" {
			origin = strings.TrimSuffix(origin, ":443")
		} else {
			origin = strings.TrimSuffix(origin, ":80")
		}
		list = append(list, strings.TrimSuffix(origin, ":"))
	}
	slices.Sort(list)
	return slices.Compact(list), ""
}

// wrongRedirect returns why the address of the page after a post is invalid; empty: it is valid.
func wrongRedirect(text string, privateTargets bool) string {
	if text == "" {
		return ""
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Hostname() == "" || utf8.RuneCountInString(text) > maxURL || !utf8.ValidString(text) ||
		strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) }):
		return "must be an absolute URL of at most 2048 characters"
	case u.User != nil:
		return "must not contain a user name or password"
	case u.Scheme == "https" || privateTargets && u.Scheme == "http":
		return ""
	}
	return "must begin with https://"
}

// wrongGraphURL returns why the base address of the Graph API is invalid; empty: it is valid.
func wrongGraphURL(text string, privateTargets bool) string {
	if text == "" {
		return ""
	}
	if strings.Contains(text, "?") {
		return "must not contain a query"
	}
	return webhook.WrongURL(text, privateTargets)
}

// Characters of host names and of the names of headers (RFC 9110).
const (
	letters     = "abcdefghijklmnopqrstuvwxyz0123456789"
	upper       = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	headerMarks = "!#$%&'*+-.^_`|~"
)

func consistsOf(text, characters string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return !strings.ContainsRune(characters, r) })
}

// applySecrets returns the changed secrets, and the errors of the change's fields.
func (c Update) applySecrets(settings event.IntakeSettings, s Secrets, wrong field.Errors) (Secrets, field.Errors) {
	set := func(name string, given *string, value *string) {
		if given == nil {
			return
		}
		if message := wrongSecret(settings, name, *given); message != "" {
			wrong.Add(name, message)
			return
		}
		*value = *given
	}
	switch {
	case c.Secret != nil:
		set(nameSecret, c.Secret, &s.Secret)
	case c.Signature != nil: // the present secret stays, and has to suit the new scheme
		set(nameSecret, &s.Secret, &s.Secret)
	}
	set(nameAppSecret, c.AppSecret, &s.AppSecret)
	set(nameVerifyToken, c.VerifyToken, &s.VerifyToken)
	set(nameAccessToken, c.AccessToken, &s.AccessToken)
	if (settings.Kind == MetaLeadAds || settings.Kind == WhatsApp) && s.Signing() == "" {
		wrong.Add(nameSecret, "is required: the app's secret, by which Meta signs; or give appSecret and verifyToken")
	}
	if c.Challenge != nil {
		switch changes := c.Challenge.Secret; {
		case c.Challenge.Provider == "":
			s.Challenge = ""
		case changes != "":
			set(nameChallengeSecret, &changes, &s.Challenge)
		case s.Challenge == "":
			wrong.Add(nameChallengeSecret, "is required")
		}
	}
	return s, wrong
}

func wrongSecret(settings event.IntakeSettings, name, secret string) string {
	meta := name == nameAppSecret || name == nameVerifyToken
	switch {
	case secret == "":
		return ""
	case settings.Kind == "": // Create reports a missing kind itself
		return ""
	case name == nameAccessToken && settings.Kind != MetaLeadAds:
		return "is only for kind " + MetaLeadAds
	case meta && settings.Kind != MetaLeadAds && settings.Kind != WhatsApp:
		return "is only for kinds " + MetaLeadAds + " and " + WhatsApp
	case name == nameSecret && settings.Kind == Form:
		return "is not for kind form, whose address is public"
	case len(secret) > maxSecret || !utf8.ValidString(secret) || strings.ContainsFunc(secret, unicode.IsControl):
		return "must be text of at most 1024 bytes, without control characters"
	case name == nameSecret && settings.Kind == StandardWebhooks:
		key, standard := strings.CutPrefix(secret, webhook.SecretPrefix)
		if decoded, err := base64.StdEncoding.DecodeString(key); !standard || err != nil || len(decoded) == 0 {
			return "must be whsec_ and a key in base64"
		}
	case name == nameSecret && settings.Signature != nil && settings.Signature.Scheme == SchemeBasic &&
		!strings.Contains(secret, ":"):
		return "must be user:password"
	}
	return ""
}

// differences returns the names of the fields that differ.
func differences(a, b event.IntakeSettings) (names []string) {
	for _, setting := range [...]struct {
		name string
		same bool
	}{
		{"name", a.Name == b.Name},
		{"source", a.Source == b.Source},
		{"enabled", a.Enabled == b.Enabled},
		{"origins", slices.Equal(a.Origins, b.Origins)},
		{"redirect", a.Redirect == b.Redirect},
		{"honeypot", a.Honeypot == b.Honeypot},
		{"challenge", a.Challenge == b.Challenge},
		{"rateLimit", equal(a.RateLimit, b.RateLimit)},
		{"expectEvery", a.ExpectEvery == b.ExpectEvery},
		{"mapping", maps.Equal(a.Mapping, b.Mapping)},
		{"signature", equal(a.Signature, b.Signature)},
		{"graphUrl", a.GraphURL == b.GraphURL},
		{"each", a.Each == b.Each},
		{"acceptGet", a.AcceptGet == b.AcceptGet},
		{"handshake", a.Handshake == b.Handshake},
		{"onInvalid", a.OnInvalid == b.OnInvalid},
	} {
		if !setting.same {
			names = append(names, setting.name)
		}
	}
	return names
}

func equal[T comparable](a, b *T) bool {
	return a == b || a != nil && b != nil && *a == *b
}
