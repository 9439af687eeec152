package esdb

import (
	"context"
	"errors"
	"fmt"
	"time"

	client "github.com/EventStore/EventStore-Client-Go/v4/esdb"

	"github.com/leadlog/leadlog/eventstore"
)

const (
	// searchWindow is how many events the server looks through before it sends a checkpoint.
	searchWindow = 500

	// lookPage is how many events of $all a reader reads at a time when it looks for itself.
	lookPage = 1000

	// endsBytes bounds what a reader remembers of where streams end.
	endsBytes = 8 << 20
)

// sink gets what a reader reads.
type sink interface {
	events(appended []*record) error       // of a valid append
	progress(to eventstore.Position) error // nothing else is there up to here
}

// reader reads $all and passes on the events of each append with its commit record, if it is valid. It reads every record of the log,
// because the validity of an append depends on others.
//
// It trusts the server's order of events, but not its checkpoints as they come. Servers have sent such that lay at the end of the
// log, where the next event was about to be (KurrentDB, pull requests 4023 and 4990), and while nothing matches they send one in
// hundreds of events only. So a checkpoint counts when something other than the event at its place follows it, and what was not sent
// is looked up: when a reader receives nothing for a while, when it has caught up, and before the first event after that, it reads
// $all from where it is.
type reader struct {
	store    *Store
	sink     sink
	catchUp  bool                                // it ends with errCaughtUp at the end of the log
	batch    []*record                           // of an append whose commit record has not come yet
	ends     *cache[string, eventstore.Expected] // of streams, as of read
	read     eventstore.Position                 // everything up to here is passed on, or in the batch
	reported eventstore.Position                 // the newest progress mark's
	head     eventstore.Position                 // some event of this log is known to be here
	seen     eventstore.Position                 // read was here when the head was last asked for
	held     eventstore.Position                 // a checkpoint that is not proven yet; 0 for none
	join     bool                                // the server has gone over from reading to following, and no event has come since
}

func (s *Store) newReader(after eventstore.Position, to sink, catchUp bool) *reader {
	return &reader{
		store: s, sink: to, catchUp: catchUp, read: after, reported: after,
		ends: newCache(endsBytes, func(stream string, _ eventstore.Expected) int { return len(stream) }),
	}
}

// errCaughtUp says that a reader has come to the end of the log.
var errCaughtUp = errors.New("the end of the log is reached")

// run returns nil when the reader has caught up, if that is all it should do.
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

// follow goes on from where the log was read until something fails.
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
		if r.read <= max(r.head, r.seen) { // otherwise locks or events of others were read: an event may follow at once
			if err := r.report(ctx); err != nil {
				return err
			}
		}
		quiet.Reset(r.store.poll)
		select {
		case m := <-f.messages:
			err = r.take(ctx, m)
		case <-quiet.C:
			err = r.look(ctx, 0)
			if err == nil && r.catchUp && len(r.batch) == 0 { // servers before 23.10 do not say that they have caught up
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

// from is where to go on. It is never nil, which would mean the end.
func (r *reader) from() client.AllPosition {
	if r.read == 0 {
		return client.Start{}
	}
	return client.Position{Commit: uint64(r.read), Prepare: uint64(r.read)}
}

func (r *reader) receive(server *client.Subscription) message {
	switch e := server.Recv(); {
	case e.EventAppeared != nil:
		return r.store.received(e.EventAppeared, r.store.own)
	case e.CheckPointReached != nil:
		return message{position: eventstore.Position(e.CheckPointReached.Commit), checkpoint: true}
	case e.CaughtUp != nil:
		return message{caughtUp: true}
	case e.SubscriptionDropped != nil:
		return message{err: fmt.Errorf("subscription dropped: %w", e.SubscriptionDropped.Error)}
	}
	return message{} // fell behind: it reads again, and will send when it has caught up
}

// take handles what the server sent.
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

// record takes in one of the server's events. What was read before is left out.
func (r *reader) record(ctx context.Context, m message) error {
	if m.position <= r.read {
		return nil
	}
	if m.record != nil && !m.record.provisional() {
		batch := append(r.batch, m.record)
		if m.record.more == 0 {
			if err := r.complete(ctx, batch); err != nil {
				return err // the next attempt goes on before this record
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

// complete passes on an append, if it is valid.
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

// reportAfter is how far, in bytes of log, a reader reads past what is not to be passed on before it reports progress.
const reportAfter = 1 << 20

// report passes on a progress mark if there was progress. What the server writes for itself behind the log's head is none: a mark
// beyond the head would be taken for one of another log.
func (r *reader) report(ctx context.Context) error {
	if len(r.batch) > 0 {
		return nil
	}
	if r.read > max(r.head, r.seen) {
		head, err := r.store.Head(ctx)
		if err != nil {
			return err
		}
		r.head, r.seen = head, r.read
	}
	progress := min(r.read, r.head)
	if progress <= r.reported {
		return nil
	}
	r.reported = progress
	return r.sink.progress(progress)
}

// look reads $all from where the log was read, a page, and more as long as until is not reached.
func (r *reader) look(ctx context.Context, until eventstore.Position) error {
	for {
		n, err := r.lookOnce(ctx)
		if err != nil {
			return err
		}
		if n < lookPage || r.read >= until {
			return r.report(ctx)
		}
	}
}

// lookOnce reads one page and returns how many events it had.
func (r *reader) lookOnce(ctx context.Context) (n int, err error) {
	f, err := r.store.readFlow(ctx, func(ctx context.Context, c *client.Client) (*client.ReadStream, error) {
		if r.store.leader {
			ctx = onLeader(ctx)
		}
		return c.ReadAll(ctx, client.ReadAllOptions{Direction: client.Forwards, From: r.from()}, lookPage)
	}, r.store.own)
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
