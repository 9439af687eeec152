package command

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/intake"
	"github.com/leadlog/leadlog/command/token"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// Admission is why a caller may capture: the account's plan and, for an API token, the token. It comes from a cache,
// which admits at once. What the cache decides is confirmed by the log: an acceptance by the append that relies on it,
// which has Admission.checks, and a refusal by Admission.Confirm.
type Admission struct {
	Caller  Caller
	Account *Cached[account.State]
	value   token.Value          // of the caller's API token
	token   *Cached[token.State] // nil when the caller has no API token
	intake  *Intake              // that a page posts to; nil for any other caller
	issued  *time.Time           // when the caller's JWT was issued; nil when it has none
	expires time.Time            // when the token or JWT expires; zero when the caller has neither
}

// Admit lets a caller in if its account has the feature crm_api. Otherwise the error is ErrFeatureDisabled, confirmed
// by the log.
func (d *Directory) Admit(ctx context.Context, caller Caller) (Admission, error) {
	cached, err := d.Account(ctx, caller.Account)
	a := Admission{Caller: caller, Account: cached}
	if err == nil {
		err = a.admit(ctx, d)
	}
	return a, err
}

// ByToken adds the caller's API token: an append that relies on the admission is refused once the token is revoked or
// has expired.
func (a Admission) ByToken(value token.Value, cached *Cached[token.State]) Admission {
	a.value, a.token, a.expires = value, cached, cached.State.ExpiresAt
	return a
}

// ByIntake adds the intake that a page posts to: an append that relies on the admission fails with ErrIntakeChanged
// once the intake has changed.
func (a Admission) ByIntake(cached *Intake) Admission {
	a.intake = cached
	return a
}

// ByJWT adds when the caller's JWT was issued and when it expires: an append that relies on the admission is refused
// once the account has revoked JWTs as old as this, or the JWT has expired. An issued that is zero is a JWT that does
// not say.
func (a Admission) ByJWT(issued, expires time.Time) Admission {
	a.issued, a.expires = &issued, expires
	return a
}

// seesLeads reports whether the answer to a capture may show what only earlier arrivals stored: to those who may read
// leads, and to an API token if the account lets its tokens see leads.
func (a Admission) seesLeads() bool {
	tokens := a.token != nil && a.Account.State.TokensSeeLeads && !a.Caller.FromPage
	return tokens || a.Caller.seesLeads()
}

// admit lets the caller in by the cached account and token. The errors are those of Confirm, which it calls before it
// refuses. A batch may run for long, so it admits the caller of each line again.
func (a *Admission) admit(ctx context.Context, d *Directory) error {
	if a.refusal(d.now()) == nil {
		return nil
	}
	return a.Confirm(ctx, d)
}

// Confirm reads the token and the account from the log and decides by them. It precedes a refusal, which appends
// nothing and so would confirm nothing: the holder of a revoked token learns nothing but that it is revoked. The errors
// are ErrUnauthorized, ErrFeatureDisabled and those of the store.
func (a *Admission) Confirm(ctx context.Context, d *Directory) error {
	if a.token != nil {
		latest, err := d.ConfirmToken(ctx, a.value)
		if err != nil {
			return err
		}
		a.token = latest
	}
	var err error
	if a.Account, err = d.ConfirmAccount(ctx, a.Caller.Account); err != nil {
		return err
	}
	return a.refusal(d.now())
}

// refusal returns why the account, as last read, does not let the caller in: ErrUnauthorized, ErrFeatureDisabled, or
// nil if it does.
func (a Admission) refusal(now time.Time) error {
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

// checks returns the writes that confirm the admission, for the append that relies on it.
func (a Admission) checks() []eventstore.Write {
	const more = 6 // writes that capturing a new lead appends to them
	checks := append(make([]eventstore.Write, 0, more), a.Account.Check())
	if a.token != nil {
		checks = append(checks, a.token.Check())
	}
	if a.intake != nil {
		checks = append(checks, a.intake.Check())
	}
	return checks
}

// confirmAfter confirms the admission if a conflict is about it, and reports whether it is. The errors are those of
// Confirm, and ErrIntakeChanged.
func (a *Admission) confirmAfter(
	ctx context.Context, d *Directory, conflict *eventstore.ConflictError,
) (about bool, err error) {
	switch {
	case a.intake != nil && conflict.Stream == a.intake.stream:
		return true, ErrIntakeChanged
	case conflict.Stream == a.Account.stream, a.token != nil && conflict.Stream == a.token.stream:
		return true, a.Confirm(ctx, d)
	}
	return false, nil
}

// How many accounts, tokens and intakes a process caches. An account takes less than 10 KiB and mostly less than one, a
// token less than 1.
const (
	accountCacheSize = 10_000
	tokenCacheSize   = 50_000
	intakeCacheSize  = 10_000
	goneCacheSize    = 50_000 // ids
)

// Cached is a cached state of a stream. It may be stale, so a command that relies on it adds Check to its append. It is
// shared, and never changed.
type Cached[S any] struct {
	State  S
	stream string
	expect eventstore.Expected
	seen   time.Time // the state was the latest at this time or later
}

// Check returns a write that makes an append conflict if the stream has changed.
func (c *Cached[S]) Check() eventstore.Write { return eventstore.Check(c.stream, c.expect) }

// Directory is a process's cache of accounts, tokens and intakes, so that a capture reads nothing before it appends.
type Directory struct {
	store    eventstore.Store
	now      func() time.Time
	accounts *lru.Cache[string, *Cached[account.State]]
	tokens   *lru.Cache[string, *Cached[token.State]]
	intakes  *lru.Cache[string, *Intake]
	gone     *lru.Cache[string, struct{}] // deleted intakes
	folds    *eventstore.Folds[intake.State]
	secrets  IntakeSecrets // nil: no intakes are served
}

// NewDirectory returns an empty directory over a log.
func NewDirectory(store eventstore.Store, now func() time.Time) *Directory {
	return &Directory{
		store: store, now: now,
		accounts: newCache[string, *Cached[account.State]](accountCacheSize),
		tokens:   newCache[string, *Cached[token.State]](tokenCacheSize),
		intakes:  newCache[string, *Intake](intakeCacheSize), folds: eventstore.NewFolds(intakeFolds),
		gone: newCache[string, struct{}](goneCacheSize),
	}
}

func newCache[K comparable, V any](size int) *lru.Cache[K, V] {
	cache, err := lru.New[K, V](size)
	if err != nil {
		panic(err) // only a size below 1, and sizes are constants
	}
	return cache
}

// Account returns an account from the cache, or reads it from the log when it is not there.
func (d *Directory) Account(ctx context.Context, id string) (*Cached[account.State], error) {
	if cached, ok := d.accounts.Get(id); ok {
		return cached, nil
	}
	return d.ConfirmAccount(ctx, id)
}

// ConfirmAccount reads an account from the log. It is for refusals, which must not rest on the cache alone.
func (d *Directory) ConfirmAccount(ctx context.Context, id string) (*Cached[account.State], error) {
	now := d.now()
	cached, err := load(ctx, d.store, event.AccountStream(id), account.Evolve)
	cached.seen = now
	if err == nil && cached.State.Provisioned { // unknown accounts must not fill the cache
		d.accounts.Add(id, cached)
	}
	return cached, err
}

// How old a cached account may be when a JWT is judged by it.
const (
	// never cached: a request that starts after a revocation was answered is refused
	NoCache time.Duration = 0
	Brief   time.Duration = time.Second   // for reads, so that they do not burden the log
	AnyAge  time.Duration = math.MaxInt64 // for requests whose append confirms it
)

// AdmitJWT accepts a JWT of an account by its issue time; the zero time is a JWT without one. The error is
// ErrUnauthorized when it was revoked, and ErrNotProvisioned when there is no such account. The account has been read
// from the log before either is returned.
//
// While the log is unreachable, reads go on with the cached account of any age: the views may be in another database,
// and no JWT can be revoked meanwhile.
func (d *Directory) AdmitJWT(ctx context.Context, id string, issued time.Time, age time.Duration) error {
	cached, known := d.accounts.Get(id)
	admits := known && cached.State.AdmitsJWT(issued)
	if admits && d.now().Sub(cached.seen) < age {
		return nil
	}
	latest, err := d.ConfirmAccount(ctx, id)
	switch {
	case err == nil && !latest.State.Provisioned:
		return ErrNotProvisioned
	case err == nil && latest.State.AdmitsJWT(issued):
		return nil
	case err == nil:
		return fmt.Errorf("%w: the JWT was issued before the not-before time of the account", ErrUnauthorized)
	case admits && age > NoCache && errors.Is(err, eventstore.ErrUnavailable):
		if present, ok := d.accounts.Peek(id); ok && present.expect == cached.expect {
			renewed := *present
			renewed.seen = d.now() // otherwise every read would wait for the log
			d.accounts.Add(id, &renewed)
		}
		return nil
	}
	return err
}

// forgetAccount drops an account from the cache.
func (d *Directory) forgetAccount(id string) { d.accounts.Remove(id) }

// CachedToken returns the cached token of a value, if it lets its bearer in. It does not read the log.
func (d *Directory) CachedToken(value token.Value) (*Cached[token.State], bool) {
	cached, ok := d.tokens.Get(value.TokenID())
	return cached, ok && cached.State.Admits(value.Hash(), d.now())
}

// ConfirmToken reads the token of a value from the log. The error is ErrUnauthorized when it does not let its bearer
// in. It is a *RefusedUse, which wraps ErrUnauthorized, when the value let its bearer in earlier.
func (d *Directory) ConfirmToken(ctx context.Context, value token.Value) (*Cached[token.State], error) {
	presented, err := load(ctx, d.store, event.TokenStream(value.TokenID()), token.EvolveFor(value.Hash()))
	cached := &Cached[token.State]{State: presented.State.State, stream: presented.stream, expect: presented.expect}
	if err != nil {
		return cached, err
	}
	if now := d.now(); !cached.State.Admits(value.Hash(), now) {
		// An old value was presented. The cached token is still right for the present value, unless its stream has
		// changed.
		if known, ok := d.tokens.Peek(value.TokenID()); ok && known.expect != cached.expect {
			d.tokens.Remove(value.TokenID())
		}
		return cached, refusal(value, presented.State, now)
	}
	d.tokens.Add(value.TokenID(), cached)
	return cached, nil
}

// lookUpTime bounds one read of the log. The arrivals of a batch or an import have no deadlines of their own.
const lookUpTime = 5 * time.Second

func load[S any](
	ctx context.Context, store eventstore.Store, stream string, evolve func(S, event.Fact) S,
) (*Cached[S], error) {
	ctx, cancel := context.WithTimeout(ctx, lookUpTime)
	defer cancel()
	state, expect, err := eventstore.Load(ctx, store, stream, evolve)
	return &Cached[S]{State: state, stream: stream, expect: expect}, err
}
