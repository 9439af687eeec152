package esdb

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	client "github.com/EventStore/EventStore-Client-Go/v4/esdb"

	"github.com/leadlog/leadlog/eventstore"
)

// Subscribe implements eventstore.Store. It resumes after a lost connection, and ends with ErrUnavailable after the
// timeout.
func (s *Store) Subscribe(
	ctx context.Context, after eventstore.Position, filter eventstore.Filter,
) iter.Seq2[eventstore.Page, error] {
	return func(yield func(eventstore.Page, error) bool) {
		within, cancel := s.within(ctx)
		defer cancel()
		r := s.reader(after, filter, yield)
		r.observed = s.observed
		if err := r.run(within); !errors.Is(err, errStopped) {
			if ended := ctx.Err(); ended != nil {
				err = ended
			}
			yield(eventstore.Page{}, err)
		}
	}
}

// Bounds of a page. An append is never split.
const (
	pageEvents = 2000
	pageBytes  = 1 << 20
)

// errStopped means that the consumer stopped.
var errStopped = errors.New("the consumer stopped")

const (
	// searchWindow is how many events the server filters before it sends a checkpoint.
	searchWindow = 500

	// lookPage is how many events of $all a reader reads in one call.
	lookPage = 1000
	// firstLook is how many it reads first if it looks for what is before a position.
	firstLook = 2

	// endsBytes bounds a reader's cache of the ends of streams.
	endsBytes = 8 << 20
)

// reader subscribes to $all and yields the events of each valid append, with the append's commit record. It receives
// all records of the log, because the validity of an append depends on others.
//
// It relies on the server's order of events, but not on its checkpoints. Servers have sent checkpoints at the end of
// the log at which the next event was stored later (KurrentDB, pull requests 4023 and 4990). While no event matches,
// they send a checkpoint only every few hundred events. So a checkpoint counts once a message other than the event at
// its position follows it. A reader also reads $all itself when it receives nothing for a while, when it has caught up,
// and before the first event after that.
type reader struct {
	store  *Store
	filter eventstore.Filter
	yield  func(eventstore.Page, error) bool
	at     eventstore.Position   // position up to which events were yielded
	page   []eventstore.Recorded // to be yielded
	bytes  int                   // of payload, in the page

	observed *observed                           // nil for a reader that is not a subscription
	caughtUp bool                                // it has reached the end of the log; before that, pages are filled
	batch    []*record                           // of an append whose commit record was not received yet
	ends     *cache[string, eventstore.Expected] // of streams, as of read
	// position up to which records are in the page, in the batch or yielded
	read     eventstore.Position
	head     eventstore.Position // position that is known to have an event of this log
	seen     eventstore.Position // value of read at the last call of Head
	unproven eventstore.Position // a checkpoint that does not count yet; 0: none
	join     bool                // the server has caught up, and has sent no event since
}

func (s *Store) reader(
	after eventstore.Position, filter eventstore.Filter, yield func(eventstore.Page, error) bool,
) *reader {
	return &reader{
		store: s, filter: filter, yield: yield, at: after, read: after,
		ends: newCache(endsBytes, func(stream string, _ eventstore.Expected) int { return len(stream) }),
	}
}

// run reads until an error.
func (r *reader) run(ctx context.Context) error {
	defer r.store.observed.leave(r)
	for retry := r.store.retrying(); ; {
		before := r.read
		err := r.follow(ctx)
		if errors.Is(err, errStopped) {
			return err
		}
		if r.read > before {
			retry.reset()
		}
		if err := retry.pause(ctx, err); err != nil {
			return err
		}
	}
}

// follow subscribes from the reader's position, until an error.
func (r *reader) follow(ctx context.Context) error {
	f, err := r.open(ctx)
	if err != nil {
		return err
	}
	defer f.stop()
	r.unproven, r.join, r.caughtUp = 0, false, false
	quiet := time.NewTimer(r.store.poll)
	defer quiet.Stop()
	for {
		select {
		case m := <-f.messages:
			if err := r.handle(ctx, m); err != nil {
				return err
			}
			continue
		default:
		}
		if r.caughtUp { // otherwise more messages follow, and pages would be short
			if err := r.mark(); err != nil {
				return err
			}
		}
		quiet.Reset(r.store.poll)
		select {
		case m := <-f.messages:
			err = r.handle(ctx, m)
		case <-quiet.C:
			r.caughtUp = true // servers before 23.10 do not send CaughtUp
			err = r.look(ctx, 0)
		case <-f.silent:
			err = errLost
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if err != nil {
			return err
		}
	}
}

func (r *reader) open(ctx context.Context) (*flow, error) {
	ctx, stop, opened := r.store.opening(ctx)
	if r.store.leader {
		ctx = onLeader(ctx)
	}
	options := client.SubscribeToAllOptions{
		From: r.from(), Filter: r.store.serverFilter(), MaxSearchWindow: searchWindow, CheckpointInterval: 1,
	}
	server, v, err := hold(ctx, r.store.conn, closeSubscription, func(
		ctx context.Context, c *link,
	) (*client.Subscription, error) {
		return c.SubscribeToAll(ctx, options)
	})
	opened()
	if err != nil {
		stop()
		return nil, ofAll(err)
	}
	return start(ctx, stop, v, func() message { return r.receive(server) }, func() { closeSubscription(server) }), nil
}

func closeSubscription(server *client.Subscription) {
	_ = server.Close() // always nil
}

// serverFilter selects every record of this log.
func (s *Store) serverFilter() *client.SubscriptionFilter {
	if s.namespace != "" {
		return &client.SubscriptionFilter{Type: client.StreamFilterType, Prefixes: []string{s.namespace}}
	}
	return client.ExcludeSystemEventsFilter()
}

// from returns the position to resume at. It is never nil, which would mean the end.
func (r *reader) from() client.AllPosition {
	if r.read == 0 {
		return client.Start{}
	}
	return at(r.read)
}

func at(position eventstore.Position) client.Position {
	return client.Position{Commit: uint64(position), Prepare: uint64(position)}
}

func (r *reader) receive(server *client.Subscription) message {
	switch e := server.Recv(); {
	case e.EventAppeared != nil:
		return r.store.received(e.EventAppeared, r.store.isOfLog)
	case e.CheckPointReached != nil:
		return message{position: eventstore.Position(e.CheckPointReached.Commit), checkpoint: true}
	case e.CaughtUp != nil:
		return message{caughtUp: true}
	case e.SubscriptionDropped != nil:
		return message{err: fmt.Errorf("subscription dropped: %w", e.SubscriptionDropped.Error)}
	}
	return message{} // the server fell behind; it sends CaughtUp later
}

// handle handles a message of the server.
func (r *reader) handle(ctx context.Context, m message) error {
	switch {
	case m.err != nil:
		return ofAll(m.err)
	case m.caughtUp:
		r.unproven, r.join, r.caughtUp = 0, true, true
		return r.look(ctx, 0)
	case m.checkpoint:
		proven := r.unproven
		if r.unproven = m.position; proven > r.read && proven < m.position {
			r.read = proven
		}
		return nil
	case m.position == 0:
		return nil
	}
	r.unproven = 0
	if r.join {
		r.join = false
		if err := r.look(ctx, m.position); err != nil {
			return err
		}
	}
	return r.record(ctx, m)
}

// record handles a record, unless it was read before.
func (r *reader) record(ctx context.Context, m message) error {
	if m.position <= r.read {
		return nil
	}
	if m.record != nil && !m.record.provisional() {
		batch := append(r.batch, m.record)
		if m.record.more == 0 {
			if err := r.complete(ctx, batch); err != nil {
				return err // the retry resumes before this record
			}
			batch = nil
		}
		r.batch = batch
	}
	r.read = m.position
	if r.read-r.at > reportAfter {
		return r.report(ctx)
	}
	return nil
}

// complete adds the selected events of an append to the page if it is valid.
func (r *reader) complete(ctx context.Context, appended []*record) error {
	commit := commitOf(appended)
	for _, c := range commit.checks {
		end, known := r.ends.get(c.Stream)
		if !known {
			satisfied, err := r.store.satisfied(ctx, c, commit.Position)
			if err != nil {
				return err
			}
			if !satisfied {
				r.note(nil, commit.Position)
				return nil
			}
			end = c.Expect
			r.ends.add(c.Stream, end)
		}
		if end != c.Expect {
			r.note(nil, commit.Position)
			return nil
		}
	}
	for _, e := range appended {
		r.ends.add(e.Stream, eventstore.At(e.Revision))
	}
	r.note(appended, commit.Position)
	r.head = commit.Position
	for _, e := range appended {
		if e.Position > r.at && r.filter.Matches(e.Stream, e.Type) {
			r.page = append(r.page, e.Recorded)
			r.bytes += len(e.Data)
		}
	}
	if len(r.page) < pageEvents && r.bytes < pageBytes {
		return nil
	}
	return r.progress(commit.Position)
}

// note tells appends of the events of a valid append, or of none, up to a position.
func (r *reader) note(events []*record, to eventstore.Position) {
	if r.observed != nil {
		r.observed.note(r, events, to)
	}
}

// progress yields the page, with the position up to which the log was read.
func (r *reader) progress(to eventstore.Position) error {
	page := eventstore.Page{Events: r.page, Position: to}
	r.at, r.page, r.bytes = to, nil, 0
	if !r.yield(page, nil) {
		return errStopped
	}
	return nil
}

// reportAfter is how far, in bytes of log, a reader reads without a progress mark.
const reportAfter = 1 << 20

// report marks progress, up to the head. System events after the head do not count: consumers would attribute a mark
// beyond the head to another log.
func (r *reader) report(ctx context.Context) error {
	if len(r.batch) == 0 && r.read > max(r.head, r.seen) {
		head, err := r.store.Head(ctx)
		if err != nil {
			return err
		}
		r.head, r.seen = head, r.read
	}
	return r.mark()
}

// mark yields progress, if there was any, up to the known head.
func (r *reader) mark() error {
	progress := min(r.read, r.head)
	if len(r.batch) > 0 || progress <= r.at {
		return nil
	}
	return r.progress(progress)
}

// look reads $all from the reader's position: one page or, if a position is given, until it is reached. That position
// is mostly the next, and the subscription sends what follows it, so the first pages are small.
func (r *reader) look(ctx context.Context, until eventstore.Position) error {
	count := uint64(lookPage)
	if until > 0 {
		count = firstLook
	}
	for ; ; count = min(4*count, lookPage) {
		n, err := r.pollOnce(ctx, count)
		if err != nil {
			return err
		}
		if n < count || r.read >= until {
			return r.report(ctx)
		}
	}
}

// pollOnce reads a page of up to count events, and returns their number. The first is the one at the reader's position.
func (r *reader) pollOnce(ctx context.Context, count uint64) (n uint64, err error) {
	f, err := r.store.readFlow(ctx, func(ctx context.Context, c *link) (*client.ReadStream, error) {
		if r.store.leader {
			ctx = onLeader(ctx)
		}
		return c.ReadAll(ctx, client.ReadAllOptions{Direction: client.Forwards, From: r.from()}, count)
	}, r.store.isOfLog)
	if err != nil {
		return 0, err
	}
	defer f.stop()
	for {
		m := f.next(ctx)
		if finished(m.err) {
			return n, nil
		}
		if m.err != nil {
			return n, ofAll(m.err)
		}
		n++
		if err := r.record(ctx, m); err != nil {
			return n, err
		}
	}
}

func commitOf(records []*record) *record { return records[len(records)-1] }
