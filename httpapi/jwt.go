package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/leadlog/leadlog/command/account"
)

const (
	// DefaultAccountClaim is the claim that names the caller's account.
	DefaultAccountClaim = "account_id"

	// DefaultAdminScope is the default name of the administrators' scope in JWTs.
	DefaultAdminScope = "admin"

	// adminScope is the one scope that a JWT of the secret without a scope claim does not have. JWTs may use another
	// name for it.
	adminScope = DefaultAdminScope

	minSecret = 32      // bytes of an HS256 secret, the size of the hash
	maxJWT    = 8 << 10 // bytes
	leeway    = 30 * time.Second
)

// errForged reports a JWT that the issuer did not sign: it may be a guess.
var errForged = errors.New("not signed by the issuer")

// errNoKeys reports that the key of a JWT is not known, and that the issuer's key set cannot be fetched or is empty, so
// that it cannot be verified.
var errNoKeys = errors.New("the issuer's key set cannot be fetched")

// errUnknownKey reports a JWT whose key the issuer does not publish, or not for this use.
var errUnknownKey = errors.New("no such key")

// errNoKeyID reports a JWT without the id of the key that signed it.
var errNoKeyID = errors.New("no key id (kid)")

// VerifierOptions are the claims that a JWT must have besides a valid signature. An empty option is not checked.
type VerifierOptions struct {
	Issuer       string
	Audience     string
	AccountClaim string // empty: DefaultAccountClaim
	AdminScope   string // empty: DefaultAdminScope
	DefaultScope string // of a key set's JWTs that name no scopes, separated by spaces; empty: they have none
}

// Verifier checks JWTs of one family of algorithms. Its methods may be called from many goroutines.
type Verifier struct {
	options VerifierOptions
	methods []string
	key     func(context.Context) jwt.Keyfunc
	scopes  func(jwt.MapClaims) (names []string, all bool, err error)
}

// NewHS256 verifies JWTs signed with a shared secret of at least 32 bytes.
func NewHS256(secret []byte, o VerifierOptions) (*Verifier, error) {
	if err := checkSecret(secret); err != nil {
		return nil, err
	}
	secret = slices.Clone(secret)
	v := newVerifier(o, []string{jwt.SigningMethodHS256.Alg()}, func(context.Context) jwt.Keyfunc {
		return func(*jwt.Token) (any, error) { return secret, nil }
	})
	v.scopes = ownScopes
	return v, nil
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

// Identity has the verified claims of a JWT.
type Identity struct {
	Account string
	Subject string
	Issued  time.Time // zero without iat, or when iat is in the future
	Expires time.Time // in the year 9999 at the latest
	scopes  []string
	all     bool   // a JWT of the secret without a scope claim
	admin   string // the issuer's name of the scope admin
}

// May reports whether the JWT has a scope.
func (i Identity) May(scope string) bool {
	if i.all {
		return scope != adminScope
	}
	return slices.Contains(i.scopes, i.nameOf(scope))
}

// nameOf returns the issuer's name of a scope.
func (i Identity) nameOf(scope string) string {
	if scope == adminScope {
		return i.admin
	}
	return scope
}

// Scopes returns the scopes of leadlog that the JWT has.
func (i Identity) Scopes() []string {
	return slices.DeleteFunc(Scopes(), func(scope string) bool { return !i.May(scope) })
}

// Verify checks a JWT. The error is errForged if the issuer did not sign it, errNoKeys while its key cannot be fetched,
// and another one if the signature is valid but the JWT has expired or its claims are not accepted. The error's text
// contains nothing of the JWT.
func (v *Verifier) Verify(ctx context.Context, text string, now time.Time) (Identity, error) {
	if len(text) > maxJWT {
		return Identity{}, fmt.Errorf("%w: longer than 8 KiB", errForged)
	}
	if strings.ContainsAny(text, "\r\n") { // encoding/base64 skips line breaks
		return Identity{}, fmt.Errorf("%w: it has a line break", errForged)
	}
	claims := jwt.MapClaims{}
	parser := jwt.NewParser(v.parserOptions(now)...)
	_, err := parser.ParseWithClaims(text, claims, func(t *jwt.Token) (any, error) {
		if _, critical := t.Header["crit"]; critical {
			return nil, errors.New("critical extensions are not supported")
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

// latest is the last time that JSON and cookies can represent.
var latest = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// identity reads the claims of a JWT with a valid signature. Some issuers write times in milliseconds. A JWT with iat
// in the future would survive every revocation, so it is treated as one without iat.
func (v *Verifier) identity(claims jwt.MapClaims, now time.Time) (Identity, error) {
	id, _ := claims[v.options.AccountClaim].(string)
	if !account.ValidID(id) {
		return Identity{}, fmt.Errorf("claim %s is not an account id", v.options.AccountClaim)
	}
	subject, _ := claims["sub"].(string)
	if !account.ValidSubject(subject) {
		return Identity{}, errors.New("claim sub is not a valid subject")
	}
	// the library treats a time beyond int64 as past
	if begins, _ := claims["nbf"].(float64); begins > float64(latest.Unix()) {
		return Identity{}, jwt.ErrTokenNotValidYet
	}
	identity := Identity{Account: id, Subject: subject, admin: v.options.AdminScope}
	if issued, err := claims.GetIssuedAt(); err == nil && issued != nil && issued.Unix() >= 0 &&
		!issued.After(now.Add(leeway)) {
		identity.Issued = issued.Time
	}
	if expires, err := claims.GetExpirationTime(); err == nil && expires != nil {
		if identity.Expires = expires.Time; identity.Expires.After(latest) {
			identity.Expires = latest
		}
	}
	var err error
	identity.scopes, identity.all, err = v.scopes(claims)
	return identity, err
}

// ownScopes reads the claim scope. A JWT without it, which the holder of the secret minted, has all scopes but admin.
func ownScopes(claims jwt.MapClaims) (names []string, all bool, err error) {
	scope, given := claims["scope"]
	if !given {
		return nil, true, nil
	}
	text, ok := scope.(string)
	if !ok {
		return nil, false, errors.New("claim scope is not a string")
	}
	return strings.Fields(text), false, nil
}

// issuerScopes reads the first claim that there is: scope (RFC 8693), scp (Okta, Entra ID) or permissions (Auth0), each
// text or a list of texts. A JWT without them, which an issuer also mints for other services, has the default scopes.
func (o VerifierOptions) issuerScopes(claims jwt.MapClaims) (names []string, all bool, err error) {
	for _, name := range []string{"scope", "scp", "permissions"} {
		switch scopes := claims[name].(type) {
		case nil:
			continue
		case string:
			return strings.Fields(scopes), false, nil
		case []any:
			for _, scope := range scopes {
				text, ok := scope.(string)
				if !ok {
					return nil, false, fmt.Errorf("claim %s has an element that is not a string", name)
				}
				names = append(names, text)
			}
			return names, false, nil
		default:
			return nil, false, fmt.Errorf("claim %s is neither a string nor a list", name)
		}
	}
	return strings.Fields(o.DefaultScope), false, nil
}

// claimProblem returns the kind of a library's error: the error itself may quote the JWT. So does signatureProblem.
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
	for _, kind := range []error{
		errNoKeyID, jwt.ErrTokenMalformed, jwt.ErrTokenUnverifiable, jwt.ErrTokenSignatureInvalid,
	} {
		if errors.Is(err, kind) {
			return kind
		}
	}
	return errors.New("invalid token")
}

// Minting has the claims of a JWT to mint.
type Minting struct {
	Account      string
	Subject      string
	Scope        string // space separated; empty: no scope claim, which is every scope but admin
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
		return "", errors.New("an account id has 1 to 64 letters, digits, _ or -")
	}
	if m.Subject == "" || m.TTL <= 0 {
		return "", errors.New("a JWT requires a subject and a positive lifetime")
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

// Scopes returns the scopes that a JWT can have, the last by its default name.
func Scopes() []string {
	return []string{
		"leads:read", "leads:write", "tokens:read", "tokens:write", "webhooks:read", "webhooks:write", "intakes:read",
		"intakes:write", "audit:read", adminScope,
	}
}

// asymmetric returns the algorithms whose keys a JWKS may have. None of them uses a public key as a secret.
func asymmetric() []string {
	return []string{
		"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
	}
}

// NewJWKS returns a verifier of JWTs that are signed with the keys published at a URL. It fetches the keys regularly
// until ctx ends. A server that is down is no error: the keys fetched before stay in use, and for a JWT of another key
// Verify returns errNoKeys. A JWT must have a key id, and a key is used only as its own use and algorithm allow.
func NewJWKS(ctx context.Context, address string, o VerifierOptions, log *slog.Logger) (*Verifier, error) {
	return newJWKS(ctx, address, o, log, usualPace)
}

func newJWKS(
	ctx context.Context, address string, o VerifierOptions, log *slog.Logger, pace keySetPace,
) (*Verifier, error) {
	keys, err := newKeySet(ctx, address, log, pace)
	if err != nil {
		return nil, err
	}
	v := newVerifier(o, asymmetric(), func(ctx context.Context) jwt.Keyfunc {
		return func(t *jwt.Token) (any, error) {
			id, _ := t.Header["kid"].(string)
			if id == "" {
				return nil, errNoKeyID
			}
			return keys.find(ctx, id, t.Method.Alg())
		}
	})
	v.scopes = o.issuerScopes
	return v, nil
}
