package esdb

import (
	"context"
	"slices"
	"sync"

	"github.com/leadlog/leadlog/eventstore"
)

// followers has the follower of the process, while there is a subscription that has caught up.
type followers struct {
	mu      sync.Mutex
	current *follower
}

func (f *followers) running() *follower {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.current
}

// follower reads the end of the log once for all subscriptions of the process, and buffers it for those that are a little behind.
type follower struct {
	stop  context.CancelFunc
	users int // guarded by the mutex of followers

	mu      sync.Mutex
	floor   eventstore.Position // the buffer has everything behind it
	appends [][]*record         // the valid ones
	bytes   int                 // that they take
	read    eventstore.Position // up to here, and never beyond the head; 0 until something is read
	changed chan struct{}       // closed at the next change
	err     error               // why it ended
}

// followerBytes bounds a follower's buffer.
const followerBytes = 16 << 20

// attend passes on to a subscription, which has read the log up to a position, what the follower reads from there on. It returns nil
// when the subscription is further behind than the buffer goes, and must read by itself.
func (s *Store) attend(ctx context.Context, sub *subscription, at eventstore.Position) error {
	f := s.joinFollower(at)
	defer s.leaveFollower(f)
	for {
		appends, read, changed, err := f.behind(at)
		if err != nil || changed == nil {
			return err
		}
		for _, records := range appends {
			if err := sub.events(records); err != nil {
				return err
			}
			at = commitOf(records).Position
		}
		if err := sub.progress(read); err != nil {
			return err
		}
		at = max(at, read)
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// joinFollower counts a subscription in. The first one starts the follower where it has come to itself.
func (s *Store) joinFollower(at eventstore.Position) *follower {
	s.followers.mu.Lock()
	defer s.followers.mu.Unlock()
	if f := s.followers.current; f != nil {
		f.users++
		return f
	}
	ctx, stop := context.WithCancel(s.closing)
	f := &follower{stop: stop, users: 1, floor: at, changed: make(chan struct{})}
	s.followers.current = f
	go func() {
		f.end(s.newReader(at, f, false).run(ctx))
		s.followers.mu.Lock()
		defer s.followers.mu.Unlock()
		if s.followers.current == f {
			s.followers.current = nil
		}
	}()
	return f
}

// leaveFollower counts a subscription out. The last one stops the follower.
func (s *Store) leaveFollower(f *follower) {
	s.followers.mu.Lock()
	defer s.followers.mu.Unlock()
	if f.users--; f.users > 0 {
		return
	}
	f.stop()
	if s.followers.current == f {
		s.followers.current = nil
	}
}

// behind returns what was read behind a position, up to where, and a channel that is closed when there is more. The channel is nil
// if the buffer does not go back to the position.
func (f *follower) behind(at eventstore.Position) (appends [][]*record, read eventstore.Position, changed <-chan struct{}, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil || at < f.floor {
		return nil, 0, nil, f.err
	}
	i, _ := slices.BinarySearchFunc(f.appends, at, func(records []*record, at eventstore.Position) int {
		if commitOf(records).Position <= at {
			return -1
		}
		return 1
	})
	return slices.Clone(f.appends[i:]), f.read, f.changed, nil
}

// events buffers an append.
func (f *follower) events(records []*record) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.appends, f.bytes, f.read = append(f.appends, records), f.bytes+bytesOf(records), commitOf(records).Position
	for f.bytes > followerBytes {
		f.floor, f.bytes = commitOf(f.appends[0]).Position, f.bytes-bytesOf(f.appends[0])
		f.appends[0] = nil // append copies the rest in time
		f.appends = f.appends[1:]
	}
	f.change()
	return nil
}

// progress notes how far the log was read.
func (f *follower) progress(to eventstore.Position) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.read = max(f.read, to)
	f.change()
	return nil
}

func (f *follower) end(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
	f.change()
}

// change wakes the subscriptions. The caller holds the mutex.
func (f *follower) change() {
	close(f.changed)
	f.changed = make(chan struct{})
}

func commitOf(records []*record) *record { return records[len(records)-1] }
