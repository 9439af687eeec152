package httpapi

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/query"
)

// lastWrites remembers the log position of each account's last write through this process, so that a caller who writes and then
// reads sees the write, without a minPosition.
type lastWrites struct {
	now func() time.Time
	mu  sync.Mutex
	of  *simplelru.LRU[string, lastWrite]
}

type lastWrite struct {
	position eventstore.Position
	at       time.Time
}

// ownWritesWithin is how long after a write a read waits for the views to show it. They are normally milliseconds behind; when they
// are this far behind, something is wrong with them, and an old answer is better than none.
const ownWritesWithin = time.Second

func newLastWrites(now func() time.Time) *lastWrites {
	of, err := simplelru.NewLRU[string, lastWrite](accountsKept, nil)
	if err != nil {
		panic(err) // a size that is not positive
	}
	return &lastWrites{now: now, of: of}
}

func (l *lastWrites) note(account string, position eventstore.Position) {
	at := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if last, _ := l.of.Peek(account); position > last.position {
		l.of.Add(account, lastWrite{position, at})
	}
}

// recent returns the position of an account's last write, and how long a read should still wait for it; 0 when it need not.
func (l *lastWrites) recent(account string) (eventstore.Position, time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, _ := l.of.Peek(account)
	return last.position, max(0, ownWritesWithin-l.now().Sub(last.at))
}

// wrote sets the header with the log position of the caller's write, and remembers it.
func (x *exchange) wrote(position eventstore.Position) {
	if position == 0 {
		return
	}
	x.lastWrites.note(x.caller.Account, position)
	x.w.Header().Set(positionHeader, strconv.FormatUint(uint64(position), 10))
}

// waitForOwn waits until the views show the caller's last write, but not beyond ownWritesWithin, nor when too many requests wait
// already. The request is answered in any case.
func (x *exchange) waitForOwn(place allowance, views ...string) {
	position, left := x.lastWrites.recent(x.caller.Account)
	if left == 0 || !place.take(1) {
		return
	}
	defer place.giveBack(1)
	ctx, cancel := context.WithTimeout(x.ctx, left)
	defer cancel()
	_ = x.Query.WaitFor(ctx, position, views...) // what is wrong with the database, the read itself finds
}

// surely asks views for what a path names. What they do not have may have been written a moment ago, so it is only missing if it is
// still not there after the views have caught up with the log. This wait has the same bound as waitFor's.
func surely[T any](x *exchange, ask func() (T, error), views ...string) (T, error) {
	found, err := ask()
	if !errors.Is(err, query.ErrNotFound) || len(views) == 0 {
		return found, err
	}
	place := x.load.waiting.of(x.caller.Account)
	if !place.take(1) {
		return found, errOverloaded
	}
	defer place.giveBack(1)
	if err := x.Query.CatchUp(x.ctx, views...); err != nil {
		return found, err
	}
	return ask()
}

// waitFor waits until the views that answer a GET have reached its minPosition or, without one, the caller's last write. All
// parameters must have been read before, because their errors are returned here. The requests of an account that wait are at most
// half of all that may run.
func (x *exchange) waitFor(p *params, views ...string) error {
	var position eventstore.Position
	if value := p.get("minPosition"); value != "" {
		parsed, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			p.wrong.Add("minPosition", "must be a position, as "+positionHeader+" gives it")
		}
		position = eventstore.Position(parsed)
	}
	if err := p.wrong.Err(); err != nil {
		return err
	}
	place := x.load.waiting.of(x.caller.Account)
	if position == 0 {
		x.waitForOwn(place, views...)
		return nil
	}
	if !place.take(1) {
		return errOverloaded
	}
	defer place.giveBack(1)
	err := x.Query.WaitFor(x.ctx, position, views...)
	if errors.Is(err, eventstore.ErrUnknownPosition) {
		p.wrong.Add("minPosition", "must not be beyond the end of the log")
		return p.wrong.Err()
	}
	return err
}

// one answers with the one thing that the path names.
func one[T any](x *exchange, p *params, none error, find func(ctx context.Context, account, id string) (T, error), views ...string) (answer, error) {
	id, err := x.ulidID(none)
	if err != nil {
		return answer{}, err
	}
	if err := x.waitFor(p, views...); err != nil {
		return answer{}, err
	}
	item, err := surely(x, func() (T, error) { return find(x.ctx, x.caller.Account, id) }, views...)
	return found(item, missing(err, none))
}

// part answers with a list of what belongs to the one thing that the path names.
func part[T any](x *exchange, none error, list func(context.Context, string, string, query.Page) (query.List[T], error), views ...string) (answer, error) {
	id, err := x.ulidID(none)
	if err != nil {
		return answer{}, err
	}
	p := x.params()
	page := p.page()
	if err := x.waitFor(p, views...); err != nil {
		return answer{}, err
	}
	items, err := surely(x, func() (query.List[T], error) { return list(x.ctx, x.caller.Account, id, page) }, views...)
	return listed(items, missing(err, none))
}

// missing gives what is not found the name of what was looked for.
func missing(err, as error) error {
	if errors.Is(err, query.ErrNotFound) {
		return as
	}
	return err
}
