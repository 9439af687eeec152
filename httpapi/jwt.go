package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/MicahParks/jwkset"
	"github.com/MicahParks/keyfunc/v3"
	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/time/rate"

	"github.com/leadlog/leadlog/command/account"
)

const (
	// DefaultAccountClaim is the claim that names the caller's account.
	DefaultAccountClaim = "account_id"

	// DefaultAdminScope is what JWTs name the scope of administrators, unless another name is configured.
	DefaultAdminScope = "admin"

	// adminScope is the one scope that a JWT has only by naming it. JWTs may have another name for it.
	adminScope = DefaultAdminScope

	minSecret  = 32      // bytes of an HS256 secret, as many as the hash has
	maxJWT     = 8 << 10 // bytes
	maxSubject = 255     // characters
	leeway     = 30 * time.Second
)

// errForged says that a JWT was not signed by the issuer: it may be a guess.
var errForged = errors.New("not signed by the issuer")

// errNoKeys says that no key of the issuer could be fetched yet: nobody can tell whether a JWT is good.
var errNoKeys = errors.New("no key of the issuer is known yet")

// errNoKeyID says that a JWT does not name the key that signed it.
var errNoKeyID = errors.New("names no key (kid)")

// VerifierOptions say what a JWT must contain besides a good signature. An empty option requires nothing.
type VerifierOptions struct {
	Issuer       string
	Audience     string
	AccountClaim string // empty: DefaultAccountClaim
	AdminScope   string // empty: DefaultAdminScope
}

// Verifier checks JWTs of one family of algorithms. Its methods may be called from many goroutines.
type Verifier struct {
	options VerifierOptions
	methods []string
	key     func(context.Context) jwt.Keyfunc
}

// NewHS256 verifies JWTs signed with a shared secret of at least 32 bytes.
func NewHS256(secret []byte, o VerifierOptions) (*Verifier, error) {
	if err := checkSecret(secret); err != nil {
		return nil, err
	}
	secret = slices.Clone(secret)
	return newVerifier(o, []string{jwt.SigningMethodHS256.Alg()}, func(context.Context) jwt.Keyfunc {
		return func(*jwt.Token) (any, error) { return secret, nil }
	}), nil
}

func newVerifier(o VerifierOptions, methods []string, key func(context.Context) jwt.Keyfunc) *Verifier {
	if o.AccountClaim == "" {
		o.AccountClaim = DefaultAccountClaim
	}
	if o.AdminScope == "" {
		o.AdminScope = DefaultAdminScope
	}
	return &Verifier{options: o, methods: methods, key: key}
}

func checkSecret(secret []byte) error {
	if len(secret) < minSecret {
		return fmt.Errorf("the JWT secret has %d bytes, at least %d are needed", len(secret), minSecret)
	}
	return nil
}

// Identity is what a JWT says of its bearer.
type Identity struct {
	Account string
	Subject string
	Issued  time.Time // zero when it does not say so, or names a time that is yet to come
	Expires time.Time // in the year 9999 at the latest
	scopes  []string
	all     bool   // names no scopes
	admin   string // what the issuer names the scope admin
}

// May reports whether the bearer has a scope. A JWT that names no scopes has all but admin.
func (i Identity) May(scope string) bool {
	if i.all {
		return scope != adminScope
	}
	return slices.Contains(i.scopes, i.nameOf(scope))
}

// nameOf returns what JWTs of the issuer name a scope.
func (i Identity) nameOf(scope string) string {
	if scope == adminScope {
		return i.admin
	}
	return scope
}

// Scopes lists which of leadlog's scopes the bearer has.
func (i Identity) Scopes() []string {
	return slices.DeleteFunc(Scopes(), func(scope string) bool { return !i.May(scope) })
}

// Verify checks a JWT. The error is errForged when it was not signed by the issuer, errNoKeys while no key of the issuer is
// known, and another one when the JWT is signed well but has expired or has claims that are not accepted. The error's text
// contains nothing of the JWT.
func (v *Verifier) Verify(ctx context.Context, text string, now time.Time) (Identity, error) {
	if len(text) > maxJWT {
		return Identity{}, fmt.Errorf("%w: longer than 8 KiB", errForged)
	}
	claims := jwt.MapClaims{}
	parser := jwt.NewParser(v.parserOptions(now)...)
	_, err := parser.ParseWithClaims(text, claims, func(t *jwt.Token) (any, error) {
		if _, critical := t.Header["crit"]; critical {
			return nil, errors.New("critical extensions are not understood")
		}
		return v.key(ctx)(t)
	})
	switch {
	case errors.Is(err, errNoKeys):
		return Identity{}, errNoKeys
	case errors.Is(err, jwt.ErrTokenInvalidClaims):
		return Identity{}, claimProblem(err)
	}
	if err != nil {
		return Identity{}, fmt.Errorf("%w: %s", errForged, signatureProblem(err))
	}
	return v.identity(claims, now)
}

func (v *Verifier) parserOptions(now time.Time) []jwt.ParserOption {
	options := []jwt.ParserOption{
		jwt.WithValidMethods(v.methods), jwt.WithExpirationRequired(), jwt.WithLeeway(leeway),
		jwt.WithStrictDecoding(), jwt.WithTimeFunc(func() time.Time { return now }),
	}
	if v.options.Issuer != "" {
		options = append(options, jwt.WithIssuer(v.options.Issuer))
	}
	if v.options.Audience != "" {
		options = append(options, jwt.WithAudience(v.options.Audience))
	}
	return options
}

// latest is the last time that JSON and cookies can hold.
var latest = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// identity reads the claims of a JWT whose signature is good. Some issuers write times in milliseconds. A JWT that says it was
// issued in the future would survive every revocation, so it is treated as one that does not say when it was issued.
func (v *Verifier) identity(claims jwt.MapClaims, now time.Time) (Identity, error) {
	id, _ := claims[v.options.AccountClaim].(string)
	if !account.ValidID(id) {
		return Identity{}, fmt.Errorf("claim %s is not an account id", v.options.AccountClaim)
	}
	subject, _ := claims["sub"].(string)
	if subject == "" || utf8.RuneCountInString(subject) > maxSubject || strings.ContainsFunc(subject, unicode.IsControl) {
		return Identity{}, errors.New("claim sub does not name anybody")
	}
	if begins, _ := claims["nbf"].(float64); begins > float64(latest.Unix()) { // by the library what no int64 holds is long past
		return Identity{}, jwt.ErrTokenNotValidYet
	}
	identity := Identity{Account: id, Subject: subject, admin: v.options.AdminScope}
	if issued, err := claims.GetIssuedAt(); err == nil && issued != nil && issued.Unix() >= 0 && !issued.After(now.Add(leeway)) {
		identity.Issued = issued.Time
	}
	if expires, err := claims.GetExpirationTime(); err == nil && expires != nil {
		if identity.Expires = expires.Time; identity.Expires.After(latest) {
			identity.Expires = latest
		}
	}
	scope, given := claims["scope"]
	if !given {
		identity.all = true
		return identity, nil
	}
	names, ok := scope.(string)
	if !ok {
		return Identity{}, errors.New("claim scope is not a string")
	}
	identity.scopes = strings.Fields(names)
	return identity, nil
}

// The library's errors may quote the token, so that only their kind is told.
func claimProblem(err error) error {
	for _, kind := range []error{
		jwt.ErrTokenExpired, jwt.ErrTokenNotValidYet, jwt.ErrTokenInvalidIssuer, jwt.ErrTokenInvalidAudience,
		jwt.ErrTokenRequiredClaimMissing,
	} {
		if errors.Is(err, kind) {
			return kind
		}
	}
	return jwt.ErrTokenInvalidClaims
}

func signatureProblem(err error) error {
	for _, kind := range []error{errNoKeyID, jwt.ErrTokenMalformed, jwt.ErrTokenUnverifiable, jwt.ErrTokenSignatureInvalid} {
		if errors.Is(err, kind) {
			return kind
		}
	}
	return errors.New("token is refused")
}

// Minting has the claims of a JWT to be minted.
type Minting struct {
	Account      string
	Subject      string
	Scope        string // space separated; empty names none, which is everything but admin
	TTL          time.Duration
	Issuer       string
	Audience     string
	AccountClaim string // empty: DefaultAccountClaim
}

// MintHS256 returns a JWT that a verifier of NewHS256 with the same secret accepts.
func MintHS256(secret []byte, m Minting, now time.Time) (string, error) {
	if err := checkSecret(secret); err != nil {
		return "", err
	}
	if !account.ValidID(m.Account) {
		return "", errors.New("an account id is 1 to 64 of letters, digits, _ and -")
	}
	if m.Subject == "" || m.TTL <= 0 {
		return "", errors.New("a JWT needs a subject and a time to live")
	}
	claim := m.AccountClaim
	if claim == "" {
		claim = DefaultAccountClaim
	}
	claims := jwt.MapClaims{"sub": m.Subject, claim: m.Account, "iat": now.Unix(), "exp": now.Add(m.TTL).Unix()}
	for name, value := range map[string]string{"scope": m.Scope, "iss": m.Issuer, "aud": m.Audience} {
		if value != "" {
			claims[name] = value
		}
	}
	return jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(secret)
}

// Scopes returns the scopes that a JWT can be limited to, the last by its default name. A JWT without a scope claim has all of them
// but admin.
func Scopes() []string {
	return []string{
		"leads:read", "leads:write", "tokens:read", "tokens:write", "webhooks:read", "webhooks:write", "audit:read", adminScope,
	}
}

const (
	keySetRefresh = 15 * time.Minute
	keySetTimeout = 5 * time.Second
	maxKeySet     = 1 << 20 // bytes

	// A key id that is not in the set may be a new one: the set is fetched again, but no request waits longer than
	// this for it, and callers with invented ids do not make it more often than this.
	unknownKeyWait  = 2 * time.Second
	unknownKeyEvery = 10 * time.Second
)

// asymmetric are the algorithms whose keys a JWKS may hold. None takes a public key for a secret.
func asymmetric() []string {
	return []string{
		"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
	}
}

// NewJWKS returns a verifier of JWTs that are signed with the keys published at a URL. It fetches the keys until ctx ends. It is
// not an error if the server is down: until it answers, the keys fetched before are used. While there are none, Verify returns
// errNoKeys. A JWT must name its key, and a key is used only as its own use and algorithm allow.
func NewJWKS(ctx context.Context, address string, o VerifierOptions, log *slog.Logger) (*Verifier, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") {
		return nil, errors.New("the JWKS address is not an http or https URL")
	}
	complain := func(ctx context.Context, err error) {
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err // which does not quote the address: its query may be a secret
		}
		log.WarnContext(ctx, "JWKS not fetched", slog.String("host", u.Host), slog.Any("error", err))
	}
	remote, err := jwkset.NewStorageFromHTTP(address, jwkset.HTTPClientStorageOptions{
		Ctx: ctx, Client: &http.Client{Transport: bounded{http.DefaultTransport}, Timeout: keySetTimeout},
		HTTPTimeout: keySetTimeout, RefreshInterval: keySetRefresh,
		NoErrorReturnFirstHTTPReq: true, RefreshErrorHandler: complain,
	})
	if err != nil {
		return nil, fmt.Errorf("JWKS: %w", err)
	}
	keys, err := jwkset.NewHTTPClient(jwkset.HTTPClientOptions{
		HTTPURLs:         map[string]jwkset.Storage{address: remote},
		RateLimitWaitMax: unknownKeyWait, RefreshUnknownKID: rate.NewLimiter(rate.Every(unknownKeyEvery), 1),
	})
	if err != nil {
		return nil, fmt.Errorf("JWKS: %w", err)
	}
	finder, err := keyfunc.New(keyfunc.Options{
		Ctx: ctx, Storage: keys, UseWhitelist: []jwkset.USE{jwkset.UseSig, ""},
	})
	if err != nil {
		return nil, fmt.Errorf("JWKS: %w", err)
	}
	return newVerifier(o, asymmetric(), func(ctx context.Context) jwt.Keyfunc {
		find := finder.KeyfuncCtx(ctx)
		return func(t *jwt.Token) (any, error) {
			// Without an id any key of the set would be tried, whatever the set says of its use and algorithm.
			if id, _ := t.Header[jwkset.HeaderKID].(string); id == "" {
				return nil, errNoKeyID
			}
			key, err := find(t)
			if known, _ := remote.KeyReadAll(ctx); len(known) == 0 {
				return nil, errNoKeys
			}
			return key, err
		}
	}), nil
}

// bounded is a transport whose answers end after maxKeySet.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		response.Body = http.MaxBytesReader(nil, response.Body, maxKeySet)
	}
	return response, err
}
