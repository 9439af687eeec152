package esdb

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	client "github.com/EventStore/EventStore-Client-Go/v4/esdb"

	"github.com/leadlog/leadlog/eventstore"
)

// Subscribe implements eventstore.Store. It reads up to the end of the log on its own, and then uses the process's shared follower. It
// resumes after a lost connection, and ends with ErrUnavailable after the timeout.
func (s *Store) Subscribe(ctx context.Context, after eventstore.Position, filter eventstore.Filter) iter.Seq2[eventstore.Page, error] {
	return func(yield func(eventstore.Page, error) bool) {
		within, cancel := s.within(ctx)
		defer cancel()
		sub := &subscription{filter: filter, at: after, yield: yield}
		if err := sub.run(within, s); !errors.Is(err, errStopped) {
			if ended := ctx.Err(); ended != nil {
				err = ended
			}
			yield(eventstore.Page{}, err)
		}
	}
}

// subscription is one subscriber's position on the log.
type subscription struct {
	filter eventstore.Filter
	at     eventstore.Position // position up to which events were yielded
	page   []eventstore.Recorded
	bytes  int // of payload, in the page
	yield  func(eventstore.Page, error) bool
}

// Bounds of a page. An append is never split.
const (
	pageEvents = 2000
	pageBytes  = 1 << 20
)

// errStopped means that the consumer stopped.
var errStopped = errors.New("the consumer stopped")

// run returns the error that ended the subscription.
func (s *subscription) run(ctx context.Context, store *Store) error {
	for {
		catchUp := store.newReader(s.at, s, true)
		if err := catchUp.run(ctx); err != nil {
			return err
		}
		if err := store.attend(ctx, s, catchUp.read); err != nil {
			return err
		}
	}
}

// events adds the selected events of an append to the page.
func (s *subscription) events(records []*record) error {
	for _, r := range records {
		if r.Position > s.at && s.filter.Matches(r.Stream, r.Type) {
			s.page = append(s.page, r.Recorded) // a copy, since subscriptions share the record
			s.bytes += len(r.Data)
		}
	}
	if len(s.page) < pageEvents && s.bytes < pageBytes {
		return nil
	}
	return s.progress(commitOf(records).Position)
}

// progress yields the page, with the position up to which the log was read.
func (s *subscription) progress(to eventstore.Position) error {
	if to <= s.at {
		return nil
	}
	page := eventstore.Page{Events: s.page, Position: to}
	s.at, s.page, s.bytes = to, nil, 0
	if !s.yield(page, nil) {
		return errStopped
	}
	return nil
}

const (
	// searchWindow is how many events the server filters before it sends a checkpoint.
	searchWindow = 500

	// lookPage is how many events of $all a reader reads in one call.
	lookPage = 1000

	// endsBytes bounds a reader's cache of the ends of streams.
	endsBytes = 8 << 20
)

// sink receives the results of a reader.
type sink interface {
	events(appended []*record) error       // of a valid append
	progress(to eventstore.Position) error // the log was read up to here
}

// reader subscribes to $all and passes the events of each valid append to its sink, at the append's commit record. It receives all records
// of the log, because the validity of an append depends on others.
//
// It relies on the server's order of events, but not on its checkpoints. Servers have sent checkpoints at the end of the log at which the
// next event was stored later (KurrentDB, pull requests 4023 and 4990). While no event matches, they send a checkpoint only every few
// hundred events. So a checkpoint counts once a message other than the event at its position follows it. A reader also reads $all itself
// when it receives nothing for a while, when it has caught up, and before the first event after that.
type reader struct {
	store    *Store
	sink     sink
	catchUp  bool                                // it ends with errCaughtUp at the end of the log
	batch    []*record                           // of an append whose commit record was not received yet
	ends     *cache[string, eventstore.Expected] // of streams, as of read
	read     eventstore.Position                 // position up to which records are in the sink or the batch
	reported eventstore.Position                 // position of the newest progress mark
	head     eventstore.Position                 // position that is known to have an event of this log
	seen     eventstore.Position                 // value of read at the last call of Head
	held     eventstore.Position                 // a checkpoint that does not count yet; 0: none
	join     bool                                // the server has caught up, and has sent no event since
}

func (s *Store) newReader(after eventstore.Position, to sink, catchUp bool) *reader {
	return &reader{
		store: s, sink: to, catchUp: catchUp, read: after, reported: after,
		ends: newCache(endsBytes, func(stream string, _ eventstore.Expected) int { return len(stream) }),
	}
}

// errCaughtUp means that a reader has read up to the end of the log.
var errCaughtUp = errors.New("the end of the log is reached")

// run reads until an error. It returns nil when a reader with catchUp has caught up.
func (r *reader) run(ctx context.Context) error {
	for retry := r.store.retrying(); ; {
		before := r.read
		err := r.follow(ctx)
		if errors.Is(err, errCaughtUp) {
			return nil
		}
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
	r.held, r.join = 0, false
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
		if !r.catchUp { // otherwise more messages follow, and pages would be short
			if err := r.mark(); err != nil {
				return err
			}
		}
		quiet.Reset(r.store.poll)
		select {
		case m := <-f.messages:
			err = r.take(ctx, m)
		case <-quiet.C:
			err = r.look(ctx, 0)
			if err == nil && r.catchUp && len(r.batch) == 0 { // servers before 23.10 do not send CaughtUp
				err = errCaughtUp
			}
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
	server, v, err := hold(ctx, r.store.conn, closeSubscription, func(ctx context.Context, c *client.Client) (*client.Subscription, error) {
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
	return client.Position{Commit: uint64(r.read), Prepare: uint64(r.read)}
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
		r.held, r.join = 0, true
		if err := r.look(ctx, 0); err != nil {
			return err
		}
		if r.catchUp && len(r.batch) == 0 {
			return errCaughtUp
		}
		return nil
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
	if r.read-r.reported > reportAfter {
		return r.report(ctx)
	}
	return nil
}

// complete passes an append to the sink if it is valid.
func (r *reader) complete(ctx context.Context, appended []*record) error {
	commit := commitOf(appended)
	for _, c := range commit.checks {
		end, known := r.ends.get(c.Stream)
		if !known {
			held, err := r.store.held(ctx, c, commit.Position)
			if err != nil || !held {
				return err
			}
			end = c.Expect
			r.ends.add(c.Stream, end)
		}
		if end != c.Expect {
			return nil
		}
	}
	for _, e := range appended {
		r.ends.add(e.Stream, eventstore.At(e.Revision))
	}
	r.head = commit.Position
	return r.sink.events(appended)
}

// reportAfter is how far, in bytes of log, a reader reads without a progress mark.
const reportAfter = 1 << 20

// report marks progress, up to the head. System events after the head do not count: consumers would attribute a mark beyond the head to
// another log.
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

// mark passes progress to the sink, if there was any, up to the known head.
func (r *reader) mark() error {
	progress := min(r.read, r.head)
	if len(r.batch) > 0 || progress <= r.reported {
		return nil
	}
	r.reported = progress
	return r.sink.progress(progress)
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
	f, err := r.store.readFlow(ctx, func(ctx context.Context, c *client.Client) (*client.ReadStream, error) {
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

// followers holds the shared follower while a subscription uses it.
type followers struct {
	mu      sync.Mutex
	current *follower
}

// follower reads the end of the log once for all subscriptions of the process, with a buffer for those that lag a little.
type follower struct {
	stop  context.CancelFunc
	users int // guarded by the mutex of followers

	mu      sync.Mutex
	floor   eventstore.Position // position after which the buffer has everything
	appends [][]*record         // the valid ones
	bytes   int                 // of the buffer
	read    eventstore.Position // position up to which the log was read, never beyond the head; 0 at first
	changed chan struct{}       // closed by the next change
	err     error               // that ended the follower
}

// followerBytes bounds a follower's buffer.
const followerBytes = 16 << 20

// attend passes the follower's events to a subscription that has read the log up to a position. It returns nil when the buffer no longer
// reaches back to the subscription's position, so that the subscription must read on its own.
func (s *Store) attend(ctx context.Context, sub *subscription, at eventstore.Position) error {
	f := s.joinFollower(at)
	defer s.leaveFollower(f)
	for {
		appends, read, changed, err := f.after(at)
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
			return outcome(ctx, context.Cause(ctx))
		}
	}
}

// joinFollower adds a subscription. The first one starts the follower at its own position.
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

// leaveFollower removes a subscription. The last one stops the follower.
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

// after returns the appends after a position, the position up to which the log was read, and a channel that is closed at the next change.
// The channel is nil if the buffer does not reach back to the position.
func (f *follower) after(at eventstore.Position) (appends [][]*record, read eventstore.Position, changed <-chan struct{}, err error) {
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
		f.appends[0] = nil // append copies the rest later
		f.appends = f.appends[1:]
	}
	f.change()
	return nil
}

// progress records the position up to which the log was read.
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

// change notifies the subscriptions. The caller holds the mutex.
func (f *follower) change() {
	close(f.changed)
	f.changed = make(chan struct{})
}

func commitOf(records []*record) *record { return records[len(records)-1] }
