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
	return func(ex *exchange) error {
		credential, err := ex.bearer()
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
		if ex.r.Method == http.MethodGet || ex.r.Method == http.MethodHead {
			age = command.Brief
		}
		ex.jwt, err = ex.byJWT(credential, age, scopes...)
		return err
	}
}

// stillAdmitted checks the JWT of a request again during a long answer.
func (ex *exchange) stillAdmitted() error {
	if !ex.Now().Before(ex.jwt.Expires.Add(leeway)) {
		return command.ErrUnauthorized
	}
	return ex.Directory.AdmitJWT(ex.detached(), ex.jwt.Account, ex.jwt.Issued, command.Brief)
}

// capturing requires an API token, or a JWT with leads:write, of an account that has the feature of captures.
func capturing(ex *exchange) error {
	credential, err := ex.bearer()
	if err != nil {
		return err
	}
	if token.LooksLikeValue(credential) {
		err = ex.byToken(credential)
	} else {
		var identity Identity
		if identity, err = ex.byJWT(credential, command.AnyAge, "leads:write"); err == nil {
			err = ex.admit(func(a command.Admission) command.Admission {
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
func (ex *exchange) admit(by func(command.Admission) command.Admission) (err error) {
	ex.admission, err = ex.Directory.Admit(ex.ctx, ex.caller)
	ex.admission = by(ex.admission)
	if errors.Is(err, command.ErrFeatureDisabled) {
		return ex.confirmRefusal(err)
	}
	return err
}

// bearer returns the one credential of a request.
func (ex *exchange) bearer() (string, error) {
	headers := ex.r.Header.Values("Authorization")
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
func (ex *exchange) byToken(credential string) error {
	ex.record.credential = "token"
	value, err := token.ParseValue(credential)
	if err != nil {
		return fmt.Errorf("%w: %w", command.ErrUnauthorized, err)
	}
	cached, ok := ex.Directory.CachedToken(value)
	if !ok {
		if err := ex.takeLookup(value.TokenID()); err != nil {
			return err
		}
		if cached, err = ex.Directory.ConfirmToken(ex.ctx, value); err != nil {
			return err
		}
	}
	bearer := "token:" + value.TokenID()
	ex.identify(cached.State.Account, bearer, bearer)
	return ex.admit(func(a command.Admission) command.Admission { return a.ByToken(value, cached) })
}

// byJWT authenticates a JWT that has all of the scopes. Its account must be provisioned, unless the scope is admin,
// which provisions accounts.
func (ex *exchange) byJWT(credential string, age time.Duration, scopes ...string) (Identity, error) {
	identity, err := ex.verify(credential, age)
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
func (ex *exchange) verify(credential string, age time.Duration) (Identity, error) {
	ex.record.credential = "jwt"
	if ex.JWT == nil {
		return Identity{}, fmt.Errorf("%w: JWTs are not configured", command.ErrUnauthorized)
	}
	identity, err := ex.JWT.Verify(ex.ctx, credential, ex.Now())
	if errors.Is(err, errNoKeys) {
		return Identity{}, err
	}
	if err != nil {
		if errors.Is(err, errForged) {
			if err := ex.takeGuess(); err != nil {
				return Identity{}, err
			}
		}
		return Identity{}, fmt.Errorf("%w: %w", command.ErrUnauthorized, err)
	}
	ex.identify(identity.Account, "user:"+identity.Subject, "jwt:"+identity.Subject)
	ex.caller.ReadsLeads = identity.May("leads:read")
	return identity, ex.Directory.AdmitJWT(ex.ctx, identity.Account, identity.Issued, age)
}

// sample records, asynchronously, the use of an API token, dry runs included, or the refusal of a token's earlier
// value.
func (ex *exchange) sample(err error) {
	if ex.Uses == nil {
		return
	}
	var refused *command.RefusedUse
	if errors.As(err, &refused) {
		ex.Uses.Refused(ex.caller, refused)
		return
	}
	if id, ok := strings.CutPrefix(ex.caller.Credential, "token:"); ok {
		ex.Uses.Used(ex.caller.Account, id)
	}
}

func (ex *exchange) identify(account, actor, credential string) {
	ex.caller.Account, ex.caller.Actor, ex.caller.Credential = account, actor, credential
	ex.record.account = account
}

// confirmTimeout bounds confirmRefusal.
const confirmTimeout = 5 * time.Second

// confirmRefusal returns the error of a request if its credential is still valid, and otherwise the error of the
// credential, because the holder of a revoked token must learn nothing else. It has a timeout of its own, since a slow
// body may have used up the request's.
func (ex *exchange) confirmRefusal(err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ex.ctx), confirmTimeout)
	defer cancel()
	if revoked := ex.admission.Confirm(ctx, ex.Directory); revoked != nil {
		return revoked
	}
	return err
}
