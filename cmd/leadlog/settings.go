package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leadlog/leadlog/eventstore/esdb"
)

// database says where a command finds its data.
type database struct {
	DatabaseURL   string `env:"LEADLOG_DATABASE_URL" placeholder:"URL" help:"PostgreSQL of the read models, and of the log unless the next is set. None: the private PostgreSQL of the data directory."`
	EventstoreURL string `env:"LEADLOG_EVENTSTORE_URL" placeholder:"URL" help:"The log, when it is elsewhere: postgres://…, or esdb://… or kurrentdb://… for EventStoreDB."`
	DataDir       string `env:"LEADLOG_DATA_DIR" default:".leadlog" help:"Directory of the private PostgreSQL and its keys."`
}

// sealedDatabase is a database whose log is read and written with the keys of persons.
type sealedDatabase struct {
	database `embed:""`

	SealKey string `env:"LEADLOG_SEAL_KEY" placeholder:"BASE64,…" help:"32 bytes: the key that seals secrets and the keys of persons. After a rotation the earlier ones follow, each after a comma."`
}

// tokens says which JWTs are good.
type tokens struct {
	JWTSecret       string `name:"jwt-secret" env:"LEADLOG_JWT_SECRET" placeholder:"TEXT" help:"HS256 secret, at least 32 bytes."`
	JWTJWKSURL      string `name:"jwt-jwks-url" env:"LEADLOG_JWT_JWKS_URL" placeholder:"URL" help:"Key set of asymmetric JWTs, instead of a secret."`
	JWTIssuer       string `name:"jwt-issuer" env:"LEADLOG_JWT_ISSUER" placeholder:"TEXT" help:"Issuer that every JWT must name."`
	JWTAudience     string `name:"jwt-audience" env:"LEADLOG_JWT_AUDIENCE" placeholder:"TEXT" help:"Audience that every JWT must name."`
	JWTAccountClaim string `name:"jwt-account-claim" env:"LEADLOG_JWT_ACCOUNT_CLAIM" default:"account_id" help:"Claim that names the account."`
}

// service is what serve and dev are configured by. Values are texts, so that a bad one is refused by us, by name.
type service struct {
	sealedDatabase `embed:""`
	tokens         `embed:""`

	Addr                string `env:"LEADLOG_ADDR" default:"127.0.0.1:8080" help:"Listen address."`
	BasePath            string `env:"LEADLOG_BASE_PATH" placeholder:"PATH" help:"Path prefix of every route."`
	RateLimit           string `env:"LEADLOG_RATE_LIMIT" default:"10" help:"Captures a second for an account without its own limit; 0 is off."`
	RateBurst           string `env:"LEADLOG_RATE_BURST" default:"100" help:"Burst for an account without its own."`
	TrustedProxies      string `env:"LEADLOG_TRUSTED_PROXIES" placeholder:"CIDR,…" help:"Networks whose X-Forwarded-For counts."`
	CORSOrigins         string `name:"cors-origins" env:"LEADLOG_CORS_ORIGINS" placeholder:"ORIGIN,…" help:"Origins whose pages may capture."`
	WebhookAllowPrivate string `env:"LEADLOG_WEBHOOK_ALLOW_PRIVATE" placeholder:"BOOL" help:"Lets webhook endpoints be http, loopback or private. Default: false, for dev true."`
	WebhookSchedule     string `name:"webhook-retry-schedule" env:"LEADLOG_WEBHOOK_RETRY_SCHEDULE" placeholder:"5s,5m,…" help:"Delays between the attempts of a delivery. Default: 5s,5m,30m,2h,5h,10h,14h,20h,24h."`
	WebhookTimeout      string `env:"LEADLOG_WEBHOOK_TIMEOUT" default:"15s" help:"For one attempt of a delivery."`
	ClaimKey            string `env:"LEADLOG_CLAIM_KEY" placeholder:"BASE64" help:"32 bytes: the HMAC key of claim names. Never rotates."`
	TreeKey             string `env:"LEADLOG_TREE_KEY" placeholder:"BASE64" help:"32 bytes: the Ed25519 seed that signs tree heads of the audit trail."`
	Drain               string `env:"LEADLOG_DRAIN" default:"0s" help:"How long requests are still taken at the end, while /readyz says that none should come."`
	LogLevel            string `env:"LEADLOG_LOG_LEVEL" default:"info" help:"debug, info, warn or error."`
	LogFormat           string `env:"LEADLOG_LOG_FORMAT" placeholder:"FORMAT" help:"json or text. Default: json, on a terminal text."`
}

// config is a service's settings, checked.
type config struct {
	addr                string
	basePath            string
	rateLimit           float64
	rateBurst           int
	trustedProxies      []netip.Prefix
	corsOrigins         []string
	allowPrivateTargets bool
	retrySchedule       []time.Duration // empty: the default
	webhookTimeout      time.Duration
	drain               time.Duration
	claimKey            []byte
	sealKeys            [][]byte // the first is current
	treeKey             []byte
}

// usageError is a mistake in how the program was called, settings included.
type usageError struct{ error }

func (e *usageError) Unwrap() error { return e.error }

// checker collects everything that is wrong with settings.
type checker struct{ wrong []error }

func (c *checker) refuse(name, value, want string) {
	c.wrong = append(c.wrong, fmt.Errorf("%s=%q: must be %s", name, value, want))
}

// refuseSecret does the same for a value that must not show.
func (c *checker) refuseSecret(name, value, want string) {
	shown := "(not set)"
	if value != "" {
		shown = fmt.Sprintf("(%d characters, not shown)", len(value))
	}
	c.wrong = append(c.wrong, fmt.Errorf("%s=%s: must be %s", name, shown, want))
}

func (c *checker) err() error {
	if err := errors.Join(c.wrong...); err != nil {
		return &usageError{err}
	}
	return nil
}

// check reads the settings. Keys must be filled in before; privateTargets is the default for webhook targets.
func (s service) check(privateTargets bool) (config, error) {
	var c checker
	out := config{
		addr:                s.Addr,
		basePath:            c.basePath(s.BasePath),
		rateLimit:           c.rate("LEADLOG_RATE_LIMIT", s.RateLimit),
		rateBurst:           c.whole("LEADLOG_RATE_BURST", s.RateBurst),
		trustedProxies:      c.networks("LEADLOG_TRUSTED_PROXIES", s.TrustedProxies),
		corsOrigins:         c.origins("LEADLOG_CORS_ORIGINS", s.CORSOrigins),
		allowPrivateTargets: c.boolean("LEADLOG_WEBHOOK_ALLOW_PRIVATE", s.WebhookAllowPrivate, privateTargets),
		retrySchedule:       c.schedule("LEADLOG_WEBHOOK_RETRY_SCHEDULE", s.WebhookSchedule),
		webhookTimeout:      c.duration("LEADLOG_WEBHOOK_TIMEOUT", s.WebhookTimeout, maxTimeout),
		drain:               c.drain("LEADLOG_DRAIN", s.Drain),
		claimKey:            c.key("LEADLOG_CLAIM_KEY", s.ClaimKey),
		sealKeys:            c.keys("LEADLOG_SEAL_KEY", s.SealKey),
		treeKey:             c.key("LEADLOG_TREE_KEY", s.TreeKey),
	}
	if _, port, err := net.SplitHostPort(s.Addr); err != nil || !validPort(port) {
		c.refuse("LEADLOG_ADDR", s.Addr, "HOST:PORT, such as 127.0.0.1:8080")
	}
	s.tokens.check(&c)
	s.database.check(&c)
	return out, c.err()
}

func (t tokens) check(c *checker) {
	switch {
	case t.JWTJWKSURL != "" && t.JWTSecret != "":
		c.refuse("LEADLOG_JWT_JWKS_URL", t.JWTJWKSURL, "unset when LEADLOG_JWT_SECRET is set: one family of algorithms at a time")
	case t.JWTJWKSURL != "":
		if u, err := url.Parse(t.JWTJWKSURL); err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" {
			c.refuse("LEADLOG_JWT_JWKS_URL", t.JWTJWKSURL, "an https or http URL")
		}
	case len(t.JWTSecret) < 32:
		c.refuseSecret("LEADLOG_JWT_SECRET", t.JWTSecret, "at least 32 bytes, or LEADLOG_JWT_JWKS_URL be set instead")
	}
	if strings.TrimSpace(t.JWTAccountClaim) == "" {
		c.refuse("LEADLOG_JWT_ACCOUNT_CLAIM", t.JWTAccountClaim, "the name of a claim")
	}
}

func (d database) check(c *checker) {
	if d.DatabaseURL != "" && !goodPostgres(d.DatabaseURL) {
		c.refuseSecret("LEADLOG_DATABASE_URL", d.DatabaseURL, "a good URL that begins with postgres://") // it may hold a password
	}
	if d.EventstoreURL != "" {
		c.logURL("LEADLOG_EVENTSTORE_URL", d.EventstoreURL)
	}
}

func goodPostgres(address string) bool {
	_, err := pgxpool.ParseConfig(address)
	return err == nil && (strings.HasPrefix(address, "postgres://") || strings.HasPrefix(address, "postgresql://"))
}

// logURL refuses what is not the address of a log. Such an address may hold a password.
func (c *checker) logURL(name, address string) {
	switch {
	case esdb.Understands(address):
		if err := esdb.Check(address); err != nil {
			c.refuseSecret(name, address, "a good connection string: "+err.Error())
		}
	case !goodPostgres(address):
		c.refuseSecret(name, address, "a good URL that begins with postgres://, esdb:// or kurrentdb://")
	}
}

func (c *checker) basePath(value string) string {
	prefix := strings.TrimRight(value, "/")
	if prefix != "" && (!strings.HasPrefix(prefix, "/") || strings.ContainsAny(prefix, "?#{}* ") || path.Clean(prefix) != prefix) {
		c.refuse("LEADLOG_BASE_PATH", value, "a path such as /crm")
	}
	return prefix
}

func (c *checker) rate(name, value string) float64 {
	rate, err := strconv.ParseFloat(value, 64)
	if err != nil || !(rate >= 0) || math.IsInf(rate, 1) {
		c.refuse(name, value, "a number of captures a second, 0 or more")
	}
	return rate
}

func (c *checker) whole(name, value string) int {
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 {
		c.refuse(name, value, "a whole number, 1 or more")
	}
	return n
}

func (c *checker) boolean(name, value string, unset bool) bool {
	if value == "" {
		return unset
	}
	b, err := strconv.ParseBool(value)
	if err != nil {
		c.refuse(name, value, "true or false")
	}
	return b
}

// Bounds of times. The end of the service waits for attempts under way, so for as long as one may take.
const (
	maxTimeout = time.Minute
	maxDelay   = 7 * 24 * time.Hour
	maxDrain   = 5 * time.Minute
)

func (c *checker) schedule(name, value string) (delays []time.Duration) {
	for _, part := range list(value) {
		delays = append(delays, c.duration(name, part, maxDelay))
	}
	return delays
}

func (c *checker) duration(name, value string, most time.Duration) time.Duration {
	d, err := time.ParseDuration(value)
	if err != nil || d <= 0 || d > most {
		c.refuse(name, value, "a time such as 15s or 5m, at most "+most.String())
	}
	return d
}

func (c *checker) drain(name, value string) time.Duration {
	d, err := time.ParseDuration(value)
	if err != nil || d < 0 || d > maxDrain {
		c.refuse(name, value, "a time such as 5s, at most "+maxDrain.String()+"; 0s stops at once")
	}
	return d
}

func (c *checker) networks(name, value string) (prefixes []netip.Prefix) {
	for _, part := range list(value) {
		prefix, err := netip.ParsePrefix(part)
		if addr, notPrefix := netip.ParseAddr(part); err != nil && notPrefix == nil {
			prefix, err = addr.Prefix(addr.BitLen())
		}
		if err != nil {
			c.refuse(name, part, "a network such as 10.0.0.0/8")
			continue
		}
		prefixes = append(prefixes, prefix.Masked())
	}
	return prefixes
}

func (c *checker) origins(name, value string) []string {
	origins := list(value)
	for _, origin := range origins {
		u, err := url.Parse(origin)
		if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || origin != canonicalOrigin(u) {
			c.refuse(name, origin, "an origin as browsers write it, such as https://example.com; * is never allowed")
		}
	}
	return origins
}

// canonicalOrigin is how browsers write the origin of a URL: in small letters, without the port that goes without saying.
func canonicalOrigin(u *url.URL) string {
	origin := strings.ToLower(u.Scheme + "://" + u.Host)
	return strings.TrimSuffix(origin, map[string]string{"https": ":443", "http": ":80"}[u.Scheme])
}

func (c *checker) key(name, value string) []byte {
	key, err := base64.StdEncoding.DecodeString(value)
	if err != nil || len(key) != 32 {
		c.refuseSecret(name, value, "32 bytes in base64, such as openssl rand -base64 32 prints")
	}
	return key
}

// keys reads a key and those that it has replaced.
func (c *checker) keys(name, value string) (keys [][]byte) {
	for part := range strings.SplitSeq(value, ",") {
		keys = append(keys, c.key(name, strings.TrimSpace(part)))
	}
	return keys
}

func list(value string) (parts []string) {
	for part := range strings.SplitSeq(value, ",") {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, part)
		}
	}
	return parts
}

func validPort(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && strconv.FormatUint(n, 10) == port
}

// shutdownTimeout is how long what runs at the end may take to finish.
const shutdownTimeout = 20 * time.Second
