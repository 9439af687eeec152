// Package turns limits how many posts are mapped concurrently.
package turns

import (
	"context"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/leadlog/leadlog/command/expression"
)

// Turns bounds how many posts are mapped concurrently: one of each queue of an account, one of each account, and half
// as many as there are processors in all. The most costly mapping of the most costly body takes tens of milliseconds of
// a processor. Captures by the API do not wait for turns.
type Turns struct {
	all *semaphore.Weighted

	mu  sync.Mutex
	own map[holder]*turn // of accounts and queues that map, or wait to
}

// holder is a queue of an account or, without a queue, the account.
type holder struct{ account, queue string }

type turn struct {
	*semaphore.Weighted
	users int
}

// New returns turns for the processors of this process.
func New() *Turns {
	return &Turns{all: semaphore.NewWeighted(int64(max(1, runtime.GOMAXPROCS(0)/2))), own: map[holder]*turn{}}
}

// Own is the queue of what an account requests itself, such as previews. Each intake has a queue for the posts to it,
// by its id.
const Own = "own"

// Cost is the cost of mapping a post, apart from its time.
type Cost struct {
	Bytes int    // of the body
	Steps uint64 // of the mapping
}

// Do calls do in a turn of a queue of the account. After a costly post, the queue's next turn begins later. The error
// is that of the context.
func (t *Turns) Do(ctx context.Context, account, queue string, do func() Cost) error {
	release, err := t.acquire(ctx, account, queue)
	if err != nil {
		return err
	}
	begun := time.Now() // for a duration, so not a configured clock
	var cost Cost
	defer func() { release(cost.cooldown(time.Since(begun))) }()
	cost = do()
	return nil
}

// Acquire waits for a turn of an account's own queue, which end ends. The error is that of the context.
func (t *Turns) Acquire(ctx context.Context, account string) (end func(), err error) {
	release, err := t.acquire(ctx, account, Own)
	if err != nil {
		return nil, err
	}
	return func() { release(0) }, nil
}

// cooldown returns the pause of a queue after a post: costly posts to an intake together take at most a quarter of a
// processor. After other posts there is no pause, however long they took on a busy machine.
func (c Cost) cooldown(took time.Duration) time.Duration {
	if c.Bytes < 64<<10 && c.Steps < expression.CostLimit/10 {
		return 0
	}
	return 3 * took
}

// acquire waits for a turn of a queue, which release ends. The queue's next turn begins a cooldown after that. The
// error is that of the context.
func (t *Turns) acquire(ctx context.Context, account, queue string) (release func(cooldown time.Duration), err error) {
	leaveQueue, err := t.enter(ctx, holder{account, queue})
	if err != nil {
		return nil, err
	}
	leaveAccount, err := t.enter(ctx, holder{account: account})
	if err != nil {
		leaveQueue()
		return nil, err
	}
	if err := t.all.Acquire(ctx, 1); err != nil {
		leaveAccount()
		leaveQueue()
		return nil, err
	}
	return func(cooldown time.Duration) {
		t.all.Release(1)
		leaveAccount()
		if cooldown == 0 {
			leaveQueue()
			return
		}
		time.AfterFunc(cooldown, leaveQueue)
	}, nil
}

// enter waits for the turn of a holder, until leave is called.
func (t *Turns) enter(ctx context.Context, of holder) (leave func(), err error) {
	t.mu.Lock()
	own := t.own[of]
	if own == nil {
		own = &turn{Weighted: semaphore.NewWeighted(1)}
		t.own[of] = own
	}
	own.users++
	t.mu.Unlock()
	forget := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if own.users--; own.users == 0 {
			delete(t.own, of)
		}
	}
	if err := own.Acquire(ctx, 1); err != nil {
		forget()
		return nil, err
	}
	return func() {
		own.Release(1)
		forget()
	}, nil
}
