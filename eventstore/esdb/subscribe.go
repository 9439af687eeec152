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
		r := &reader{
			store: s, filter: filter, yield: yield, at: after, read: after,
			ends: newCache(endsBytes, func(stream string, _ eventstore.Expected) int { return len(stream) }),
		}
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

	caughtUp bool                                // it has reached the end of the log; before that, pages are filled
	batch    []*record                           // of an append whose commit record was not received yet
	ends     *cache[string, eventstore.Expected] // of streams, as of read
	// position up to which records are in the page, in the batch or yielded
	read eventstore.Position
	head eventstore.Position // position that is known to have an event of this log
	seen eventstore.Position // value of read at the last call of Head
	held eventstore.Position // a checkpoint that does not count yet; 0: none
	join bool                // the server has caught up, and has sent no event since
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
	r.held, r.join, r.caughtUp = 0, false, false
	quiet := time.NewTimer(r.store.poll)
	defer quiet.Stop()
	for {
		select {
		case m := <-f.messages:
			if err := r.take(ctx, m); err != nil {
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
			err = r.take(ctx, m)
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

// take handles a message of the server.
func (r *reader) take(ctx context.Context, m message) error {
	switch {
	case m.err != nil:
		return ofAll(m.err)
	case m.caughtUp:
		r.held, r.join, r.caughtUp = 0, true, true
		return r.look(ctx, 0)
	case m.checkpoint:
		proven := r.held
		if r.held = m.position; proven > r.read && proven < m.position {
			r.read = proven
		}
		return nil
	case m.position == 0:
		return nil
	}
	r.held = 0
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
			held, err := r.store.held(ctx, c, commit.Position)
			if err != nil {
				return err
			}
			if !held {
				r.store.observed.note(r, nil, commit.Position)
				return nil
			}
			end = c.Expect
			r.ends.add(c.Stream, end)
		}
		if end != c.Expect {
			r.store.observed.note(r, nil, commit.Position)
			return nil
		}
	}
	for _, e := range appended {
		r.ends.add(e.Stream, eventstore.At(e.Revision))
	}
	r.store.observed.note(r, appended, commit.Position)
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

// look reads $all from the reader's position: one page, and further pages until a position is reached.
func (r *reader) look(ctx context.Context, until eventstore.Position) error {
	for {
		n, err := r.pollOnce(ctx)
		if err != nil {
			return err
		}
		if n < lookPage || r.read >= until {
			return r.report(ctx)
		}
	}
}

// pollOnce reads one page and returns its number of events.
func (r *reader) pollOnce(ctx context.Context) (n int, err error) {
	f, err := r.store.readFlow(ctx, func(ctx context.Context, c *link) (*client.ReadStream, error) {
		if r.store.leader {
			ctx = onLeader(ctx)
		}
		return c.ReadAll(ctx, client.ReadAllOptions{Direction: client.Forwards, From: r.from()}, lookPage)
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
