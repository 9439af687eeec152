package httpapi

import (
	"container/list"
	"net"
	"net/http"
	"sync"
	"syscall"
)

const (
	mostConnections = 16_384
	// sparedFiles are left for the database, the log, webhooks and everything else that is no client.
	sparedFiles = 512
)

// maxConnections is how many clients may be connected, so that files are left for the rest of the program.
func maxConnections() int {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil || files.Cur > mostConnections+sparedFiles {
		return mostConnections
	}
	return max(int(files.Cur)-sparedFiles, int(files.Cur)/2)
}

// connections lets clients stay connected as long as there is room. If there is none, it closes the connection that has waited
// longest without sending a complete header. Requests under way are not touched; their number has a bound of its own.
type connections struct {
	most    int
	mu      sync.Mutex
	all     map[net.Conn]*list.Element // nil while a request is under way
	waiting *list.List                 // of net.Conn, for a request: longest first
}

func newConnections(most int) *connections {
	return &connections{most: most, all: make(map[net.Conn]*list.Element), waiting: list.New()}
}

// changed is told by the server what becomes of each connection.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	if crowded := c.note(conn, state); crowded != nil {
		crowded.Close() // the server tells of it like of any other that ends
	}
}

// note keeps count, and returns the connection that has to go.
func (c *connections) note(conn net.Conn, state http.ConnState) net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if place := c.all[conn]; place != nil {
		c.waiting.Remove(place)
	}
	switch state {
	case http.StateNew, http.StateIdle:
		c.all[conn] = c.waiting.PushBack(conn)
	case http.StateActive:
		c.all[conn] = nil
	case http.StateClosed, http.StateHijacked:
		delete(c.all, conn)
	}
	longest := c.waiting.Front()
	if longest == nil || len(c.all) <= c.most || state != http.StateNew {
		return nil
	}
	goes := c.waiting.Remove(longest).(net.Conn)
	delete(c.all, goes) // at once: who comes before the server tells that it has ended is made place by another
	return goes
}
