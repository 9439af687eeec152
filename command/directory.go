package command

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/token"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// How many accounts and tokens a process caches. An account takes less than 10 KiB and mostly less than one, a token less than 1.
const (
	accountCacheSize = 10_000
	tokenCacheSize   = 50_000
)

// Believed is a cached state of a stream. It may be stale, so whoever acts on it adds Check to the append. It is shared, and
// never changed.
type Believed[S any] struct {
	State  S
	stream string
	expect eventstore.Expected
	seen   time.Time // the state was the latest at this time or later
}

// Check returns a write that makes an append conflict unless the stream is still as it was.
func (b *Believed[S]) Check() eventstore.Write { return eventstore.Check(b.stream, b.expect) }

// Directory is a process's cache of accounts and tokens, so that a capture reads nothing before it appends.
type Directory struct {
	store    eventstore.Store
	now      func() time.Time
	accounts *lru.Cache[string, *Believed[account.State]]
	tokens   *lru.Cache[string, *Believed[token.State]]
}

// NewDirectory returns an empty directory over a log.
func NewDirectory(store eventstore.Store, now func() time.Time) *Directory {
	return &Directory{
		store: store, now: now,
		accounts: newCache[string, *Believed[account.State]](accountCacheSize), tokens: newCache[string, *Believed[token.State]](tokenCacheSize),
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
func (d *Directory) Account(ctx context.Context, id string) (*Believed[account.State], error) {
	if believed, ok := d.accounts.Get(id); ok {
		return believed, nil
	}
	return d.ConfirmAccount(ctx, id)
}

// ConfirmAccount reads an account from the log. It is for refusals, which must not rest on the cache alone.
func (d *Directory) ConfirmAccount(ctx context.Context, id string) (*Believed[account.State], error) {
	now := d.now()
	believed, err := load(ctx, d.store, event.AccountStream(id), account.Evolve)
	believed.seen = now
	if err == nil && believed.State.Provisioned { // unknown accounts must not fill the cache
		d.accounts.Add(id, believed)
	}
	return believed, err
}

// How old a cached account may be when a JWT is judged by it.
const (
	ReadAnew time.Duration = 0             // never cached: a request that starts after a revocation was answered is refused
	Brief    time.Duration = time.Second   // for reads, so that they do not burden the log
	AnyAge   time.Duration = math.MaxInt64 // for requests whose append confirms it
)

// AdmitJWT lets in a JWT of an account by when it was issued; the zero time is a JWT that does not say. The error is
// ErrUnauthorized when it was revoked, and ErrNotProvisioned when there is no such account. The account has been read from the log
// before either is returned.
//
// While the log is unreachable, reads go on with the cached account of any age: the views may be in another database, and no
// JWT can be revoked meanwhile.
func (d *Directory) AdmitJWT(ctx context.Context, id string, issued time.Time, age time.Duration) error {
	believed, known := d.accounts.Get(id)
	admits := known && believed.State.AdmitsJWT(issued)
	if admits && d.now().Sub(believed.seen) < age {
		return nil
	}
	latest, err := d.ConfirmAccount(ctx, id)
	switch {
	case err == nil && !latest.State.Provisioned:
		return ErrNotProvisioned
	case err == nil && latest.State.AdmitsJWT(issued):
		return nil
	case err == nil:
		return fmt.Errorf("%w: a JWT of before the account's not-before", ErrUnauthorized)
	case admits && age > ReadAnew && errors.Is(err, eventstore.ErrUnavailable):
		if present, ok := d.accounts.Peek(id); ok && present.expect == believed.expect {
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

// KnownToken returns the cached token of a value, if it lets its bearer in. It does not read the log.
func (d *Directory) KnownToken(value token.Value) (*Believed[token.State], bool) {
	believed, ok := d.tokens.Get(value.TokenID())
	return believed, ok && believed.State.Admits(value.Hash(), d.now())
}

// ConfirmToken reads the token of a value from the log. The error is ErrUnauthorized when it does not let its bearer in. It is a
// *RefusedUse, which wraps ErrUnauthorized, when the value let its bearer in earlier.
func (d *Directory) ConfirmToken(ctx context.Context, value token.Value) (*Believed[token.State], error) {
	presented, err := load(ctx, d.store, event.TokenStream(value.TokenID()), token.EvolveFor(value.Hash()))
	believed := &Believed[token.State]{State: presented.State.State, stream: presented.stream, expect: presented.expect}
	if err != nil {
		return believed, err
	}
	if now := d.now(); !believed.State.Admits(value.Hash(), now) {
		// An old value was presented. The cached token is still right for the present value, unless its stream has changed.
		if known, ok := d.tokens.Peek(value.TokenID()); ok && known.expect != believed.expect {
			d.tokens.Remove(value.TokenID())
		}
		return believed, refusal(value, presented.State, now)
	}
	d.tokens.Add(value.TokenID(), believed)
	return believed, nil
}

// lookUpTime bounds one read of the log. The arrivals of a batch or an import have no deadlines of their own.
const lookUpTime = 5 * time.Second

func load[S any](ctx context.Context, store eventstore.Store, stream string, evolve func(S, event.Fact) S) (*Believed[S], error) {
	ctx, cancel := context.WithTimeout(ctx, lookUpTime)
	defer cancel()
	state, expect, err := eventstore.Load(ctx, store, stream, evolve)
	return &Believed[S]{State: state, stream: stream, expect: expect}, err
}
