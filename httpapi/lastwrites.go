package httpapi

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/leadlog/leadlog/eventstore"
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
