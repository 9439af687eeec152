package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

const (
	maxBatch      = 512     // appends
	maxBatchBytes = 2 << 20 // a batch ends before the append that would exceed it
	maxKept       = 1 << 20 // bytes of memory that goes from batch to batch: full batches of most leads take less
	eventBytes    = 64      // counted for each event in addition to its texts, so that many empty ones are bounded too
	maxDeferred   = 4096    // appends that wait for another one's stream
)

// Append implements eventstore.Store. When the context ends before the append's turn, nothing was written and the error is the
// context's own. When it ends later, the error is ErrUnavailable too, because the append may still be written. What the writes
// refer to must not be changed any more: it is passed to the subscriptions of this process.
func (s *Store) Append(ctx context.Context, writes ...eventstore.Write) (eventstore.Position, error) {
	if err := eventstore.Validate(writes); err != nil {
		return 0, err
	}
	if len(writes) == 0 {
		return s.Head(ctx)
	}
	r, err := newRequest(writes)
	if err != nil {
		return 0, err
	}
	return s.writer.append(ctx, r)
}

// request is one caller's append.
type request struct {
	writes   []eventstore.Write
	metadata [][]byte // encoded, of each event in order
	bytes    int
	stage    atomic.Int32
	done     chan outcome // holds one
}

type outcome struct {
	position eventstore.Position
	err      error
}

// The stages of a request.
const (
	waiting int32 = iota
	taken         // by the writer: the append may happen
	left          // by the caller
)

func newRequest(writes []eventstore.Write) (*request, error) {
	events := 0
	for _, w := range writes {
		events += len(w.Events)
	}
	r := &request{writes: writes, metadata: make([][]byte, 0, events), done: make(chan outcome, 1)}
	var previous event.Metadata
	var encoded []byte
	for _, w := range writes {
		r.bytes += len(w.Stream)
		for _, e := range w.Events {
			if encoded == nil || e.Metadata != previous {
				var err error
				if encoded, err = e.Metadata.Encode(); err != nil {
					return nil, fmt.Errorf("%w: metadata of %s: %w", eventstore.ErrInvalid, e.Type, err)
				}
				previous = e.Metadata
			}
			r.metadata = append(r.metadata, encoded)
			r.bytes += len(e.Data) + len(encoded) + len(e.Type) + eventBytes
		}
	}
	return r, nil
}

func (r *request) take() bool { return r.stage.CompareAndSwap(waiting, taken) }

// leave records that the caller no longer waits, and reports whether the append is certain not to happen.
func (r *request) leave() bool { return r.stage.Swap(left) == waiting }

func (r *request) abandoned() bool { return r.stage.Load() == left }

// writer is the process's one appender: a bounded queue, and a goroutine with a connection of its own.
type writer struct {
	config    *pgx.ConnConfig
	conn      *pgx.Conn                    // nil while disconnected
	prepared  *pgconn.StatementDescription // of log.append
	whole     *pgconn.StatementDescription // of log.append_whole
	buffer    *sendBuffer                  // of the connection
	columns   columns
	pessimism pessimism
	touched   map[string]bool // of the latest selection: its memory is that of the next one
	queue     chan *request
	patience  time.Duration
	failure   atomic.Pointer[error] // of the last attempt, nil when it succeeded
	ended     chan struct{}
	connected func(context.Context, *pgx.Conn) error // is asked about every new connection
	appended  func()                                 // is called after events were appended, for other processes
	wrote     func(w written, whole bool)            // is called for every batch that is on the log; not whole: w lacks some of it
	replicas  *replicated
	watch     func(Batch) // nil: nobody does
	log       *slog.Logger
}

func newWriter(config *pgx.ConnConfig, queue int, patience time.Duration, log *slog.Logger) *writer {
	config = named(config, "writer")
	config.RuntimeParams["statement_timeout"] = fmt.Sprint(patience.Milliseconds())
	config.RuntimeParams["enable_bitmapscan"] = "off"
	return &writer{
		config: config, touched: map[string]bool{}, queue: make(chan *request, queue), patience: patience, ended: make(chan struct{}),
		log: log, appended: func() {}, wrote: func(written, bool) {}, replicas: &replicated{}, connected: func(context.Context, *pgx.Conn) error { return nil },
	}
}

var (
	errFull    = errors.New("too many appends are waiting")
	errSilence = errors.New("no answer in time")
	errLeft    = errors.New("the append was under way")
)

// append queues a request and waits for its outcome.
func (w *writer) append(ctx context.Context, r *request) (eventstore.Position, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	select {
	case w.queue <- r:
	case <-w.ended:
		return 0, unavailable(ctx, errClosed)
	default:
		return 0, unavailable(ctx, errFull)
	}
	patience := time.NewTimer(w.patience)
	defer patience.Stop()
	select {
	case o := <-r.done:
		return o.position, o.err
	case <-ctx.Done():
		if r.leave() {
			return 0, ctx.Err()
		}
		return 0, unavailable(ctx, errLeft)
	case <-patience.C:
		r.leave()
		if failure := w.failure.Load(); failure != nil {
			return 0, unavailable(ctx, *failure)
		}
		return 0, unavailable(ctx, errSilence)
	case <-w.ended:
		select {
		case o := <-r.done:
			return o.position, o.err
		default:
			return 0, unavailable(ctx, errClosed)
		}
	}
}

// run writes what is queued, batch after batch, until closing ends and the queue is empty.
func (w *writer) run(closing context.Context) {
	defer close(w.ended)
	defer w.disconnect()
	var deferred []*request
	var linger linger
	for {
		if len(deferred) == 0 {
			r := w.next(closing)
			if r == nil {
				return
			}
			deferred = append(deferred, r)
		}
		deferred = linger.gather(deferred, w.queue)
		var batch []*request
		batch, deferred = w.collect(deferred)
		if len(batch) > 0 {
			began := time.Now()
			w.commit(batch)
			linger.wrote(len(batch)+len(deferred)+len(w.queue), began, time.Now())
		}
	}
}

// next waits for a request. It returns nil when there is none and will be none.
func (w *writer) next(closing context.Context) *request {
	select {
	case r := <-w.queue:
		return r
	case <-closing.Done():
	}
	select {
	case r := <-w.queue:
		return r
	default:
		return nil
	}
}

// collect makes a batch from the deferred and the queued requests, and returns the ones that are now deferred, in the order of
// arrival.
func (w *writer) collect(deferred []*request) (batch, rest []*request) {
	clear(w.touched)
	s := selection{touched: w.touched}
	for _, r := range deferred {
		s.offer(r)
	}
	for !s.full() {
		select {
		case r := <-w.queue:
			s.offer(r)
		default:
			return s.batch, s.deferred
		}
	}
	return s.batch, s.deferred
}
