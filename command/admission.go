package command

import (
	"context"
	"time"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/token"
	"github.com/leadlog/leadlog/eventstore"
)

// Admission is why a caller may capture: the account's plan and, for an API token, the token. Both come from a cache, so neither
// is certain until an append has confirmed it.
type Admission struct {
	Caller  Caller
	Account *Believed[account.State]
	value   token.Value            // of the caller's API token
	token   *Believed[token.State] // nil when the caller has no API token
	issued  *time.Time             // when the caller's JWT was issued; nil when it has none
	expires time.Time              // when the token or JWT expires; zero when the caller has neither
}

// Admit lets a caller in if its account has the feature crm_api. Otherwise the error is ErrFeatureDisabled, and the account has
// been read from the log to make sure of it.
func (d *Directory) Admit(ctx context.Context, caller Caller) (Admission, error) {
	believed, err := d.Account(ctx, caller.Account)
	if err == nil && !believed.State.Has(account.FeatureAPI) {
		believed, err = d.ConfirmAccount(ctx, caller.Account)
	}
	if err == nil && !believed.State.Has(account.FeatureAPI) {
		err = ErrFeatureDisabled
	}
	return Admission{Caller: caller, Account: believed}, err
}

// ByToken adds the caller's API token: an append that relies on the admission is refused once the token is revoked or has expired.
func (a Admission) ByToken(value token.Value, believed *Believed[token.State]) Admission {
	a.value, a.token, a.expires = value, believed, believed.State.ExpiresAt
	return a
}

// ByJWT adds when the caller's JWT was issued and when it expires: an append that relies on the admission is refused once the
// account has revoked JWTs as old as this, or the JWT has expired. An issued that is zero is a JWT that does not say.
func (a Admission) ByJWT(issued, expires time.Time) Admission {
	a.issued, a.expires = &issued, expires
	return a
}

// seesLeads reports whether the answer to a capture may show what only earlier arrivals stored: to those who may read leads, and to
// an API token if the account lets its tokens see leads.
func (a Admission) seesLeads() bool {
	tokens := a.token != nil && a.Account.State.TokensSeeLeads && !a.Caller.FromPage
	return tokens || a.Caller.seesLeads()
}

// judge says whether the account, as last read, lets the caller in now: a batch may run for long after its request began. The
// error is ErrUnauthorized or ErrFeatureDisabled.
func (a Admission) judge(now time.Time) error {
	if !a.expires.IsZero() && !now.Before(a.expires) {
		return ErrUnauthorized
	}
	if a.issued != nil && !a.Account.State.AdmitsJWT(*a.issued) {
		return ErrUnauthorized
	}
	if !a.Account.State.Has(account.FeatureAPI) {
		return ErrFeatureDisabled
	}
	return nil
}

// stands judges the admission again before it is used. It reads the log only before it refuses, to make sure.
func (a *Admission) stands(ctx context.Context, d *Directory) error {
	if a.judge(d.now()) == nil {
		return nil
	}
	_, err := a.confirm(ctx, d)
	return err
}

// checks returns the writes that confirm the admission, for the append that relies on it.
func (a Admission) checks() []eventstore.Write {
	const more = 6 // room for what capturing a new lead appends behind them
	checks := append(make([]eventstore.Write, 0, more), a.Account.Check())
	if a.token != nil {
		checks = append(checks, a.token.Check())
	}
	return checks
}

// renew reads the account or the token again if a conflict shows that it has changed. Renewed is false when the conflict was
// about another stream. The error is ErrUnauthorized or ErrFeatureDisabled when the caller is no longer let in.
func (a Admission) renew(ctx context.Context, d *Directory, conflict *eventstore.ConflictError) (_ Admission, renewed bool, err error) {
	switch {
	case conflict.Stream == a.Account.stream:
		if a.Account, err = d.ConfirmAccount(ctx, a.Caller.Account); err == nil {
			err = a.judge(d.now())
		}
		return a, true, err
	case a.token != nil && conflict.Stream == a.token.stream:
		a.token, err = d.ConfirmToken(ctx, a.value)
		return a, true, err
	}
	return a, false, nil
}

// confirm reads the account and the token again, before a refusal that appends nothing and so would confirm nothing. Changed
// says that the account is not as it was. The errors are those of renew.
func (a *Admission) confirm(ctx context.Context, d *Directory) (changed bool, err error) {
	if a.token != nil {
		believed, err := d.ConfirmToken(ctx, a.value)
		if err != nil {
			return false, err
		}
		a.token = believed
	}
	before := a.Account.expect
	if a.Account, err = d.ConfirmAccount(ctx, a.Caller.Account); err == nil {
		err = a.judge(d.now())
	}
	return a.Account.expect != before, err
}

// Confirm reads the account and the token again, before a request is refused without a command, for example because its body
// cannot be read: the holder of a revoked token learns nothing but that it is revoked. The errors are ErrUnauthorized,
// ErrFeatureDisabled and those of the store.
func (a Admission) Confirm(ctx context.Context, d *Directory) error {
	_, err := a.confirm(ctx, d)
	return err
}
