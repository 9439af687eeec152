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

// How many streams a process keeps folded. An account is under 10 KiB and mostly under one, a token under 1 KiB.
const (
	accountCacheSize = 10_000
	tokenCacheSize   = 50_000
)

// Believed is a stream's state as this process last saw it. It may be stale: whoever acts on it appends Check along.
// Nobody changes one: all who believe it share it.
type Believed[S any] struct {
	State  S
	stream string
	expect eventstore.Expected
	seen   time.Time // the log was as it is believed to be then, or later
}

// Check is the write that lets an append through only while the belief holds.
func (b *Believed[S]) Check() eventstore.Write { return eventstore.Check(b.stream, b.expect) }

// Directory is what a process believes about accounts and tokens, so that a capture reads nothing before it appends.
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

// Account returns what is believed of an account, loading it when nothing is.
func (d *Directory) Account(ctx context.Context, id string) (*Believed[account.State], error) {
	if believed, ok := d.accounts.Get(id); ok {
		return believed, nil
	}
	return d.ConfirmAccount(ctx, id)
}

// ConfirmAccount reads an account from the log. It is called before a refusal that would otherwise rest on a belief.
func (d *Directory) ConfirmAccount(ctx context.Context, id string) (*Believed[account.State], error) {
	now := d.now()
	believed, err := load(ctx, d.store, event.AccountStream(id), account.Evolve)
	believed.seen = now
	if err == nil && believed.State.Provisioned { // an unknown account is not worth a place
		d.accounts.Add(id, believed)
	}
	return believed, err
}

// How old a belief about an account may be when a JWT is judged by it.
const (
	ReadAnew time.Duration = 0             // a request that starts after a revocation was answered is refused
	Brief    time.Duration = time.Second   // of reads, so that they cost the log nothing
	AnyAge   time.Duration = math.MaxInt64 // the append that follows confirms it
)

// AdmitJWT lets in a JWT of an account that was issued at a time; the zero time stands for a JWT that does not say when.
// The error is ErrUnauthorized when it was revoked, which is looked up on the log before it is said.
//
// While the log is out of reach nothing can be revoked either, so reads go on by what is believed: views may be elsewhere.
func (d *Directory) AdmitJWT(ctx context.Context, id string, issued time.Time, age time.Duration) error {
	believed, known := d.accounts.Get(id)
	admits := known && believed.State.AdmitsJWT(issued)
	if admits && d.now().Sub(believed.seen) < age {
		return nil
	}
	latest, err := d.ConfirmAccount(ctx, id)
	switch {
	case err == nil && latest.State.AdmitsJWT(issued):
		return nil
	case err == nil:
		return fmt.Errorf("%w: a JWT of before the account's not-before", ErrUnauthorized)
	case admits && age > ReadAnew && errors.Is(err, eventstore.ErrUnavailable):
		if present, ok := d.accounts.Peek(id); ok && present.expect == believed.expect {
			renewed := *present
			renewed.seen = d.now() // so that not every read waits for the log
			d.accounts.Add(id, &renewed)
		}
		return nil
	}
	return err
}

// forgetAccount drops what is believed of an account that this process has changed.
func (d *Directory) forgetAccount(id string) { d.accounts.Remove(id) }

// KnownToken returns the token of a value that is believed to let its bearer in, without asking the log.
func (d *Directory) KnownToken(value token.Value) (*Believed[token.State], bool) {
	believed, ok := d.tokens.Get(value.TokenID())
	return believed, ok && believed.State.Admits(value.Hash(), d.now())
}

// ConfirmToken reads the token of a value from the log. The error is ErrUnauthorized when it does not let its bearer in, and a
// *RefusedUse when it once would have.
func (d *Directory) ConfirmToken(ctx context.Context, value token.Value) (*Believed[token.State], error) {
	presented, err := load(ctx, d.store, event.TokenStream(value.TokenID()), token.EvolveFor(value.Hash()))
	believed := &Believed[token.State]{State: presented.State.State, stream: presented.stream, expect: presented.expect}
	if err != nil {
		return believed, err
	}
	if now := d.now(); !believed.State.Admits(value.Hash(), now) {
		// The belief may still be right for the token's present value, so only a change of the stream drops it.
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
