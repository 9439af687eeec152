package delivery

import (
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/command/token"
	"github.com/leadlog/leadlog/projection"
)

const (
	mostBodies  = 8192
	largestBody = 4 << 10          // bytes: together at most 32 MiB
	bodyAge     = 10 * time.Second // a person may be forgotten meanwhile, and with them what is said of them
)

// Bodies caches, for a short time, the bodies of deliveries whose event is the first of its stream, so that a courier in the same
// process as the fan-out need not read the stream again.
type Bodies struct {
	recent *lru.Cache[eventKey, rendered]
}

// eventKey is where on the log an event is.
type eventKey struct {
	stream   string
	revision int64
}

type rendered struct {
	body  []byte
	trace string // traceparent of what the event came from
	at    time.Time
}

// NewBodies returns an empty cache.
func NewBodies() *Bodies {
	recent, err := lru.New[eventKey, rendered](mostBodies)
	if err != nil {
		panic(err) // the size is positive
	}
	return &Bodies{recent}
}

// add makes the body of an event that begins its stream. Of others it remembers nothing.
func (b *Bodies) add(name string, e projection.Event) {
	if b == nil || e.Revision != 0 {
		return
	}
	r := row{kind: name, stream: e.Stream, position: int64(e.Position), renderer: rendererVersion}
	fact := e.Fact()
	body, err := r.encode(fact, lead.Evolve(lead.State{}, fact), token.Evolve(token.State{}, fact))
	if err == nil && len(body) <= largestBody { // an error comes again when it is sent
		b.recent.Add(eventKey{e.Stream, 0}, rendered{body, e.Metadata.TraceParent, time.Now()})
	}
}

// forget drops the body of a stream's first event.
func (b *Bodies) forget(stream string) {
	if b != nil {
		b.recent.Remove(eventKey{stream, 0})
	}
}

func (b *Bodies) get(r row) (rendered, bool) {
	if b == nil {
		return rendered{}, false
	}
	at := eventKey{r.stream, r.revision}
	known, ok := b.recent.Get(at)
	if ok && time.Since(known.at) > bodyAge {
		b.recent.Remove(at)
		return rendered{}, false
	}
	return known, ok
}
