package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/token"
)

// access authenticates and authorizes the caller of a route.
type access func(*exchange) error

// public is the access of routes without credentials.
func public(*exchange) error { return nil }

// scoped requires a JWT that has all of the scopes. API tokens are not accepted.
func scoped(scopes ...string) access {
	return func(x *exchange) error {
		credential, err := x.bearer()
		if err != nil {
			return err
		}
		if token.LooksLikeValue(credential) {
			if _, err = token.ParseValue(credential); err == nil {
				err = errNeedsJWT
			}
			return fmt.Errorf("%w: %w", command.ErrUnauthorized, err)
		}
		age := command.NoCache
		if x.r.Method == http.MethodGet || x.r.Method == http.MethodHead {
			age = command.Brief
		}
		x.jwt, err = x.byJWT(credential, age, scopes...)
		return err
	}
}

// stillAdmitted checks the JWT of a request again during a long answer.
func (x *exchange) stillAdmitted() error {
	if !x.Now().Before(x.jwt.Expires.Add(leeway)) {
		return command.ErrUnauthorized
	}
	return x.Directory.AdmitJWT(x.detached(), x.jwt.Account, x.jwt.Issued, command.Brief)
}

// capturing requires an API token, or a JWT with leads:write, of an account that has the feature of captures.
func capturing(x *exchange) error {
	credential, err := x.bearer()
	if err != nil {
		return err
	}
	if token.LooksLikeValue(credential) {
		err = x.byToken(credential)
	} else {
		var identity Identity
		if identity, err = x.byJWT(credential, command.AnyAge, "leads:write"); err == nil {
			err = x.admit(func(a command.Admission) command.Admission {
				return a.ByJWT(identity.Issued, identity.Expires.Add(leeway))
			})
		}
		if errors.Is(err, command.ErrNotProvisioned) {
			err = command.ErrFeatureDisabled
		}
	}
	return err
}

// admit admits the caller's account, and adds the credential to the admission, so that the append checks it. A caller
// whose credential is revoked gets only a 401, and no information about the account.
func (x *exchange) admit(by func(command.Admission) command.Admission) (err error) {
	x.admission, err = x.Directory.Admit(x.ctx, x.caller)
	x.admission = by(x.admission)
	if errors.Is(err, command.ErrFeatureDisabled) {
		return x.confirmRefusal(err)
	}
	return err
}

// bearer returns the one credential of a request.
func (x *exchange) bearer() (string, error) {
	headers := x.r.Header.Values("Authorization")
	if len(headers) != 1 {
		return "", fmt.Errorf("%w: %d Authorization headers", command.ErrUnauthorized, len(headers))
	}
	scheme, credential, _ := strings.Cut(headers[0], " ")
	credential = strings.TrimSpace(credential)
	if !strings.EqualFold(scheme, "Bearer") || credential == "" {
		return "", fmt.Errorf("%w: not a bearer credential", command.ErrUnauthorized)
	}
	return credential, nil
}

// byToken authenticates an API token and admits its account. A cached valid token is accepted, because the append
// checks it again. A value with a wrong checksum is refused without a look-up, and so without a limit. Any other value
// is looked up on the log, within the limit of the client's address or of the token.
func (x *exchange) byToken(credential string) error {
	x.record.credential = "token"
	value, err := token.ParseValue(credential)
	if err != nil {
		return fmt.Errorf("%w: %w", command.ErrUnauthorized, err)
	}
	cached, ok := x.Directory.CachedToken(value)
	if !ok {
		if err := x.takeLookup(value.TokenID()); err != nil {
			return err
		}
		if cached, err = x.Directory.ConfirmToken(x.ctx, value); err != nil {
			return err
		}
	}
	bearer := "token:" + value.TokenID()
	x.identify(cached.State.Account, bearer, bearer)
	return x.admit(func(a command.Admission) command.Admission { return a.ByToken(value, cached) })
}

// byJWT authenticates a JWT that has all of the scopes. Its account must be provisioned, unless the scope is admin,
// which provisions accounts.
func (x *exchange) byJWT(credential string, age time.Duration, scopes ...string) (Identity, error) {
	identity, err := x.verify(credential, age)
	if err != nil && !errors.Is(err, command.ErrNotProvisioned) {
		return Identity{}, err
	}
	for _, scope := range scopes {
		if !identity.May(scope) {
			return Identity{}, scopeError(identity.nameOf(scope))
		}
	}
	if slices.Contains(scopes, adminScope) {
		err = nil
	}
	return identity, err
}

// verify authenticates a JWT. Only a JWT that the issuer did not sign counts as a guess. Age is the maximum age of the
// cached account in which revocations are looked up.
func (x *exchange) verify(credential string, age time.Duration) (Identity, error) {
	x.record.credential = "jwt"
	if x.JWT == nil {
		return Identity{}, fmt.Errorf("%w: JWTs are not configured", command.ErrUnauthorized)
	}
	identity, err := x.JWT.Verify(x.ctx, credential, x.Now())
	if errors.Is(err, errNoKeys) {
		return Identity{}, err
	}
	if err != nil {
		if errors.Is(err, errForged) {
			if err := x.takeGuess(); err != nil {
				return Identity{}, err
			}
		}
		return Identity{}, fmt.Errorf("%w: %w", command.ErrUnauthorized, err)
	}
	x.identify(identity.Account, "user:"+identity.Subject, "jwt:"+identity.Subject)
	x.caller.ReadsLeads = identity.May("leads:read")
	return identity, x.Directory.AdmitJWT(x.ctx, identity.Account, identity.Issued, age)
}

// sample records, asynchronously, the use of an API token, dry runs included, or the refusal of a token's earlier
// value.
func (x *exchange) sample(err error) {
	if x.Uses == nil {
		return
	}
	var refused *command.RefusedUse
	if errors.As(err, &refused) {
		x.Uses.Refused(x.caller, refused)
		return
	}
	if id, ok := strings.CutPrefix(x.caller.Credential, "token:"); ok {
		x.Uses.Used(x.caller.Account, id)
	}
}

func (x *exchange) identify(account, actor, credential string) {
	x.caller.Account, x.caller.Actor, x.caller.Credential = account, actor, credential
	x.record.account = account
}

// confirmTimeout bounds confirmRefusal.
const confirmTimeout = 5 * time.Second

// confirmRefusal returns the error of a request if its credential is still valid, and otherwise the error of the
// credential, because the holder of a revoked token must learn nothing else. It has a timeout of its own, since a slow
// body may have used up the request's.
func (x *exchange) confirmRefusal(err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.ctx), confirmTimeout)
	defer cancel()
	if revoked := x.admission.Confirm(ctx, x.Directory); revoked != nil {
		return revoked
	}
	return err
}
