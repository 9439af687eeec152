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
	// maxHeader is all of a request's line and headers. Half of it is room for ids of any length, which are answered
	// in the envelope; the server itself answers what is longer.
	maxHeader = 96 << 10 // bytes
)

// NewServer returns a server with bounds on the duration and size of requests and on the number of connections.
func NewServer(addr string, handler http.Handler) *http.Server {
	connections := newConnections(maxConnections())
	return &http.Server{
		Addr: addr, Handler: handler,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second,
		WriteTimeout: writeTimeout, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes:               maxHeader,
		ConnState:                    connections.changed,
		ConnContext:                  connections.place,
		DisableGeneralOptionsHandler: true, // OPTIONS * is answered like any other unknown route
	}
}

const (
	mostConnections = 16_384
	// sparedFiles are left for the database, the log, webhooks and everything else that is no client.
	sparedFiles = 512
)

// maxConnections returns how many clients may be connected, such that file descriptors are left for the rest of the program.
func maxConnections() int {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil || files.Cur > mostConnections+sparedFiles {
		return mostConnections
	}
	return max(int(files.Cur)-sparedFiles, int(files.Cur)/2)
}

// connections closes connections when there are too many: first the one that has waited longest for a header, for the rest of a
// body that nobody reads, or for a stranger to read an answer. It never closes one with a request that was let in; these have a
// bound of their own.
type connections struct {
	most    int
	mu      sync.Mutex
	all     map[net.Conn]*list.Element // nil while a request is under way that was let in
	waiting *list.List                 // of net.Conn: longest first
}

func newConnections(most int) *connections {
	return &connections{most: most, all: make(map[net.Conn]*list.Element), waiting: list.New()}
}

// changed is the server's ConnState hook.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	if crowded := c.note(conn, state); crowded != nil {
		crowded.Close() // the server tells of it like of any other that ends
	}
}

// note keeps count, and returns the connection that has to go.
func (c *connections) note(conn net.Conn, state http.ConnState) net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		c.all[conn] = c.waiting.PushBack(conn)
	case http.StateActive, http.StateIdle:
		c.wait(conn)
		return nil
	case http.StateClosed, http.StateHijacked:
		c.leave(conn)
		delete(c.all, conn)
		return nil
	}
	longest := c.waiting.Front()
	if longest == nil || len(c.all) <= c.most {
		return nil
	}
	goes := c.waiting.Remove(longest).(net.Conn)
	delete(c.all, goes) // at once: who comes before the server tells that it has ended is made place by another
	return goes
}

// wait makes a connection the last of those that wait, unless it is on its way out.
func (c *connections) wait(conn net.Conn) {
	switch place, open := c.all[conn]; {
	case place != nil:
		c.waiting.MoveToBack(place)
	case open:
		c.all[conn] = c.waiting.PushBack(conn)
	}
}

func (c *connections) leave(conn net.Conn) {
	if place := c.all[conn]; place != nil {
		c.waiting.Remove(place)
		c.all[conn] = nil
	}
}

// place is a connection among all.
type place struct {
	of   *connections
	conn net.Conn
}

type placeKey struct{}

// place lets requests find the place of their connection.
func (c *connections) place(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, placeKey{}, place{c, conn})
}

// letIn records that a request was let in: its connection is not closed for others until waitAgain.
func letIn(r *http.Request) place {
	p, placed := r.Context().Value(placeKey{}).(place)
	if placed { // some servers of tests have none
		p.of.mu.Lock()
		defer p.of.mu.Unlock()
		p.of.leave(p.conn)
	}
	return p
}

func (p place) waitAgain() {
	if p.of != nil {
		p.of.mu.Lock()
		defer p.of.mu.Unlock()
		p.of.wait(p.conn)
	}
}
