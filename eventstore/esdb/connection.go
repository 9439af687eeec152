package esdb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	client "github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/leadlog/leadlog/eventstore"
)

// connection provides a client of the library and replaces it when its connection is lost.
//
// The library's connection is a goroutine, to which every call sends over an unbuffered channel. While the goroutine
// discovers a node, calls wait and ignore their contexts. When discovery fails, the goroutine ends: later calls fail,
// and calls that are about to send wait forever. Closing the client makes those panic. This is so in v4.2.0, the last
// release; its successor KurrentDB-Client-Go has mended it by v1.4.2. Therefore:
//   - every call runs in its own goroutine, which is abandoned when the call's context ends;
//   - a client that has not found a node yet has one call at a time, and the others wait outside;
//   - a client that lost its node gets no more calls, and is replaced after a backoff;
//   - it is closed when its last call has returned, or after a timeout if streams are still open, and the panic is
//     recovered. Closing does not release a call that opens a stream, because the library may then never return.
type connection struct {
	config    *client.Configuration
	log       *slog.Logger
	lingering time.Duration // how long a replaced client stays open for its last calls

	connected func(Server) // called with the server of each new link

	mu       sync.Mutex
	current  *link
	leader   string             // address of the leader for the next link, if a node has named it
	backoff  eventstore.Backoff // after clients that found no node
	earliest time.Time          // when the next client may be created
	closed   bool
}

// link is a client and a connection to the leader for what the client does not offer, with their users.
type link struct {
	*client.Client
	direct *grpc.ClientConn
	server Server
	first  chan struct{} // holds a value while a call discovers a node
	gone   chan struct{} // closed when the link is replaced
	silent chan struct{} // closed when the leader does not answer and another node leads; calls must not wait
	asking atomic.Bool   // the other nodes are asked for the leader

	// Guarded by connection.mu.
	leader  string // its address; empty until it is known
	users   int
	opening int  // users whose call has not returned yet
	overdue bool // it is closed when no call is opening a stream
	proven  bool // it found a node
}

// errLost means that the client was closed or panicked during a call.
var errLost = errors.New("the connection was lost")

// visit is one call's use of a link.
type visit struct {
	*link
	conn   *connection
	first  func() // ends the discovery of a node; nil if the link has one
	opened bool   // its call has returned; guarded by connection.mu
}

// enter starts a visit. left ends it.
func (c *connection) enter(ctx context.Context) (*visit, error) {
	for {
		l, err := c.connect(ctx)
		if err != nil {
			return nil, err
		}
		if c.use(l, false) {
			return &visit{link: l, conn: c}, nil
		}
		select {
		case l.first <- struct{}{}:
			if c.use(l, false) { // another call has connected it meanwhile
				<-l.first
				return &visit{link: l, conn: c}, nil
			}
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

// connect returns the current link. If there is none, it creates one after the backoff.
func (c *connection) connect(ctx context.Context) (*link, error) {
	for {
		c.mu.Lock()
		l, closed, wait := c.current, c.closed, time.Until(c.earliest)
		if l == nil && !closed && wait <= 0 {
			l = &link{first: make(chan struct{}, 1), gone: make(chan struct{}), silent: make(chan struct{})}
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

// use adds a user if the link is proven or this user discovers a node.
func (c *connection) use(l *link, first bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != l || !l.proven && !first {
		return false
	}
	l.users++
	l.opening++
	return true
}

// left ends a visit with the error of its call.
func (v *visit) left(err error) {
	c := v.conn
	c.mu.Lock()
	c.judge(v.link, err)
	v.returned()
	if v.users--; v.users == 0 && c.current != v.link {
		v.close()
	}
	c.mu.Unlock()
	if v.first != nil {
		v.first()
	}
}

// find connects the link if it is not, and makes its client discover a node by requesting the server's version. Other
// calls may enter after that.
func (v *visit) find(ctx context.Context) error {
	if v.first == nil {
		return nil
	}
	config, leader, err := v.conn.locate(ctx)
	if err != nil {
		return err
	}
	v.conn.mu.Lock()
	v.leader = leader
	v.conn.mu.Unlock()
	if v.Client, err = client.NewClient(config); err != nil {
		return fmt.Errorf("client: %w", err)
	}
	if v.direct, err = dial(v.conn.config, leader); err != nil {
		return err
	}
	if _, err := v.GetServerVersion(); err != nil {
		return err
	}
	if v.server, err = features(ctx, v.direct); err != nil {
		return err
	}
	v.conn.connected(v.server)
	v.succeeded()
	v.first()
	return nil
}

// close closes the connections of a link.
func (l *link) close() {
	if l.Client != nil {
		_ = l.Client.Close() // always nil
	}
	if l.direct != nil {
		_ = l.direct.Close() // fails only if it is closed
	}
}

// succeeded records a success before the visit ends.
func (v *visit) succeeded() {
	v.conn.mu.Lock()
	defer v.conn.mu.Unlock()
	v.conn.judge(v.link, nil)
}

// open records that the visit's call has opened a stream. The mutex orders the call before a later close of the client,
// which the library does not do.
func (v *visit) open() {
	v.conn.mu.Lock()
	defer v.conn.mu.Unlock()
	v.conn.judge(v.link, nil)
	v.returned()
}

// returned records that the visit's call has left the client, and closes the client if it was waiting for that.
func (v *visit) returned() {
	if v.opened {
		return
	}
	v.opened = true
	if v.opening--; v.opening == 0 && v.overdue {
		v.close()
	}
}

// judge updates the current link after a call, and replaces it if it is lost.
func (c *connection) judge(l *link, err error) {
	switch {
	case c.current != l:
	case err == nil:
		l.proven = true
		c.backoff.Reset()
	case connectionLost(err) || !l.proven:
		c.leader = leaderIn(err)
		c.replace(l, err)
	}
}

// replace retires a link: no more calls may enter it, and the next call creates another.
func (c *connection) replace(l *link, err error) {
	var pause time.Duration
	if !l.proven {
		pause = c.backoff.Next()
	}
	c.current, c.earliest = nil, time.Now().Add(pause)
	close(l.gone)
	c.closeLater(l)
	c.log.Warn("event store: connection lost, reconnecting", "in", pause.String(), "error", err)
}

// close retires the last link. Its users leave when the store cancels their contexts.
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
		l.close()
		return
	}
	c.closeLater(l)
}

// closeLater closes a link after a timeout for its last calls, once no call is opening a stream.
func (c *connection) closeLater(l *link) {
	time.AfterFunc(c.lingering, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if l.overdue = true; l.opening == 0 {
			l.close()
		}
	})
}

// hold makes a call of the client that opens a stream, and returns when the call or its context ends. The caller ends
// the visit. A stream that is opened after the context has ended is closed.
func hold[T any](
	ctx context.Context, c *connection, closeLate func(T), do func(context.Context, *link) (T, error),
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
		if a.err = v.find(ctx); a.err == nil {
			if a.value, a.err = do(ctx, v.link); a.err == nil {
				v.open()
			}
		}
	}()
	slow := time.NewTicker(suspectAfter)
	defer slow.Stop()
	for ended := error(nil); ; {
		select {
		case a := <-answers:
			return a.value, v, a.err
		case <-slow.C:
			c.suspect(v.link)
			continue
		case <-v.silent:
			ended = errLost
		case <-ctx.Done():
			ended = context.Cause(ctx)
		}
		go func() {
			if a := <-answers; a.err == nil {
				closeLate(a.value)
				v.left(nil)
			}
		}()
		return none, nil, ended
	}
}

// suspectAfter is how long a call waits before the other nodes of a cluster are asked for the leader, and how often.
const suspectAfter = time.Second

// suspect replaces a link if another node leads than the one it is connected to. A node that is stopped or unplugged
// keeps its connections open.
func (c *connection) suspect(l *link) {
	if !clustered(c.config) || !l.asking.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer l.asking.Store(false)
		c.mu.Lock()
		suspected := l.leader
		c.mu.Unlock()
		leader, err := findLeader(context.Background(), c.config, suspected)
		if err != nil || suspected == "" || leader == suspected {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.current == l {
			c.leader = leader
			c.replace(l, fmt.Errorf("%w: %s does not answer, %s leads", errLost, suspected, leader))
			close(l.silent)
		}
	}()
}

// ask makes a unary call.
func ask[T any](ctx context.Context, c *connection, do func(context.Context, *link) (T, error)) (T, error) {
	value, v, err := hold(ctx, c, func(T) {}, do)
	if err == nil {
		v.left(nil)
	}
	return value, err
}

// onLeader requires that the leader responds. The library's option has no effect: it sets the header on incoming
// metadata.
func onLeader(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "requires-leader", "true")
}
