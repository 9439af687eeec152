package esdb

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	client "github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/oklog/ulid/v2"
	"golang.org/x/sync/errgroup"

	"github.com/leadlog/leadlog/eventstore"
)

// Append implements eventstore.Store, as eventstore.Queue does.
func (s *Store) Append(ctx context.Context, writes ...eventstore.Write) (eventstore.Position, error) {
	if err := validateNames(writes); err != nil {
		return 0, err
	}
	return s.queue.Append(ctx, writes...)
}

// appendGroup is an eventstore.AppendGroup. The first connection decides in which form the appends are stored.
func (s *Store) appendGroup(ctx context.Context, group []eventstore.Append) []eventstore.Result {
	ctx, cancel := s.within(ctx)
	defer cancel()
	if s.server.Load() == nil {
		_ = once(ctx, s.timeout, s.connect) // its error is that of the appends
	}
	if s.Server().AppendRecords {
		return s.appendTogether(ctx, group)
	}
	results := make([]eventstore.Result, len(group))
	_ = concurrently(len(group), func(i int) error {
		position, err := s.appending(group[i].Writes).append(ctx)
		results[i] = eventstore.Result{Position: position, Err: outcome(ctx, err)}
		return nil
	})
	return results
}

// connect connects to the server if it is not connected.
func (s *Store) connect(ctx context.Context) error {
	_, err := ask(ctx, s.conn, func(context.Context, *link) (struct{}, error) { return struct{}{}, nil })
	return err
}

func (s *Store) appending(writes []eventstore.Write) *appending {
	a := &appending{Store: s, given: writes, id: ulid.Make().String()}
	for _, w := range writes {
		switch {
		case len(w.Events) > 0:
			a.writes = append(a.writes, target{Write: w})
		case w.Expect != eventstore.Any:
			a.checks = append(a.checks, check{Stream: w.Stream, Expect: w.Expect})
		}
	}
	a.home = a.chooseHome()
	return a
}

// append makes one append by locks; the package comment describes the protocol. After a lost connection a record is
// sent again, and the server detects by its id that it is stored. Attempts that conflict with appends of other
// processes are repeated until the timeout.
func (a *appending) append(ctx context.Context) (eventstore.Position, error) {
	a.whole = false
	for retry := a.retrying(); ; a.failed++ {
		position, err := a.attempt(ctx)
		if !errors.Is(err, errMoved) || time.Now().After(retry.until) {
			return position, err
		}
		// an attempt detects an ended ctx
		_ = eventstore.Sleep(ctx, rand.N(min(time.Duration(a.failed+1)*time.Millisecond, 20*time.Millisecond)))
	}
}

// appending is an append in progress.
type appending struct {
	*Store
	given  []eventstore.Write
	writes []target
	home   int // index of the write on whose stream the events are stored
	checks []check
	id     string // increases with time
	failed int    // attempts that failed
	whole  bool   // it is stored by AppendRecords, whose checks need the exact end of a stream
}

// target is a write with the tail of its stream.
type target struct {
	eventstore.Write
	tail   tail
	stored bool // it expects nothing, and its events are already stored
}

var (
	// errMoved means that a stream was changed during the attempt, and the append must be retried.
	errMoved = errors.New("the stream moved meanwhile")

	// errRefused means that a stream is not as expected.
	errRefused = errors.New("a stream is not as expected")
)

// maxConcurrent is the maximum number of concurrent calls of one append.
const maxConcurrent = 32

// concurrently calls a function with 0 to n-1, at most maxConcurrent at a time.
func concurrently(n int, do func(i int) error) error {
	if n == 1 {
		return do(0)
	}
	var running errgroup.Group
	running.SetLimit(maxConcurrent)
	for i := range n {
		running.Go(func() error { return do(i) })
	}
	return running.Wait()
}

// attempt makes one transaction of the append.
func (a *appending) attempt(ctx context.Context) (eventstore.Position, error) {
	position, err := a.transact(ctx)
	if errors.Is(err, errRefused) {
		return a.refused(ctx)
	}
	return position, err
}

// chooseHome returns the index of the last write that expects a state, or of the last write. Streams that are appended
// to without an expectation have more concurrent writers.
func (a *appending) chooseHome() int {
	for i, w := range slices.Backward(a.writes) {
		if w.Expect != eventstore.Any {
			return i
		}
	}
	return len(a.writes) - 1
}

func (a *appending) transact(ctx context.Context) (eventstore.Position, error) {
	if err := a.findTails(ctx); err != nil {
		return 0, err
	}
	if len(a.writes) == 0 {
		var head eventstore.Position
		err := a.retryTransient(ctx, func(ctx context.Context) (err error) {
			head, err = a.Head(ctx)
			return err
		})
		if err != nil {
			return 0, err
		}
		return head, a.confirm(ctx, head+1)
	}
	if position, stored, err := a.storedBefore(ctx); stored || err != nil {
		return position, err
	}
	home := a.writes[a.home]
	transaction := ""
	if len(a.writes) > 1 {
		transaction = fmt.Sprintf("%s.%d", a.id, a.failed)
	}
	proposed, err := encodeEvents(transaction, home.Stream, a.writes, a.checks)
	if err != nil {
		return 0, err
	}
	if err := a.lockAll(ctx, transaction, len(proposed)); err != nil {
		return 0, err
	}
	position, err := a.store(ctx, home, proposed)
	if err != nil {
		return 0, err
	}
	if err := a.confirm(ctx, position); err != nil {
		a.tails.remove(home.Stream)
		return 0, err
	}
	if len(a.checks) > 0 {
		a.verdicts.add(position, true)
	}
	a.rememberTails(len(proposed))
	return position, nil
}

// findTails finds the tails of the written and the checked streams: in the cache, or by reading them at once. The error
// is errRefused if one is not as expected.
func (a *appending) findTails(ctx context.Context) error {
	var reads []func() error
	for i := range a.writes {
		w := &a.writes[i]
		known, ok := a.cachedTail(w.Stream, w.Expect)
		if w.tail = known; !ok {
			reads = append(reads, func() error { return a.findEnd(ctx, w, "") })
		}
	}
	for i := range a.checks {
		c := &a.checks[i]
		known, ok := a.cachedTail(c.Stream, c.Expect)
		if c.Number = known.number; !ok {
			reads = append(reads, func() error { return a.readChecked(ctx, c) })
		}
	}
	return concurrently(len(reads), func(i int) error { return reads[i]() })
}

// readChecked reads the tail of a checked stream.
func (a *appending) readChecked(ctx context.Context, c *check) error {
	return a.retryTransient(ctx, func(ctx context.Context) error {
		for {
			t, err := a.readTail(ctx, c.Stream)
			if c.Number = t.decided(); err == nil && t.end != c.Expect {
				err = errRefused
			}
			if err != nil || !a.whole || t.pending == nil {
				return err
			}
			if err := a.awaitDecision(ctx, t.pending, "", a.failed); err != nil {
				return err
			}
		}
	})
}

// cachedTail returns a stream's cached tail, if it is at the revision that an append expects. A stream that is expected
// to be new is presumed to be. If the cache is outdated, the append conflicts, and the retry reads the tail. A stream
// of which nothing is expected is always read: it may have the events already.
func (a *appending) cachedTail(stream string, expect eventstore.Expected) (tail, bool) {
	if a.failed > 0 || expect == eventstore.Any {
		return tail{}, false
	}
	known, ok := a.tails.get(stream)
	if !ok && expect == eventstore.NoStream {
		return emptyTail, true
	}
	return known, ok && known.end == expect
}

// findEnd reads the tail of a written stream, and waits until no transaction is pending on it. The holder is the
// append's own transaction if it has appended locks, otherwise empty.
func (a *appending) findEnd(ctx context.Context, w *target, holder string) error {
	return a.retryTransient(ctx, func(ctx context.Context) (err error) {
		for {
			if w.Expect == eventstore.Any {
				err = a.search(ctx, w)
			} else {
				w.tail, err = a.readTail(ctx, w.Stream)
			}
			switch {
			case err != nil:
				return err
			case w.Expect != eventstore.Any && w.Expect != w.tail.end:
				return errRefused
			case w.tail.pending == nil:
				return nil
			}
			if err := a.awaitDecision(ctx, w.tail.pending, holder, a.failed); err != nil {
				return err
			}
		}
	})
}

// storedBefore reports whether the same append is already on the log, if one of its writes expects nothing. Otherwise a
// conflict reveals it.
func (a *appending) storedBefore(ctx context.Context) (eventstore.Position, bool, error) {
	anything := false
	for _, w := range a.writes {
		if w.Expect == eventstore.Any {
			anything = true
			if !w.stored {
				return 0, false, nil
			}
		}
	}
	if !anything {
		return 0, false, nil
	}
	return a.allStored(ctx)
}

// lockAll locks the streams of all writes except the home, concurrently.
func (a *appending) lockAll(ctx context.Context, transaction string, size int) error {
	if len(a.writes) == 1 {
		return nil
	}
	home := a.writes[a.home]
	first := make([]int, len(a.writes)) // index of each write's first event
	for i := 1; i < len(a.writes); i++ {
		first[i] = first[i-1] + len(a.writes[i-1].Events)
	}
	var locked atomic.Bool
	err := concurrently(len(a.writes), func(i int) error {
		if i == a.home {
			return nil
		}
		l := lock{Transaction: transaction, Home: home.Stream, Slot: home.tail.number, Index: first[i], Size: size}
		err := a.appendLocks(ctx, &a.writes[i], l)
		if err == nil {
			locked.Store(true)
		}
		return err
	})
	if err != nil && locked.Load() { // abort at once, so that no other append waits for the locks
		_ = a.closeSlot(ctx, lock{
			Transaction: transaction, Home: home.Stream, Slot: home.tail.number,
		}, home.Events[0].At)
	}
	return err
}

// appendLocks appends a lock for each event of a write to its stream.
func (a *appending) appendLocks(ctx context.Context, w *target, first lock) error {
	for {
		locks := make([]client.EventData, len(w.Events))
		for i, e := range w.Events {
			l := first
			l.Index += i
			var err error
			if locks[i], err = encodeProvisional(lockType, l, w.Stream, e.At,
				eventstore.Revision(w.tail.end)+1+eventstore.Revision(i)); err != nil {
				return err
			}
		}
		err := a.retryTransient(ctx, func(ctx context.Context) error {
			_, err := a.send(ctx, w.Stream, w.tail.number, locks)
			return err
		})
		a.tails.remove(w.Stream)
		switch {
		case !wrongExpected(err):
			return err
		case w.Expect == eventstore.Any: // the same append may have been stored in the meantime
			return errMoved
		}
		if err := a.findEnd(ctx, w, first.Transaction); err != nil {
			return err
		}
	}
}

// store appends all events to the home, at the slot of the transaction, and returns the position of the last.
func (a *appending) store(
	ctx context.Context, home target, proposed []client.EventData,
) (position eventstore.Position, err error) {
	err = a.retryTransient(ctx, func(ctx context.Context) error {
		result, err := a.send(ctx, home.Stream, home.tail.number, proposed)
		if err != nil {
			return err
		}
		if position = eventstore.Position(result.CommitPosition); position != 0 {
			return nil
		}
		// The library returns an unknown result as a success at position 0.
		last := home.tail.number + eventstore.Expected(len(proposed))
		stored, err := a.page(ctx, home.Stream, client.Forwards, client.Revision(uint64(last)), 1)
		if err != nil {
			return err
		}
		if len(stored) == 0 || [16]byte(stored[0].ID) != [16]byte(proposed[len(proposed)-1].EventID) {
			return errMoved
		}
		position = stored[0].Position
		return nil
	})
	if wrongExpected(err) {
		for _, w := range a.writes {
			a.tails.remove(w.Stream)
		}
		return 0, errMoved
	}
	if err != nil {
		return 0, tooLarge(err)
	}
	a.noteSeen(position)
	return position, nil
}

// confirm validates the checks as of a position. The error is errRefused if one fails.
func (a *appending) confirm(ctx context.Context, at eventstore.Position) error {
	for _, c := range a.checks {
		if a.observed.watches(c.Stream) {
			a.observed.wait(ctx, at)
			break
		}
	}
	return concurrently(len(a.checks), func(i int) error {
		return a.retryTransient(ctx, func(ctx context.Context) error {
			satisfied, err := a.satisfied(ctx, a.checks[i], at)
			if err == nil && !satisfied {
				a.tails.remove(a.checks[i].Stream)
				return errRefused
			}
			return err
		})
	})
}

// rememberTails caches the new tails of the written streams.
func (a *appending) rememberTails(size int) {
	for i, w := range a.writes {
		n := eventstore.Expected(len(w.Events))
		t := tail{number: w.tail.number + n, end: w.tail.end + n}
		if i == a.home {
			t.number = w.tail.number + eventstore.Expected(size)
		}
		a.tails.add(w.Stream, t)
	}
}

// refused returns the reason of errRefused: the same append is already on the log, or a stream is not as expected. If
// neither is true any more, it returns errMoved.
func (a *appending) refused(ctx context.Context) (eventstore.Position, error) {
	ends := make([]eventstore.Expected, len(a.given))
	err := concurrently(len(a.given), func(i int) error {
		return a.retryTransient(ctx, func(ctx context.Context) error {
			t, err := a.readTail(ctx, a.given[i].Stream)
			ends[i] = t.end
			return err
		})
	})
	if err != nil {
		return 0, err
	}
	// Read after the ends, since another caller may send the same append.
	if position, stored, err := a.allStored(ctx); stored || err != nil {
		return position, err
	}
	for i, w := range a.given {
		if w.Expect != eventstore.Any && w.Expect != ends[i] {
			return 0, &eventstore.ConflictError{Stream: w.Stream, Expected: w.Expect, Actual: ends[i]}
		}
	}
	return 0, errMoved
}

// allStored reports whether the events of every write are on the log, and returns the position of the last one.
func (a *appending) allStored(ctx context.Context) (position eventstore.Position, stored bool, err error) {
	for _, w := range a.writes {
		err := a.retryTransient(ctx, func(ctx context.Context) (err error) {
			position, stored, err = a.isStored(ctx, w.Write)
			return err
		})
		if err != nil || !stored {
			return 0, false, err
		}
	}
	return position, stored, nil
}

// isStored reports whether the events of a write are on its stream, and returns the position of the last one.
func (s *Store) isStored(ctx context.Context, w eventstore.Write) (eventstore.Position, bool, error) {
	if w.Expect == eventstore.Any {
		_, position, stored, err := s.find(ctx, w)
		return position, stored, err
	}
	var stored []*record
	_, err := s.readOn(ctx, w.Stream, eventstore.Revision(w.Expect+1), func(r *record) bool {
		if len(stored) < len(w.Events) {
			stored = append(stored, r)
		}
		return true // the read ends by itself
	})
	same := slices.EqualFunc(stored, w.Events, func(r *record, e eventstore.Event) bool { return r.ID == e.ID })
	if err != nil || !same {
		return 0, false, err
	}
	return stored[len(stored)-1].Position, true, nil
}

const (
	// skew is the maximum clock difference between processes: an event created this much earlier cannot follow.
	skew = 10 * time.Minute

	// searchLimit is the maximum number of events that are searched for an append that expects nothing.
	searchLimit = 10_000

	// searchPage is how many of them are read first, and the interval at which their times are compared.
	searchPage = 64
)

// search searches a stream for the events of a write that expects nothing, and finds the stream's tail.
func (a *appending) search(ctx context.Context, w *target) (err error) {
	w.tail, _, w.stored, err = a.find(ctx, w.Write)
	return err
}

// find searches a stream backwards for the events of a write that expects nothing. The time of the first id bounds the
// search: events that were created well before it cannot follow.
func (s *Store) find(
	ctx context.Context, w eventstore.Write,
) (end tail, position eventstore.Position, found bool, err error) {
	made := ulid.Time(w.Events[0].ID.Time()).Add(-skew)
	var later []*record // from the newest backwards
	end, err = s.backwards(ctx, w.Stream, searchPage, func(e *record) bool {
		later = append(later, e)
		if e.ID == w.Events[0].ID {
			position, found = startOf(later, w.Events)
			return false
		}
		return len(later) < searchLimit && !(len(later)%searchPage == 0 && ulid.Time(e.ID.Time()).Before(made))
	})
	return end, position, found, err
}

// startOf compares the events of a write with the records read backwards to the first of them, and returns the position
// of the last one.
func startOf(backwards []*record, events []eventstore.Event) (eventstore.Position, bool) {
	first := len(backwards) - 1
	if first+1 < len(events) {
		return 0, false
	}
	for i, e := range events {
		if backwards[first-i].ID != e.ID {
			return 0, false
		}
	}
	return backwards[first-len(events)+1].Position, true
}

// send makes one append call. The call is not cancelled with the caller's context, but ends at its own deadline: if it
// is cancelled while sending, the library reads memory that gRPC is still writing.
func (s *Store) send(
	ctx context.Context, stream string, after eventstore.Expected, proposed []client.EventData,
) (*client.WriteResult, error) {
	if s.beforeCall != nil {
		if err := s.beforeCall(
			fmt.Sprintf("append %s to %s after %d", proposed[0].EventType, stream, after),
		); err != nil {
			return nil, err
		}
	}
	begun := time.Now()
	result, err := ask(ctx, s.conn, func(ctx context.Context, c *link) (*client.WriteResult, error) {
		limit := s.timeout / 2
		var expected client.ExpectedRevision = client.NoStream{}
		if after >= 0 {
			expected = client.Revision(uint64(after))
		}
		return c.AppendToStream(onLeader(context.WithoutCancel(ctx)), s.name(stream),
			client.AppendToStreamOptions{ExpectedRevision: expected, Deadline: &limit}, proposed...)
	})
	if err == nil {
		s.latency.note(time.Since(begun))
	}
	return result, err
}
