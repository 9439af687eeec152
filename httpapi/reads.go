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

// Views follow the log, so a read may have to wait for them: for the position in minPosition, for the last write of the
// caller's account, or, before a 404 and for a copy of a person, for the end of the log.

// waitFor waits until the views that answer a GET have reached its minPosition or, without one, the last write of the
// caller's account. It returns the errors of all parameters, so it must be called after they are read. An account may
// have at most half of all requests in flight waiting.
func (ex *exchange) waitFor(p *params, views ...string) error {
	var position eventstore.Position
	if value := p.get("minPosition"); value != "" {
		parsed, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			p.wrong.Add("minPosition", "must be a position from "+positionHeader)
		}
		position = eventstore.Position(parsed)
	}
	if err := p.wrong.Err(); err != nil {
		return err
	}
	waiting := ex.load.waiting.of(ex.caller.Account)
	if position == 0 {
		ex.waitForOwnWrite(waiting, views...)
		return nil
	}
	if !waiting.reserve(1) {
		return errOverloaded
	}
	defer waiting.release(1)
	err := ex.Query.WaitFor(ex.ctx, position, views...)
	if errors.Is(err, eventstore.ErrUnknownPosition) {
		p.wrong.Add("minPosition", "must not be beyond the end of the log")
		return p.wrong.Err()
	}
	return err
}

// lastWrites has the log position of each account's last write through this process, so that a read after a write shows
// the write without a minPosition.
//
// Reads wait for it only for a time from the write on. Views are normally milliseconds behind; when they are further
// behind, the read is answered from an earlier state.
type lastWrites struct {
	now     func() time.Time
	timeout time.Duration
	mu      sync.Mutex
	of      *simplelru.LRU[string, lastWrite]
}

type lastWrite struct {
	position eventstore.Position
	at       time.Time
}

func newLastWrites(now func() time.Time, timeout time.Duration) *lastWrites {
	of, err := simplelru.NewLRU[string, lastWrite](cachedAccounts, nil)
	if err != nil {
		panic(err) // the size is a positive constant
	}
	return &lastWrites{now: now, timeout: timeout, of: of}
}

func (l *lastWrites) note(account string, position eventstore.Position) {
	at := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if last, _ := l.of.Peek(account); position > last.position {
		l.of.Add(account, lastWrite{position, at})
	}
}

// recent returns the position of an account's last write, and how much longer a read should wait for it; 0 is not at
// all.
func (l *lastWrites) recent(account string) (eventstore.Position, time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, _ := l.of.Peek(account)
	return last.position, max(0, l.timeout-l.now().Sub(last.at))
}

// wrote sets the header with the log position of the caller's write, and records it as the account's last write.
func (ex *exchange) wrote(position eventstore.Position) {
	if position == 0 {
		return
	}
	ex.lastWrites.note(ex.caller.Account, position)
	ex.w.Header().Set(positionHeader, strconv.FormatUint(uint64(position), 10))
}

// waitForOwnWrite waits until the views have reached the account's last write, as long as lastWrites says, and not at
// all while too many requests wait. The request is answered in any case.
func (ex *exchange) waitForOwnWrite(waiting share, views ...string) {
	position, left := ex.lastWrites.recent(ex.caller.Account)
	if left == 0 || len(views) == 0 || !waiting.reserve(1) {
		return
	}
	defer waiting.release(1)
	ctx, cancel := context.WithTimeout(ex.ctx, left)
	defer cancel()
	_ = ex.Query.WaitFor(ctx, position, views...) // the read itself reports a failure of the database
}

// withCatchUp reads the resource that a path names from views. If they do not have it, it may have been written just
// now, so it is read again after the views have caught up with the log.
func withCatchUp[T any](ex *exchange, read func() (T, error), views ...string) (T, error) {
	found, err := read()
	if !errors.Is(err, query.ErrNotFound) || len(views) == 0 {
		return found, err
	}
	if err := ex.catchUp(views...); err != nil {
		return found, err
	}
	return read()
}

// catchUp waits until the views have caught up with the log. This wait has the same limit as waitFor's.
func (ex *exchange) catchUp(views ...string) error {
	waiting := ex.load.waiting.of(ex.caller.Account)
	if !waiting.reserve(1) {
		return errOverloaded
	}
	defer waiting.release(1)
	return ex.Query.CatchUp(ex.ctx, views...)
}

// one answers with the one thing that the path names.
func one[T any](
	ex *exchange, p *params, none error, find func(ctx context.Context, account, id string) (T, error), views ...string,
) (answer, error) {
	id, err := ex.ulidID(none)
	if err != nil {
		return answer{}, err
	}
	if err := ex.waitFor(p, views...); err != nil {
		return answer{}, err
	}
	item, err := withCatchUp(ex, func() (T, error) { return find(ex.ctx, ex.caller.Account, id) }, views...)
	return found(item, missing(err, none))
}

// listOf answers with a list that belongs to the resource that the path names.
func listOf[T any](
	ex *exchange, p *params, none error, list func(context.Context, string, string, query.Page) (query.List[T], error),
	views ...string,
) (answer, error) {
	id, err := ex.ulidID(none)
	if err != nil {
		return answer{}, err
	}
	page := p.page()
	if err := ex.waitFor(p, views...); err != nil {
		return answer{}, err
	}
	items, err := withCatchUp(ex, func() (query.List[T], error) {
		return list(ex.ctx, ex.caller.Account, id, page)
	}, views...)
	return listed(items, missing(err, none))
}

// accountList answers with a list of the account.
func accountList[T any](
	ex *exchange, p *params, read func(query.Page) (query.List[T], error), views ...string,
) (answer, error) {
	page := p.page()
	if err := ex.waitFor(p, views...); err != nil {
		return answer{}, err
	}
	return listed(read(page))
}

// missing replaces query.ErrNotFound by the error of the resource.
func missing(err, as error) error {
	if errors.Is(err, query.ErrNotFound) {
		return as
	}
	return err
}
