package service

import (
	"crypto/hmac"
	"crypto/sha256"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
	"github.com/leadlog/leadlog/eventstore/merkle"
	"github.com/leadlog/leadlog/httpapi"
	"github.com/leadlog/leadlog/httpapi/oidc"
)

// Database has the settings of where the data are.
type Database struct {
	DatabaseURL   string `env:"LEADLOG_DATABASE_URL" placeholder:"URL" help:"PostgreSQL of the views, and of the log unless --eventstore-url is set. Default: the private PostgreSQL of the data directory."`
	EventstoreURL string `env:"LEADLOG_EVENTSTORE_URL" placeholder:"URL" help:"Address of the log, if it is not in the database of the views: postgres://…, or esdb://… or kurrentdb://… for EventStoreDB."`
	DataDir       string `env:"LEADLOG_DATA_DIR" default:".leadlog" help:"Directory of the private PostgreSQL and its keys."`
}

// SealedDatabase is a database together with the key that seals its log.
type SealedDatabase struct {
	Database `embed:""`

	SealKey string `env:"LEADLOG_SEAL_KEY" placeholder:"BASE64,…" help:"32 bytes: the key that encrypts secrets and the keys of persons. After a rotation, the earlier ones follow, separated by commas."`
}

// JWT has the settings of which JWTs are accepted.
type JWT struct {
	JWTSecret       string `name:"jwt-secret" env:"LEADLOG_JWT_SECRET" placeholder:"TEXT" help:"Secret of HS256 JWTs, at least 32 bytes."`
	JWTJWKSURL      string `name:"jwt-jwks-url" env:"LEADLOG_JWT_JWKS_URL" placeholder:"URL" help:"Key set of asymmetric JWTs, instead of a secret."`
	JWTIssuer       string `name:"jwt-issuer" env:"LEADLOG_JWT_ISSUER" placeholder:"TEXT" help:"Issuer that every JWT must name. Required with a key set."`
	JWTAudience     string `name:"jwt-audience" env:"LEADLOG_JWT_AUDIENCE" placeholder:"TEXT" help:"Audience that every JWT must name. Required with a key set."`
	JWTAccountClaim string `name:"jwt-account-claim" env:"LEADLOG_JWT_ACCOUNT_CLAIM" default:"account_id" help:"Claim that names the account."`
	JWTAdminScope   string `name:"jwt-admin-scope" env:"LEADLOG_JWT_ADMIN_SCOPE" default:"admin" help:"Scope with which a JWT may provision accounts."`
	JWTDefaultScope string `name:"jwt-default-scope" env:"LEADLOG_JWT_DEFAULT_SCOPE" placeholder:"SCOPES" help:"Scopes of a key set's JWTs that have none of the claims scope, scp and permissions."`
}

// OIDC has the settings of the provider that people sign in to the console at.
type OIDC struct {
	OIDCIssuer       string `name:"oidc-issuer" env:"LEADLOG_OIDC_ISSUER" placeholder:"URL" help:"OpenID Connect provider at which people sign in to the console. Default: they sign in by JWTs."`
	OIDCClientID     string `name:"oidc-client-id" env:"LEADLOG_OIDC_CLIENT_ID" placeholder:"TEXT" help:"Client ID of this service at the provider."`
	OIDCClientSecret string `name:"oidc-client-secret" env:"LEADLOG_OIDC_CLIENT_SECRET" placeholder:"TEXT" help:"Client secret. Default: none, for a public client."`
	OIDCScopes       string `name:"oidc-scopes" env:"LEADLOG_OIDC_SCOPES" placeholder:"TEXT" help:"Scopes to request in addition to openid, separated by spaces, for example for the claims below."`
	OIDCAccountClaim string `name:"oidc-account-claim" env:"LEADLOG_OIDC_ACCOUNT_CLAIM" default:"account_id" help:"Claim of the ID token that names the account."`
	OIDCRoles        string `name:"oidc-roles" env:"LEADLOG_OIDC_ROLES" placeholder:"ROLE=SCOPES,…" help:"Scopes of each role, separated by spaces; * as a role means everyone, and as a scope all scopes of the console."`
}

// service has the settings of serve and dev. They are all strings, so that check can refuse a bad one by the name of
// its environment variable.
type Settings struct {
	SealedDatabase `embed:""`
	JWT            `embed:""`
	OIDC           `embed:""`

	Addr                string `env:"LEADLOG_ADDR" default:"127.0.0.1:8080" help:"Listen address."`
	BasePath            string `env:"LEADLOG_BASE_PATH" placeholder:"PATH" help:"Path prefix of every route."`
	RateLimit           string `env:"LEADLOG_RATE_LIMIT" default:"10" help:"Captures a second for an account without its own limit. Other limits are derived from it. 0 means no limit."`
	RateBurst           string `env:"LEADLOG_RATE_BURST" default:"100" help:"Burst of captures for an account without its own limit."`
	TrustedProxies      string `env:"LEADLOG_TRUSTED_PROXIES" placeholder:"CIDR,…" help:"Networks of proxies whose X-Forwarded-For is used."`
	CORSOrigins         string `name:"cors-origins" env:"LEADLOG_CORS_ORIGINS" placeholder:"ORIGIN,…" help:"Origins of pages that may call the API."`
	WebhookAllowPrivate string `env:"LEADLOG_WEBHOOK_ALLOW_PRIVATE" placeholder:"BOOL" help:"Allow webhook endpoints with http, loopback and private addresses. Default: false, for dev true."`
	WebhookSchedule     string `name:"webhook-retry-schedule" env:"LEADLOG_WEBHOOK_RETRY_SCHEDULE" placeholder:"5s,5m,…" help:"Delays between the attempts of a delivery. Default: 5s,5m,30m,2h,5h,10h,14h,20h,24h."`
	WebhookTimeout      string `env:"LEADLOG_WEBHOOK_TIMEOUT" default:"15s" help:"Timeout of one attempt of a delivery."`
	TurnstileURL        string `name:"turnstile-url" env:"LEADLOG_TURNSTILE_URL" default:"https://challenges.cloudflare.com/turnstile/v0/siteverify" help:"Address at which Turnstile verifies the challenges of forms."`
	HCaptchaURL         string `name:"hcaptcha-url" env:"LEADLOG_HCAPTCHA_URL" default:"https://api.hcaptcha.com/siteverify" help:"Address at which hCaptcha verifies the challenges of forms."`
	ClaimKey            string `env:"LEADLOG_CLAIM_KEY" placeholder:"BASE64" help:"32 bytes: the HMAC key of claim names. Never rotates."`
	TreeKey             string `env:"LEADLOG_TREE_KEY" placeholder:"BASE64" help:"32 bytes: the Ed25519 seed that signs checkpoints of the log and of its accounts."`
	LogOrigin           string `env:"LEADLOG_LOG_ORIGIN" placeholder:"NAME" help:"Name of the log in its checkpoints, and of their key. Default: generated once and stored on the log."`
	Witnesses           string `env:"LEADLOG_WITNESSES" placeholder:"VKEY=URL,…" help:"Witnesses that cosign checkpoints of the log."`
	WitnessQuorum       string `env:"LEADLOG_WITNESS_QUORUM" placeholder:"N" help:"Number of witnesses that must cosign a checkpoint before it is published. Default: all."`
	Drain               string `env:"LEADLOG_DRAIN" default:"0s" help:"Time after SIGTERM in which requests are still accepted and /readyz fails, until load balancers send no more."`
	LogLevel            string `env:"LEADLOG_LOG_LEVEL" default:"info" help:"debug, info, warn or error."`
	LogFormat           string `env:"LEADLOG_LOG_FORMAT" placeholder:"FORMAT" help:"json or text. Default: json, on a terminal text."`
}

// Config is a service's settings, checked.
type Config struct {
	addr                string
	BasePath            string
	rateLimit           float64
	rateBurst           int
	trustedProxies      []netip.Prefix
	corsOrigins         []string
	allowPrivateTargets bool
	retrySchedule       []time.Duration // empty: the default
	webhookTimeout      time.Duration
	turnstileURL        string
	hcaptchaURL         string
	drain               time.Duration
	claimKey            []byte
	sealKeys            [][]byte // the first is current
	consoleKey          []byte
	treeKey             []byte
	logOrigin           string         // empty: the one on the log
	provider            *oidc.Provider // nil: none
	witnesses           []merkle.Witness
	witnessQuorum       int
}

// check parses the settings, or returns everything that is wrong with them. Call fill first, for the keys.
// privateTargets is the default of LEADLOG_WEBHOOK_ALLOW_PRIVATE.
func (s Settings) Check(privateTargets bool) (Config, error) {
	var c cli.Checker
	out := Config{
		addr:                s.Addr,
		BasePath:            parseBasePath(&c, s.BasePath),
		rateLimit:           parseRate(&c, "LEADLOG_RATE_LIMIT", s.RateLimit),
		rateBurst:           parseBurst(&c, "LEADLOG_RATE_BURST", s.RateBurst),
		trustedProxies:      parseNetworks(&c, "LEADLOG_TRUSTED_PROXIES", s.TrustedProxies),
		corsOrigins:         parseOrigins(&c, "LEADLOG_CORS_ORIGINS", s.CORSOrigins),
		allowPrivateTargets: parseBoolean(&c, "LEADLOG_WEBHOOK_ALLOW_PRIVATE", s.WebhookAllowPrivate, privateTargets),
		retrySchedule:       parseSchedule(&c, "LEADLOG_WEBHOOK_RETRY_SCHEDULE", s.WebhookSchedule),
		webhookTimeout:      parseDuration(&c, "LEADLOG_WEBHOOK_TIMEOUT", s.WebhookTimeout, maxTimeout),
		turnstileURL:        parseURL(&c, "LEADLOG_TURNSTILE_URL", s.TurnstileURL),
		hcaptchaURL:         parseURL(&c, "LEADLOG_HCAPTCHA_URL", s.HCaptchaURL),
		drain:               parseDrain(&c, "LEADLOG_DRAIN", s.Drain),
		claimKey:            parseKey(&c, "LEADLOG_CLAIM_KEY", s.ClaimKey),
		sealKeys:            parseKeys(&c, "LEADLOG_SEAL_KEY", s.SealKey),
		treeKey:             parseKey(&c, "LEADLOG_TREE_KEY", s.TreeKey),
		logOrigin:           parseOrigin(&c, "LEADLOG_LOG_ORIGIN", s.LogOrigin),
		provider:            s.OIDC.provider(&c),
		witnesses:           parseWitnesses(&c, "LEADLOG_WITNESSES", s.Witnesses),
	}
	out.witnessQuorum = parseQuorum(&c, "LEADLOG_WITNESS_QUORUM", s.WitnessQuorum, len(out.witnesses))
	if _, port, err := net.SplitHostPort(s.Addr); err != nil || !validPort(port) {
		c.Refuse("LEADLOG_ADDR", s.Addr, "HOST:PORT, such as 127.0.0.1:8080")
	}
	if len(out.sealKeys) > 0 {
		out.consoleKey = s.consoleKey(out.sealKeys[0])
	}
	s.JWT.Check(&c)
	s.Database.Check(&c)
	return out, c.Err()
}

// scopeForm is that of RFC 6749.
var scopeForm = regexp.MustCompile(`^[!#-\[\]-~]+$`)

// Scopes are those that a JWT can be limited to, as it names them. The scope of administrators is the last.
func (t JWT) Scopes() []string {
	scopes := httpapi.Scopes()
	scopes[len(scopes)-1] = t.JWTAdminScope
	return scopes
}

// withoutAdmin returns all scopes but admin, which is the last.
func withoutAdmin() []string {
	scopes := httpapi.Scopes()
	return scopes[:len(scopes)-1]
}

// provider returns the sign-in provider; nil without settings.
func (o OIDC) provider(c *cli.Checker) *oidc.Provider {
	if o.OIDCIssuer == "" {
		for _, set := range []struct{ name, value string }{
			{"LEADLOG_OIDC_CLIENT_ID", o.OIDCClientID}, {"LEADLOG_OIDC_CLIENT_SECRET", o.OIDCClientSecret},
			{"LEADLOG_OIDC_SCOPES", o.OIDCScopes}, {"LEADLOG_OIDC_ROLES", o.OIDCRoles},
		} {
			if set.value != "" {
				c.RefuseSecret(set.name, set.value, "unset without LEADLOG_OIDC_ISSUER")
			}
		}
		return nil
	}
	if u, err := url.Parse(o.OIDCIssuer); err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" ||
		u.Fragment != "" ||
		u.Scheme != "https" && (u.Scheme != "http" || !isLoopback(u.Hostname())) {
		c.RefuseSecret("LEADLOG_OIDC_ISSUER", o.OIDCIssuer,
			"the https URL of an OpenID Connect provider, exactly as it names itself")
	}
	if o.OIDCClientID == "" {
		c.Refuse("LEADLOG_OIDC_CLIENT_ID", "", "set with LEADLOG_OIDC_ISSUER: what the provider calls this service")
	}
	if o.OIDCAccountClaim == "" {
		c.Refuse("LEADLOG_OIDC_ACCOUNT_CLAIM", "", "the name of a claim")
	}
	return oidc.New(oidc.Options{
		Issuer: o.OIDCIssuer, ClientID: o.OIDCClientID, ClientSecret: o.OIDCClientSecret,
		Scopes: strings.Fields(o.OIDCScopes), AccountClaim: o.OIDCAccountClaim,
		Roles: parseRoles(c, "LEADLOG_OIDC_ROLES", o.OIDCRoles), Now: time.Now,
	})
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// parseRoles returns the scopes of each role. The scope admin is none of the console's.
func parseRoles(c *cli.Checker, name, value string) map[string][]string {
	const form = "ROLE=SCOPES, separated by commas, with spaces between scopes, such as sales=leads:read leads:write"
	known := withoutAdmin()
	roles := map[string][]string{}
	for part := range strings.SplitSeq(value, ",") {
		role, list, found := strings.Cut(strings.TrimSpace(part), "=")
		scopes := strings.Fields(list)
		if slices.Equal(scopes, []string{"*"}) {
			scopes = known
		}
		unknown := slices.ContainsFunc(scopes, func(scope string) bool { return !slices.Contains(known, scope) })
		if _, twice := roles[role]; !found || role == "" || len(scopes) == 0 || unknown || twice {
			c.Refuse(name, part, form+"; the scopes are * for all, or some of "+strings.Join(known, " "))
			continue
		}
		roles[role] = scopes
	}
	return roles
}

func (t JWT) Check(c *cli.Checker) {
	switch {
	case t.JWTJWKSURL != "" && t.JWTSecret != "":
		c.RefuseSecret("LEADLOG_JWT_JWKS_URL", t.JWTJWKSURL,
			"unset when LEADLOG_JWT_SECRET is set: one family of algorithms at a time")
	case t.JWTJWKSURL != "":
		if u, err := url.Parse(t.JWTJWKSURL); err != nil || (u.Scheme != "https" && u.Scheme != "http") ||
			u.Host == "" {
			c.RefuseSecret("LEADLOG_JWT_JWKS_URL", t.JWTJWKSURL, "an https or http URL") // it may hold a password
		}
		if t.JWTIssuer == "" {
			c.Refuse("LEADLOG_JWT_ISSUER", "", "set with LEADLOG_JWT_JWKS_URL: the iss of the issuer's JWTs")
		}
		if t.JWTAudience == "" {
			c.Refuse("LEADLOG_JWT_AUDIENCE", "",
				"set with LEADLOG_JWT_JWKS_URL: the aud of JWTs meant for leadlog, or those for any other "+
					"application of the issuer would count")
		}
	case len(t.JWTSecret) < 32:
		c.RefuseSecret("LEADLOG_JWT_SECRET", t.JWTSecret, "at least 32 bytes, or LEADLOG_JWT_JWKS_URL be set instead")
	}
	if strings.TrimSpace(t.JWTAccountClaim) == "" {
		c.Refuse("LEADLOG_JWT_ACCOUNT_CLAIM", t.JWTAccountClaim, "the name of a claim")
	}
	if scopes := t.Scopes(); !scopeForm.MatchString(t.JWTAdminScope) ||
		slices.Index(scopes, t.JWTAdminScope) < len(scopes)-1 {
		c.Refuse("LEADLOG_JWT_ADMIN_SCOPE", t.JWTAdminScope,
			"a scope of visible ASCII characters without spaces, quotes and backslashes, and none of leadlog's "+
				"other scopes")
	}
	known := withoutAdmin()
	if slices.ContainsFunc(strings.Fields(t.JWTDefaultScope), func(scope string) bool {
		return !slices.Contains(known, scope)
	}) {
		c.Refuse("LEADLOG_JWT_DEFAULT_SCOPE", t.JWTDefaultScope,
			"some of "+strings.Join(known, " ")+", separated by spaces")
	}
	if t.JWTDefaultScope != "" && t.JWTJWKSURL == "" {
		c.Refuse("LEADLOG_JWT_DEFAULT_SCOPE", t.JWTDefaultScope, "unset without LEADLOG_JWT_JWKS_URL")
	}
}

// Mint signs a JWT that a service with these settings accepts.
func (t JWT) Mint(accountID, subject, scope string, ttl time.Duration) (string, error) {
	return httpapi.MintHS256([]byte(t.JWTSecret), httpapi.Minting{
		Account: accountID, Subject: subject, Scope: scope, TTL: ttl,
		Issuer: t.JWTIssuer, Audience: t.JWTAudience, AccountClaim: t.JWTAccountClaim,
	}, time.Now())
}

// consoleKey returns the key that seals sessions of the web console. It changes with the JWT secret, which
// ends sessions signed in with a JWT of a leaked secret, whatever its expiry.
func (s Settings) consoleKey(sealKey []byte) []byte {
	sum := hmac.New(sha256.New, sealKey)
	sum.Write([]byte("console " + s.JWTSecret))
	return sum.Sum(nil)
}

func (d Database) Check(c *cli.Checker) {
	if d.DatabaseURL != "" && !goodPostgres(d.DatabaseURL) {
		// it may hold a password
		c.RefuseSecret("LEADLOG_DATABASE_URL", d.DatabaseURL, "a good URL that begins with postgres://"+escaped)
	}
	if d.EventstoreURL != "" {
		CheckLogURL(c, "LEADLOG_EVENTSTORE_URL", d.EventstoreURL)
	}
}

// shutdownTimeout is the time in which running requests and deliveries may finish at shutdown.
const shutdownTimeout = 20 * time.Second

// Logger builds the service's log from its settings.
func (s Settings) Logger(w io.Writer) (*slog.Logger, error) {
	var c cli.Checker
	var level slog.Level
	if err := level.UnmarshalText([]byte(s.LogLevel)); err != nil {
		c.Refuse("LEADLOG_LOG_LEVEL", s.LogLevel, "debug, info, warn or error")
	}
	options := &slog.HandlerOptions{Level: level}
	var handler slog.Handler = slog.NewJSONHandler(w, options)
	switch {
	case s.LogFormat == "text", s.LogFormat == "" && cli.IsTerminal(w):
		handler = slog.NewTextHandler(w, options)
	case s.LogFormat != "json" && s.LogFormat != "":
		c.Refuse("LEADLOG_LOG_FORMAT", s.LogFormat, "json or text")
	}
	return slog.New(handler), c.Err()
}
