package postgres

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/leadlog/leadlog/eventstore"
)

// A subscription reads so many positions at a time, first few, because their size is not known.
const (
	firstRange = 200
	rangePage  = 1000
)

// Subscribe implements eventstore.Store. When the database cannot be reached, it ends with ErrUnavailable, and the
// consumer subscribes again from its checkpoint.
func (s *Store) Subscribe(
	ctx context.Context, after eventstore.Position, filter eventstore.Filter,
) iter.Seq2[eventstore.Page, error] {
	return func(yield func(eventstore.Page, error) bool) {
		s.startListening()
		sub := subscription{store: s, after: after, filter: filter, span: firstRange}
		if err := sub.run(ctx, yield); err != nil {
			if ended := ctx.Err(); ended != nil {
				err = ended
			}
			yield(eventstore.Page{}, err)
		}
	}
}

// startListening starts the listening connection at the first subscription.
func (s *Store) startListening() {
	s.starting.Lock()
	defer s.starting.Unlock()
	if s.closing.Err() == nil {
		s.waker.once.Do(func() { s.running.Go(func() { s.waker.listen(s.closing, &s.notifier.backend) }) })
	}
}

// subscription follows the log. Positions have no gaps and are committed in order, so a range up to a head that was
// returned is complete and never changes.
type subscription struct {
	store     *Store
	filter    eventstore.Filter
	after     eventstore.Position // position up to which events were yielded
	span      int                 // positions to read at a time
	share     float64             // of the positions of the latest page, the share whose events matched
	requested eventstore.Position // position up to which pages are requested
	ahead     []chan fetched      // pages that are being read while the one before is consumed
}

// pagesAhead is how many pages are read concurrently, each on its own connection, to use a second processor.
const pagesAhead = 2

// fetched is a page of all matching events up to a position.
type fetched struct {
	page
	end eventstore.Position
	err error
}

// run returns nil when the consumer stops. The end of this process's appends is known; the head is read when another
// process has appended, and at each poll.
func (s *subscription) run(ctx context.Context, yield func(eventstore.Page, error) bool) error {
	ctx, cancel := context.WithCancel(ctx) // also cancels the pages that are being read
	defer cancel()
	var seenOthers uint64 // wakes for others at the last read of the head
	var next time.Time
	for {
		woken, head, others := s.store.waker.next() // read first, so that no wake is lost
		if others != seenOthers || !time.Now().Before(next) {
			var err error
			if head, err = s.store.Head(ctx); err != nil {
				return err
			}
			seenOthers, next = others, time.Now().Add(s.store.poll)
		}
		for s.after < head {
			if more, err := s.advance(ctx, head, yield); err != nil || !more {
				return err
			}
		}
		if err := s.store.wait(ctx, woken, next); err != nil {
			return err
		}
	}
}

// advance yields one page, while the next ones are being read.
func (s *subscription) advance(
	ctx context.Context, head eventstore.Position, yield func(eventstore.Page, error) bool,
) (more bool, err error) {
	s.fetch(ctx, head)
	f := <-s.ahead[0]
	s.ahead = s.ahead[1:]
	if f.err != nil {
		return false, f.err
	}
	s.span = f.next(s.span, int(f.end-s.after), rangePage)
	s.passed(f.end, len(f.events))
	if f.cut { // the pages ahead start after the events that were cut
		s.requested, s.ahead = f.end, nil
	}
	s.fetch(ctx, head)
	return yield(eventstore.Page{Events: f.events, Position: f.end}, nil), nil
}

// fetch starts to read further pages.
func (s *subscription) fetch(ctx context.Context, head eventstore.Position) {
	s.requested = max(s.requested, s.after)
	for len(s.ahead) < pagesAhead && s.requested < head {
		end := min(s.requested+eventstore.Position(s.span), head)
		query, arguments := s.query(s.requested, end)
		page, capacity := make(chan fetched, 1), s.capacity(s.requested, end)
		s.ahead, s.requested = append(s.ahead, page), end
		go func() {
			p, err := s.store.page(ctx, capacity, query, arguments...)
			if p.cut {
				end = p.events[len(p.events)-1].Position
			}
			page <- fetched{p, end, err}
		}()
	}
}

// passed records the end of a page and its number of events.
func (s *subscription) passed(end eventstore.Position, events int) {
	s.after, s.share = end, float64(events)/float64(end-s.after)
}

// capacity estimates the number of events in a page from the latest page.
func (s *subscription) capacity(after, end eventstore.Position) int {
	return int(float64(end-after)*s.share*9/8) + 1
}

// query returns the query for the matching events between two positions.
func (s *subscription) query(after, end eventstore.Position) (string, []any) {
	query, arguments := matching(s.filter, after, end)
	return query + ` ORDER BY position`, arguments
}

// matching is query without an order.
func matching(filter eventstore.Filter, after, end eventstore.Position) (string, []any) {
	query := selectEvents + `WHERE position > $1 AND position <= $2`
	arguments := []any{int64(after), int64(end)}
	if len(filter.Types) > 0 {
		arguments = append(arguments, filter.Types)
		query += fmt.Sprintf(` AND type = ANY ($%d)`, len(arguments))
	}
	var begins []string
	for _, prefix := range filter.StreamPrefixes {
		if past, ok := upperBound(prefix); ok {
			arguments = append(arguments, prefix, past)
			begins = append(begins, fmt.Sprintf(`stream >= $%d AND stream < $%d`, len(arguments)-1, len(arguments)))
		} else {
			arguments = append(arguments, prefix)
			begins = append(begins, fmt.Sprintf(`stream ^@ $%d`, len(arguments)))
		}
	}
	if len(begins) > 0 {
		query += ` AND (` + strings.Join(begins, ` OR `) + `) IS TRUE`
	}
	return query, arguments
}

// upperBound returns the exclusive upper bound of the texts that start with a prefix, in the byte order of collation
// "C". Comparing with two bounds takes PostgreSQL a quarter of the time of ^@, which counts characters. (IS TRUE
// prevents the use of the index on streams, so that a range of positions is scanned.)
func upperBound(prefix string) (past string, ok bool) {
	last := len(prefix) - 1
	if last < 0 || prefix[last] >= 0x7f { // the next byte is not valid text
		return "", false
	}
	return prefix[:last] + string(rune(prefix[last]+1)), true
}

// appended wakes this process's subscriptions after a batch, up to its last event, and notifies other processes. The
// zero mark means that it is unknown what was appended.
func (s *Store) appended(last mark) {
	s.newest.see(last.position, last.id)
	s.waker.wake(last.position)
	s.notifier.notify()
}

// wait returns when there may be new events, or when a poll is due.
func (s *Store) wait(ctx context.Context, woken <-chan struct{}, next time.Time) error {
	poll := time.NewTimer(time.Until(next))
	defer poll.Stop()
	select {
	case <-woken:
		return nil
	case <-poll.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closing.Done():
		return unavailable(ctx, errClosed)
	}
}
