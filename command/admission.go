package command

import (
	"context"
	"time"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/token"
	"github.com/leadlog/leadlog/eventstore"
)

// Admission is what lets a caller capture: the account's plan and, for an API token, the token. Both are beliefs
// until an append confirms them.
type Admission struct {
	Caller  Caller
	Account *Believed[account.State]
	value   token.Value            // of the caller's API token
	token   *Believed[token.State] // nil: the caller has none
	issued  *time.Time             // of a JWT that the account may have revoked
	expires time.Time              // of either; zero: the caller has neither
}

// Admit lets a caller in if its account has the feature crm_api. The error is ErrFeatureDisabled if it does not, which is
// looked up on the log before it is said.
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

// ByToken adds the caller's API token, so that whatever relies on the admission is refused once the token is revoked or has
// expired.
func (a Admission) ByToken(value token.Value, believed *Believed[token.State]) Admission {
	a.value, a.token, a.expires = value, believed, believed.State.ExpiresAt
	return a
}

// ByJWT adds when the caller's JWT was issued and when it expires, so that whatever relies on the admission is refused once
// the account has revoked such JWTs, and from its end on. The zero time stands for a JWT that does not say when it was issued.
func (a Admission) ByJWT(issued, expires time.Time) Admission {
	a.issued, a.expires = &issued, expires
	return a
}

// judge says whether the account, as it is believed to be, lets the caller in now. A batch may be under way for long. The
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

// stands judges by what is believed of the account now, which may be newer than what the caller's credential was checked by.
// A refusal is confirmed on the log.
func (a *Admission) stands(ctx context.Context, d *Directory) error {
	if a.judge(d.now()) == nil {
		return nil
	}
	_, err := a.confirm(ctx, d)
	return err
}

// checks go into the append that relies on the admission.
func (a Admission) checks() []eventstore.Write {
	const more = 6 // of the append of a new lead, with an idempotency key
	checks := append(make([]eventstore.Write, 0, more), a.Account.Check())
	if a.token != nil {
		checks = append(checks, a.token.Check())
	}
	return checks
}

// renew reads again what a conflict showed to be stale. Renewed is false when the conflict was about something else. The
// error is ErrUnauthorized or ErrFeatureDisabled when the caller is not let in any more.
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

// confirm reads again what the admission believes, before a refusal that no append would confirm. Changed says that the
// account is not as it was believed to be. The errors are those of renew.
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

// Confirm reads again what the admission believes, before a refusal that no command gets to see, such as that of a body
// which cannot be read: a revoked token learns nothing but that it is revoked. The errors are ErrUnauthorized,
// ErrFeatureDisabled and those of the store.
func (a Admission) Confirm(ctx context.Context, d *Directory) error {
	_, err := a.confirm(ctx, d)
	return err
}
