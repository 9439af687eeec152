package httpapi

import (
	"cmp"
	"errors"
	"io"
	"sync/atomic"
)

// errOverloaded says that the service has as much to do as it takes on.
var errOverloaded = errors.New("overloaded")

// What a process takes on when its options say nothing.
const (
	defaultRequests   = 2048
	defaultBodyBytes  = 64 << 20
	defaultBatchBytes = 128 << 20
)

// load is what the process has taken on. More is refused before it takes memory.
type load struct {
	requests budget // one for each that is under way
	bodies   budget // bytes read of bodies of requests that are under way
	batches  budget // bytes that batches may hold of theirs
}

func newLoad(o Options) *load {
	return &load{
		requests: budget{most: cmp.Or(int64(o.MaxRequests), defaultRequests)},
		bodies:   budget{most: cmp.Or(o.BodyBytes, defaultBodyBytes)},
		batches:  budget{most: cmp.Or(o.BatchBytes, defaultBatchBytes)},
	}
}

// budget is so much of something, for all requests together.
type budget struct {
	most int64
	used atomic.Int64
}

// take takes a part, unless too little is left.
func (b *budget) take(n int64) bool {
	if b.used.Add(n) > b.most {
		b.used.Add(-n)
		return false
	}
	return true
}

func (b *budget) giveBack(n int64) { b.used.Add(-n) }

// counted are routes that are shed under load. The others cost next to nothing, and some tell how the service does.
func (r route) counted() bool {
	switch r.pattern {
	case "", "/healthz", "/readyz", "/metrics", "/openapi.json", "/docs":
		return false
	}
	return true
}

// takeOn counts the request among those under way, until it is done. The error is errOverloaded.
func (x *exchange) takeOn(route route) (done func(), err error) {
	if !route.counted() {
		return func() {}, nil
	}
	if !x.load.requests.take(1) {
		return nil, errOverloaded
	}
	return func() {
		x.load.requests.giveBack(1)
		x.load.bodies.giveBack(x.held)
	}, nil
}

// weighed is the request's body, whose bytes count until the request is done: a slow one for what came of it, and not
// for what it announced.
type weighed struct {
	x    *exchange
	body io.Reader
}

func (w weighed) Read(p []byte) (int, error) {
	n, err := w.body.Read(p)
	if n > 0 && !w.x.load.bodies.take(int64(n)) {
		return n, errOverloaded
	}
	w.x.held += int64(n)
	return n, err
}
