package httpapi

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"
)

const (
	writeTimeout = time.Minute
	// maxHeader bounds a request's line and headers. The API answers paths of up to half of this in its envelope;
	// net/http itself answers longer ones.
	maxHeader = 96 << 10 // bytes
)

// NewServer returns a server with limits on the duration and size of requests and on the number of connections.
func NewServer(addr string, handler http.Handler) *http.Server {
	connections := newConnections(maxConnections())
	return &http.Server{
		Addr: addr, Handler: handler,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second,
		WriteTimeout: writeTimeout, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes:               maxHeader,
		ConnState:                    connections.changed,
		ConnContext:                  connections.withConn,
		DisableGeneralOptionsHandler: true, // OPTIONS * is answered like any other unknown route
	}
}

const (
	maxConns = 16_384
	// reservedFiles is the number of file descriptors that are not for clients: for the database, the log, webhooks and
	// others.
	reservedFiles = 512
)

// maxConnections returns how many clients may be connected, within the process's limit of file descriptors.
func maxConnections() int {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil || files.Cur > maxConns+reservedFiles {
		return maxConns
	}
	return max(int(files.Cur)-reservedFiles, int(files.Cur)/2)
}

// connections bounds the number of open connections. Beyond the maximum it closes the one that has been idle longest:
// waiting for a request's header, for the rest of a body that is not read, or for an unauthenticated client to read its
// answer. It never closes a connection with an authenticated request in flight; these have a limit of their own.
type connections struct {
	max  int
	mu   sync.Mutex
	open map[net.Conn]*list.Element // nil while an authenticated request is in flight
	idle *list.List                 // of net.Conn, the longest idle first
}

func newConnections(most int) *connections {
	return &connections{max: most, open: make(map[net.Conn]*list.Element), idle: list.New()}
}

// changed is the server's ConnState hook.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	if excess := c.track(conn, state); excess != nil {
		excess.Close() // the server then reports it as closed
	}
}

// track records a connection's new state, and returns the connection to close, if any.
func (c *connections) track(conn net.Conn, state http.ConnState) net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		c.open[conn] = c.idle.PushBack(conn)
	case http.StateActive, http.StateIdle:
		c.setIdle(conn)
		return nil
	case http.StateClosed, http.StateHijacked:
		c.setBusy(conn)
		delete(c.open, conn)
		return nil
	}
	longest := c.idle.Front()
	if longest == nil || len(c.open) <= c.max {
		return nil
	}
	excess := c.idle.Remove(longest).(net.Conn)
	delete(c.open, excess) // now, so that a connection accepted before StateClosed closes another one
	return excess
}

// setIdle makes a connection the most recently idle one, unless it is being closed.
func (c *connections) setIdle(conn net.Conn) {
	switch element, open := c.open[conn]; {
	case element != nil:
		c.idle.MoveToBack(element)
	case open:
		c.open[conn] = c.idle.PushBack(conn)
	}
}

func (c *connections) setBusy(conn net.Conn) {
	if element := c.open[conn]; element != nil {
		c.idle.Remove(element)
		c.open[conn] = nil
	}
}

// connection is the connection of a request.
type connection struct {
	all  *connections
	conn net.Conn
}

type connKey struct{}

// withConn is the server's ConnContext hook: it puts the connection into the context of its requests.
func (c *connections) withConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, connection{c, conn})
}

// markBusy protects the connection of an authenticated request from being closed, until markIdle.
func markBusy(r *http.Request) connection {
	c, ok := r.Context().Value(connKey{}).(connection)
	if ok { // false for a server that NewServer did not make
		c.all.mu.Lock()
		defer c.all.mu.Unlock()
		c.all.setBusy(c.conn)
	}
	return c
}

func (c connection) markIdle() {
	if c.all != nil {
		c.all.mu.Lock()
		defer c.all.mu.Unlock()
		c.all.setIdle(c.conn)
	}
}
