package esdb

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	client "github.com/EventStore/EventStore-Client-Go/v4/esdb"

	"github.com/leadlog/leadlog/eventstore"
)

// slot is the revision of its home that a transaction must take to commit.
type slot struct {
	home        string
	after       eventstore.Expected
	transaction string
}

// decision is the outcome of a transaction. It never changes.
type decision struct {
	records []*record // the transaction's records on its home; none if it was aborted
}

func (d *decision) commit() *record { return d.records[len(d.records)-1] }

// decide looks up the outcome of a lock's transaction. It returns nil while the transaction is undecided.
func (s *Store) decide(ctx context.Context, l *lock) (*decision, error) {
	key := slot{l.Home, l.Slot, l.Transaction}
	if known, ok := s.decisions.get(key); ok {
		return known, nil
	}
	found, err := s.page(ctx, l.Home, client.Forwards, client.Revision(uint64(l.Slot+1)), uint64(l.Size))
	if err != nil || len(found) == 0 {
		return nil, err
	}
	d := &decision{}
	if found[0].transaction == l.Transaction && !found[0].provisional() {
		if len(found) != l.Size {
			return nil, fmt.Errorf("%w: %d of %d records of a transaction on stream %s", errMoved,
				len(found), l.Size, l.Home)
		}
		d.records = found
	}
	s.decisions.add(key, d)
	return d, nil
}

// resolver converts the records of one stream, in order, into the events of committed appends.
type resolver struct {
	*Store
	stream  string
	batch   []*record // of an append whose commit record was not read yet
	pending *record   // the first lock of an undecided transaction
}

// resolve returns the stream's events that a record completes, and the commit record of their append. The caller
// validates the append.
func (v *resolver) resolve(ctx context.Context, r *record) (events []*record, commit *record, err error) {
	switch {
	case v.pending != nil && r.of(v.pending):
		// it may have been decided since, but the events of an append are yielded all or none
		return nil, nil, nil
	case v.pending != nil: // it was decided before this record was appended
		return nil, nil, fmt.Errorf("%w: stream %s", errMoved, v.stream)
	case r.whole:
		return []*record{r}, r, nil
	case r.closed:
		return nil, nil, nil
	case r.lock != nil:
		d, err := v.decide(ctx, r.lock)
		if err != nil {
			return nil, nil, err
		}
		if d == nil {
			v.pending = r
		}
		if d == nil || len(d.records) == 0 {
			return nil, nil, nil
		}
		return d.records[r.lock.Index : r.lock.Index+1], d.commit(), nil
	}
	v.batch = append(v.batch, r)
	if r.more > 0 {
		return nil, nil, nil
	}
	for _, e := range v.batch {
		if e.Stream == v.stream {
			events = append(events, e)
		}
	}
	v.batch = nil
	return events, r, nil
}

// valid reports whether all checks of an append held at the position of its commit record. It depends only on the log.
func (s *Store) valid(ctx context.Context, commit *record) (bool, error) {
	if len(commit.checks) == 0 {
		return true, nil
	}
	if verdict, known := s.verdicts.get(commit.Position); known {
		return verdict, nil
	}
	for _, c := range commit.checks {
		satisfied, err := s.satisfied(ctx, c, commit.Position)
		if err != nil {
			return false, err
		}
		if !satisfied {
			s.verdicts.add(commit.Position, false)
			return false, nil
		}
	}
	s.verdicts.add(commit.Position, true)
	return true, nil
}

// span is a range of positions at which a stream had the same end.
type span struct {
	end         eventstore.Expected
	from, until eventstore.Position
	watch       *watch // in which every later event of the stream is noted
}

func (p span) covers(at eventstore.Position) bool { return p.from <= at && at <= p.until }

// union merges two spans if they touch and agree, and otherwise returns the later one.
func (p span) union(o span) span {
	switch {
	case p.end == o.end && p.from <= o.until && o.from <= p.until:
		return span{
			end: p.end, from: min(p.from, o.from), until: max(p.until, o.until), watch: cmp.Or(o.watch, p.watch),
		}
	case o.until > p.until:
		return o
	}
	return p
}

// streamRevision is a number in a stream on the server.
type streamRevision struct {
	stream string
	number eventstore.Expected
}

// behindPage is how many records after a checked one are read at a time. Usually there is none.
const behindPage = 16

// satisfied reports whether a check held just before a position of the log: whether no valid append before the position
// has an event of the stream after the checked one. Later decisions do not matter, so no check waits for another.
func (s *Store) satisfied(ctx context.Context, c check, at eventstore.Position) (bool, error) {
	if known, ok := s.observed.span(c.Stream); ok && known.covers(at) {
		return known.end == c.Expect, nil
	}
	// A transaction that is undecided when it is read commits after every record that is on the log now.
	found := span{end: c.Expect, from: at, until: max(at, eventstore.Position(s.seen.Load())+1)}
	moved, err := s.moved(ctx, c, at, &found)
	if err != nil || moved {
		return false, err
	}
	s.observed.found(c.Stream, found)
	return true, nil
}

// moved searches for a valid event after the checked one that was committed before a position. A later one bounds the
// span.
func (s *Store) moved(ctx context.Context, c check, at eventstore.Position, found *span) (bool, error) {
	records := resolver{Store: s, stream: c.Stream}
	for next := c.Number + 1; ; next += behindPage {
		page, err := s.behind.Do(ctx, streamRevision{c.Stream, next})
		if err != nil {
			return false, err
		}
		for _, r := range page {
			if r.Position >= at { // so its append is committed at that position or later
				found.until = min(found.until, r.Position)
				return false, nil
			}
			events, commit, err := records.resolve(ctx, r)
			if err != nil {
				return false, err
			}
			if len(events) == 0 {
				continue
			}
			if commit.Position >= at {
				found.until = min(found.until, commit.Position)
				return false, nil
			}
			if ok, err := s.valid(ctx, commit); ok || err != nil {
				return ok, err
			}
		}
		if len(page) < behindPage {
			return false, nil
		}
	}
}

// readBehind reads the records after each of the starts. Duplicate starts are read once.
func (s *Store) readBehind(ctx context.Context, starts []streamRevision) ([][]*record, error) {
	pages := make([][]*record, len(starts))
	failures := make([]error, len(starts))
	first := make(map[streamRevision]int, len(starts))
	var reading sync.WaitGroup
	for i, p := range starts {
		if _, twice := first[p]; twice {
			continue
		}
		first[p] = i
		reading.Go(func() {
			pages[i], failures[i] = s.page(ctx, p.stream, client.Forwards,
				client.Revision(uint64(p.number)), behindPage)
		})
	}
	reading.Wait()
	for i, p := range starts {
		if failures[i] != nil {
			return nil, failures[i]
		}
		pages[i] = pages[first[p]]
	}
	return pages, nil
}

// noteSeen records a position that is known to be on the log, if it is the newest.
func (s *Store) noteSeen(p eventstore.Position) {
	for {
		newest := s.seen.Load()
		if uint64(p) <= newest || s.seen.CompareAndSwap(newest, uint64(p)) {
			return
		}
	}
}

// tail is the end of a stream: on the server, and in the events that callers see.
type tail struct {
	number  eventstore.Expected // of the server's last record; every lock up to it is decided if pending is nil
	end     eventstore.Expected // the revision of the last event
	pending *record             // the first lock of an undecided transaction
}

// decided returns the number up to which every lock is decided.
func (t tail) decided() eventstore.Expected {
	if t.pending != nil {
		return t.pending.number - 1
	}
	return t.number
}

// emptyTail is the tail of a stream without records.
var emptyTail = tail{number: eventstore.NoStream, end: eventstore.NoStream}

// tailPage is how many records are read first to find a stream's tail. Usually the last one is an event or its lock.
const tailPage = 4

// readTail reads a stream's tail.
func (s *Store) readTail(ctx context.Context, stream string) (tail, error) {
	return s.backwards(ctx, stream, tailPage, func(*record) bool { return false })
}

// backwards yields a stream's events from the last to the first until yield returns false, and returns the stream's
// tail.
func (s *Store) backwards(ctx context.Context, stream string, count uint64, yield func(*record) bool) (tail, error) {
	t := emptyTail
	more := true
	visit := func(e, commit *record) error {
		ok, err := s.valid(ctx, commit)
		if err != nil || !ok || e.Stream != stream {
			return err
		}
		t.end = max(t.end, eventstore.At(e.Revision))
		more = yield(e)
		return nil
	}
	var from client.StreamPosition = client.End{}
	var commit *record // of the append of the current record
	for ; ; count = min(4*count, 4096) {
		page, err := s.page(ctx, stream, client.Backwards, from, count)
		if err != nil {
			return t, err
		}
		for _, r := range page {
			t.number = max(t.number, r.number)
			switch {
			case t.pending != nil && r.of(t.pending): // as in resolver.resolve
				t.pending = r
			case r.closed:
			case r.lock != nil:
				var d *decision
				if d, err = s.decide(ctx, r.lock); err == nil && d == nil {
					t.pending = r
				} else if err == nil && len(d.records) > 0 {
					err = visit(d.records[r.lock.Index], d.commit())
				}
			default:
				if r.more == 0 || r.whole {
					commit = r
				}
				err = visit(r, commit)
			}
			if err != nil {
				return t, err
			}
			if !more {
				break
			}
		}
		if !more || len(page) < int(count) || page[len(page)-1].number == 0 {
			break
		}
		from = client.Revision(uint64(page[len(page)-1].number - 1))
	}
	if t.pending == nil {
		s.tails.add(stream, t)
	}
	return t, nil
}

// latency is a moving average of the duration of append calls.
type latency struct{ nanoseconds atomic.Int64 }

func (l *latency) note(took time.Duration) {
	old := l.nanoseconds.Load()
	l.nanoseconds.Store(old + (int64(took)-old)/8) // one of two concurrent calls may be lost
}

func (l *latency) average() time.Duration { return time.Duration(l.nanoseconds.Load()) }

const (
	graceFactor   = 16 // maximum duration of an undecided transaction, in average calls
	shortestGrace = 20 * time.Millisecond
	longestGrace  = 800 * time.Millisecond
)

// grace returns how long to wait for another append's undecided transaction before its slot is closed. It doubles with
// each failed attempt, so that two appends on a busy machine do not abort each other forever.
//
// The holder is the append's own transaction if it has appended locks, otherwise empty. Two holders may wait for each
// other, and if both waited equally long, each would abort the other. So the older holder waits an eighth: the younger
// one is aborted, and the older one commits. An append without locks delays no other and waits the whole grace, so that
// it does not abort a younger transaction that is only slow.
func (s *Store) grace(pending, holder string, failed int) time.Duration {
	grace := min(max(graceFactor*s.latency.average(), s.shortestGrace)<<min(failed, 8), longestGrace)
	if holder != "" && holder < pending {
		return grace / 8
	}
	return grace
}

// awaitDecision waits until another append's transaction is decided. After the grace it closes the transaction's slot.
func (s *Store) awaitDecision(ctx context.Context, pending *record, holder string, failed int) error {
	grace := s.grace(pending.lock.Transaction, holder, failed)
	until := time.Now().Add(grace)
	for backoff := (eventstore.Backoff{Shortest: 2 * time.Millisecond, Longest: 32 * time.Millisecond}); ; {
		d, err := s.decide(ctx, pending.lock)
		if err != nil || d != nil {
			return err
		}
		if time.Now().After(until) {
			return s.closeSlot(ctx, *pending.lock, pending.At)
		}
		if err := backoff.Wait(ctx); err != nil {
			return err
		}
	}
}

// closeSlot aborts a transaction by taking its slot. If the slot is already taken, the transaction is decided.
func (s *Store) closeSlot(ctx context.Context, l lock, at time.Time) error {
	closing, err := encodeProvisional(closedType, lock{
		Transaction: l.Transaction, Home: l.Home, Slot: l.Slot,
	}, l.Home, at, 0)
	if err != nil {
		return err
	}
	_, err = s.send(ctx, l.Home, l.Slot, []client.EventData{closing})
	s.tails.remove(l.Home)
	if wrongExpected(err) {
		return nil
	}
	return err
}
