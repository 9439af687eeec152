package esdb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	client "github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"google.golang.org/grpc/metadata"
)

// connection hands out a client of the library and replaces it when its connection was lost.
//
// The library keeps a connection in a goroutine that every call talks to over an unbuffered channel. While that
// discovers a node, calls wait without an eye on their contexts. When discovery gives up, the goroutine ends for good:
// later calls fail, and such as are just about to talk to it wait for ever. Closing a client makes them panic instead.
// Therefore:
//   - every call runs in a goroutine of its own, which may be left behind when its context ends;
//   - in a client that has not found a node yet there is one call at a time, the others wait outside;
//   - a client that lost its node gets no more calls, and another takes its place, after pauses that grow;
//   - it is closed when the last call has left it, or after a while, and the panic is caught.
type connection struct {
	config    *client.Configuration
	log       *slog.Logger
	lingering time.Duration // how long a client that is given up may keep its last calls

	mu       sync.Mutex
	current  *link
	failures int       // clients in a row that found no node
	earliest time.Time // of the next one
	closed   bool
}

// link is a client and who uses it.
type link struct {
	*client.Client
	first chan struct{} // holds a value while a call looks for a node
	gone  chan struct{} // closed when no more calls may begin

	// Guarded by connection.mu.
	users  int
	proven bool // it found a node
}

// errLost says that the client was closed or broke while a call ran in it.
var errLost = errors.New("the connection was lost")

// visit is one call's use of a link.
type visit struct {
	*link
	conn  *connection
	first func() // ends looking for a node; nil for those that need not look
}

// enter begins a visit. It ends with left.
func (c *connection) enter(ctx context.Context) (*visit, error) {
	for {
		l, err := c.take(ctx)
		if err != nil {
			return nil, err
		}
		if c.use(l, false) {
			return &visit{link: l, conn: c}, nil
		}
		select {
		case l.first <- struct{}{}:
			if c.use(l, true) {
				return &visit{link: l, conn: c, first: sync.OnceFunc(func() { <-l.first })}, nil
			}
			<-l.first
		case <-l.gone:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// take returns the current link, a new one when there is none, not before its time.
func (c *connection) take(ctx context.Context) (*link, error) {
	for {
		c.mu.Lock()
		l, closed, wait := c.current, c.closed, time.Until(c.earliest)
		if l == nil && !closed && wait <= 0 {
			made, err := client.NewClient(c.config)
			if err != nil {
				c.mu.Unlock()
				return nil, fmt.Errorf("client: %w", err)
			}
			l = &link{Client: made, first: make(chan struct{}, 1), gone: make(chan struct{})}
			c.current = l
		}
		c.mu.Unlock()
		switch {
		case closed:
			return nil, errClosed
		case l != nil:
			return l, nil
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// use counts a user in, if the link is proven or if this user is the one that looks for a node.
func (c *connection) use(l *link, first bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != l || !l.proven && !first {
		return false
	}
	l.users++
	return true
}

// left ends a visit with what became of its call.
func (v *visit) left(err error) {
	c := v.conn
	c.mu.Lock()
	c.judge(v.link, err)
	if v.users--; v.users == 0 && c.current != v.link {
		_ = v.Close() // always nil
	}
	c.mu.Unlock()
	if v.first != nil {
		v.first()
	}
}

// find lets the client look for a node, if it has none, and lets the others in when it found one. Asked for the node's
// version it does nothing else.
func (v *visit) find() error {
	if v.first == nil {
		return nil
	}
	if _, err := v.GetServerVersion(); err != nil {
		return err
	}
	v.succeeded()
	v.first()
	return nil
}

// succeeded notes a success of a visit that goes on. It also orders what the visit's call did in the client before a later close of
// the client, which the library does not.
func (v *visit) succeeded() {
	v.conn.mu.Lock()
	defer v.conn.mu.Unlock()
	v.conn.judge(v.link, nil)
}

// judge decides whether the link may be used on.
func (c *connection) judge(l *link, err error) {
	switch {
	case c.current != l:
	case err == nil:
		l.proven, c.failures = true, 0
	case lost(err) || !l.proven:
		c.giveUp(l, err)
	}
}

// giveUp lets no more calls into a link.
func (c *connection) giveUp(l *link, err error) {
	var pause time.Duration
	if !l.proven {
		pause = min(shortestPause<<min(c.failures, 10), 10*longestPause)
		c.failures++
	}
	c.current, c.earliest = nil, time.Now().Add(pause)
	close(l.gone)
	c.closeLater(l)
	c.log.Warn("event store: connection lost, dialling again", "in", pause.String(), "error", err)
}

// close gives the last link up. Its users leave by themselves, as the store ends their contexts.
func (c *connection) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.current
	c.closed, c.current = true, nil
	if l == nil {
		return
	}
	close(l.gone)
	if l.users == 0 {
		_ = l.Close() // always nil
		return
	}
	c.closeLater(l)
}

// closeLater closes a link after its last calls had some time to leave.
func (c *connection) closeLater(l *link) {
	time.AfterFunc(c.lingering, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		_ = l.Close() // always nil
	})
}

// hold runs one call of the client that opens something, for no longer than its context lasts. The caller ends the visit. What
// is opened too late is closed.
func hold[T any](
	ctx context.Context, c *connection, closeLate func(T), do func(context.Context, *client.Client) (T, error),
) (T, *visit, error) {
	type answer struct {
		value T
		err   error
	}
	var none T
	v, err := c.enter(ctx)
	if err != nil {
		return none, nil, err
	}
	answers := make(chan answer, 1)
	go func() {
		a := answer{err: errLost}
		defer func() {
			if broken := recover(); broken != nil {
				a.err = fmt.Errorf("%w: %v", errLost, broken)
			}
			if a.err != nil {
				v.left(a.err)
			}
			answers <- a
		}()
		if a.err = v.find(); a.err == nil {
			if a.value, a.err = do(ctx, v.Client); a.err == nil {
				v.succeeded()
			}
		}
	}()
	select {
	case a := <-answers:
		return a.value, v, a.err
	case <-ctx.Done():
		go func() {
			if a := <-answers; a.err == nil {
				closeLate(a.value)
				v.left(nil)
			}
		}()
		return none, nil, context.Cause(ctx)
	}
}

// ask runs one call that is over with its answer.
func ask[T any](ctx context.Context, c *connection, do func(context.Context, *client.Client) (T, error)) (T, error) {
	value, v, err := hold(ctx, c, func(T) {}, do)
	if err == nil {
		v.left(nil)
	}
	return value, err
}

// onLeader asks that the leader answers. The library has an option for it, but puts the header where it is never
// sent: into the metadata of incoming calls.
func onLeader(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "requires-leader", "true")
}
