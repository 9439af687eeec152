package httpapi

import (
	"net/http"
	"time"
)

const (
	writeTimeout = time.Minute
	// maxHeader is all of a request's line and headers. Half of it is room for ids of any length, which are answered
	// in the envelope; the server itself answers what is longer.
	maxHeader = 96 << 10 // bytes
)

// NewServer makes a server with bounds on how long and how large a request may be, and on how many connections stay
// open that ask for nothing.
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
