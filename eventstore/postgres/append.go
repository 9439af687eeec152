package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

const (
	maxBatch      = 512     // appends
	maxBatchBytes = 2 << 20 // a batch ends before the append that would exceed it
	eventBytes    = 64      // counted for each event in addition to its texts, so that many empty ones are bounded too
	maxDeferred   = 4096    // appends that wait for an earlier one on the same stream
)

// Append implements eventstore.Store. When the context ends before the append's turn, nothing was written and the error is the
// context's own. When it ends later, the error is ErrUnavailable too, because the append may still be written.
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
	state    atomic.Int32
	done     chan outcome // holds one
}

type outcome struct {
	position eventstore.Position
	err      error
}

// The states of a request.
const (
	queued    int32 = iota
	batched         // the append may happen
	abandoned       // by the caller
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

// abandon records that the caller no longer waits. It reports whether the append is certain not to happen.
func (r *request) abandon() bool { return r.state.Swap(abandoned) == queued }

// writer is the process's one appender: a bounded queue, and a goroutine with a connection of its own.
type writer struct {
	config    *pgx.ConnConfig
	conn      *pgx.Conn // nil while disconnected
	queue     chan *request
	timeout   time.Duration
	failure   atomic.Pointer[error] // of the last attempt, nil when it succeeded
	ended     chan struct{}
	replicas  *replicated
	connected func(context.Context, *pgx.Conn) error // checks a new connection
	appended  func(b appended, complete bool)        // is called after a batch; not complete: b lacks some of what is on the log
	onBatch   func(Batch)                            // is called after a batch
	log       *slog.Logger
}

func newWriter(config *pgx.ConnConfig, queue int, timeout time.Duration, log *slog.Logger) *writer {
	config = named(config, "writer")
	config.RuntimeParams["statement_timeout"] = fmt.Sprint(timeout.Milliseconds())
	config.RuntimeParams["enable_bitmapscan"] = "off"
	return &writer{
		config: config, queue: make(chan *request, queue), timeout: timeout, ended: make(chan struct{}), replicas: &replicated{},
		connected: func(context.Context, *pgx.Conn) error { return nil }, appended: func(appended, bool) {}, onBatch: func(Batch) {},
		log: log,
	}
}

var (
	errQueueFull = errors.New("too many appends are waiting")
	errTimeout   = errors.New("no answer in time")
	errUnknown   = errors.New("the append was under way")
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
		return 0, unavailable(ctx, errQueueFull)
	}
	timeout := time.NewTimer(w.timeout)
	defer timeout.Stop()
	select {
	case o := <-r.done:
		return o.position, o.err
	case <-ctx.Done():
		if r.abandon() {
			return 0, ctx.Err()
		}
		return 0, unavailable(ctx, errUnknown)
	case <-timeout.C:
		r.abandon()
		if failure := w.failure.Load(); failure != nil {
			return 0, unavailable(ctx, *failure)
		}
		return 0, unavailable(ctx, errTimeout)
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
	for {
		if len(deferred) == 0 {
			r := w.next(closing)
			if r == nil {
				return
			}
			deferred = append(deferred, r)
		}
		runtime.Gosched() // lets goroutines that are about to append do so first
		var batch []*request
		batch, deferred = w.collect(deferred)
		if len(batch) > 0 {
			w.commit(batch)
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

// collect makes a batch from the deferred and the queued requests. It returns the ones that are now deferred in the order of arrival.
func (w *writer) collect(deferred []*request) (batch, rest []*request) {
	s := selection{streams: map[string]bool{}}
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

// selection divides requests into those of the next batch and those that come later.
//
// All expectations of a batch are compared with the log as it was before the batch. So an append is deferred if an earlier one, in the
// batch or deferred too, touches a stream that it writes, or writes a stream that it checks. Appends that touch the same stream keep
// their order, except those that only check it: there are many of them, and they never wait for each other.
type selection struct {
	batch    []*request
	deferred []*request
	bytes    int
	streams  map[string]bool // of all requests offered; true: written
}

func (s *selection) full() bool {
	return len(s.batch) >= maxBatch || s.bytes >= maxBatchBytes || len(s.deferred) >= maxDeferred
}

func (s *selection) offer(r *request) {
	switch conflicts := s.conflicts(r); {
	case r.state.Load() == abandoned:
		return
	case conflicts || len(s.batch) >= maxBatch || len(s.batch) > 0 && s.bytes+r.bytes > maxBatchBytes:
		s.deferred = append(s.deferred, r)
	case r.state.CompareAndSwap(queued, batched):
		s.batch = append(s.batch, r)
		s.bytes += r.bytes
	default: // abandoned just now
		return
	}
	for _, w := range r.writes {
		s.streams[w.Stream] = s.streams[w.Stream] || len(w.Events) > 0
	}
}

func (s *selection) conflicts(r *request) bool {
	for _, w := range r.writes {
		written, touched := s.streams[w.Stream]
		if written || touched && len(w.Events) > 0 {
			return true
		}
	}
	return false
}

// commit writes a batch and answers its callers. After a transient error it tries again while one of them waits; if the earlier attempt
// was written after all, log.append recognises it.
func (w *writer) commit(batch []*request) {
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 250*time.Millisecond) {
		began := time.Now()
		outcomes, events, err := w.send(batch)
		switch kind := kindOf(err); {
		case err == nil:
			w.succeeded()
			w.onBatch(Batch{Appends: len(batch), Events: events, Took: time.Since(began)})
			for i, r := range batch {
				r.done <- outcomes[i]
			}
			return
		case kind == invalidInput && len(batch) == 1:
			batch[0].done <- outcome{err: fmt.Errorf("the database rejects the append: %w", err)}
			return
		case kind == invalidInput:
			w.commit(batch[:len(batch)/2])
			w.commit(batch[len(batch)/2:])
			return
		case kind == misconfigured:
			w.log.Error("the log cannot be written", "error", err)
			for _, r := range batch {
				r.done <- outcome{err: unavailable(context.Background(), err)}
			}
			return
		}
		w.failed(err)
		w.appended(appended{}, false) // perhaps it was written
		time.Sleep(pause)
		if allAbandoned(batch) {
			return
		}
	}
}

// failed and succeeded log the first failure and the first success after it, and not each attempt.
func (w *writer) failed(err error) {
	if w.failure.Swap(&err) == nil {
		w.log.Warn("the log cannot be written, retrying", "error", err)
	}
}

func (w *writer) succeeded() {
	if w.failure.Swap(nil) != nil {
		w.log.Info("the log is written again")
	}
}

func allAbandoned(batch []*request) bool {
	for _, r := range batch {
		if r.state.Load() != abandoned {
			return false
		}
	}
	return true
}

// send makes one attempt. It keeps the connection only when the database has answered with a result or rejected the input.
func (w *writer) send(batch []*request) (outcomes []outcome, events int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), w.timeout)
	defer cancel()
	if err := w.connect(ctx); err != nil {
		return nil, 0, err
	}
	a := argumentsOf(batch)
	answer, err := a.call(ctx, w.conn, w.replicas.position())
	if !waited(w.conn.PgConn()) && err == nil {
		err = errCancelledWait // sent again, it is waited for
	}
	if err != nil {
		if kindOf(err) != invalidInput {
			w.disconnect()
		}
		return nil, 0, err
	}
	outcomes, stored, complete := a.outcomes(batch, answer)
	w.replicas.committed(stored.end)
	w.appended(stored, complete)
	return outcomes, len(a.eventWrite), nil
}

// arguments are a batch in the form of the arguments of log.append, which documents them.
type arguments struct {
	stream []string
	expect []int64
	first  []pgtype.UUID

	writeAppend, writeExpectation []int32

	eventWrite, eventPlace []int32
	eventID                []pgtype.UUID
	eventAt                []time.Time
	eventType              []string
	eventData              [][]byte
	eventMetadata          []int32
	metadata               [][]byte

	keyWrite    []int32
	keyID       []int64
	keySealedBy []string
	keySealed   [][]byte
}

func argumentsOf(batch []*request) *arguments {
	a := &arguments{}
	type check struct {
		stream string
		expect eventstore.Expected
	}
	checks := map[check]int32{} // many appends check the same
	expectation := func(w eventstore.Write) int32 {
		c := check{w.Stream, w.Expect}
		if n := checks[c]; n > 0 && len(w.Events) == 0 {
			return n
		}
		var first pgtype.UUID
		if len(w.Events) > 0 && w.Expect == eventstore.Any {
			first = pgtype.UUID{Bytes: w.Events[0].ID, Valid: true}
		}
		a.stream, a.expect, a.first = append(a.stream, w.Stream), append(a.expect, int64(w.Expect)), append(a.first, first)
		n := int32(len(a.stream))
		if len(w.Events) == 0 {
			checks[c] = n
		}
		return n
	}
	for i, r := range batch {
		event := 0
		for _, w := range r.writes {
			a.writeAppend, a.writeExpectation = append(a.writeAppend, int32(i+1)), append(a.writeExpectation, expectation(w))
			write := int32(len(a.writeAppend))
			if w.Key != nil && len(w.Events) > 0 {
				a.keyWrite, a.keyID = append(a.keyWrite, write), append(a.keyID, w.Key.ID)
				a.keySealedBy, a.keySealed = append(a.keySealedBy, w.Key.SealedBy), append(a.keySealed, w.Key.Sealed)
			}
			for place, e := range w.Events {
				if event == 0 || !same(r.metadata[event], r.metadata[event-1]) {
					a.metadata = append(a.metadata, r.metadata[event])
				}
				a.eventWrite, a.eventPlace = append(a.eventWrite, write), append(a.eventPlace, int32(place))
				a.eventID, a.eventAt = append(a.eventID, pgtype.UUID{Bytes: e.ID, Valid: true}), append(a.eventAt, e.At)
				a.eventType, a.eventData = append(a.eventType, e.Type), append(a.eventData, e.Data)
				a.eventMetadata = append(a.eventMetadata, int32(len(a.metadata)))
				event++
			}
		}
	}
	return a
}

// same reports whether two events share the memory of their encoded metadata.
func same(a, b []byte) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

// answer is what log.append returns.
type answer struct {
	head      int64
	revisions []int64
	refused   []int32
	stored    []int64
}

const callAppend = `SELECT head, revisions, refused, stored
  FROM log.append($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)`

// call calls log.append. The call is a transaction.
func (a *arguments) call(ctx context.Context, conn *pgx.Conn, replicated eventstore.Position) (answer answer, err error) {
	err = conn.QueryRow(ctx, callAppend,
		a.stream, a.expect, a.first, a.writeAppend, a.writeExpectation,
		a.eventWrite, a.eventPlace, a.eventID, a.eventAt, a.eventType, a.eventData, a.eventMetadata, a.metadata,
		a.keyWrite, a.keyID, a.keySealedBy, a.keySealed, int64(replicated),
	).Scan(&answer.head, &answer.revisions, &answer.refused, &answer.stored)
	return answer, err
}

// outcomes returns what the answer means for each append of the batch, and what the batch stored. Complete is false when an append of
// it had been stored before.
func (a *arguments) outcomes(batch []*request, answer answer) (outcomes []outcome, stored appended, complete bool) {
	outcomes, complete = make([]outcome, len(batch)), true
	head := eventstore.Position(answer.head)
	stored = appended{after: head, end: head}
	expectations, refused := a.writeExpectation, 0
	for i, r := range batch {
		switch {
		case refused < len(answer.refused) && int(answer.refused[refused]) == i+1:
			if position := answer.stored[refused]; position > 0 {
				outcomes[i].position, complete = eventstore.Position(position), false
			} else {
				outcomes[i].err = conflict(r, expectations, answer.revisions)
			}
			refused++
		case len(r.metadata) == 0: // checks alone
			outcomes[i].position = head
		default:
			for j, w := range r.writes {
				if len(w.Events) > 0 {
					revision := eventstore.Revision(answer.revisions[expectations[j]-1]) + 1
					stored.runs = append(stored.runs, run{w.Stream, stored.end + 1, revision, w.Events})
					stored.end += eventstore.Position(len(w.Events))
				}
			}
			stored.bytes += r.bytes
			outcomes[i].position = stored.end
		}
		expectations = expectations[len(r.writes):]
	}
	return outcomes, stored, complete
}

// conflict returns the error about the first write of a refused append whose stream is not as expected.
func conflict(r *request, expectations []int32, revisions []int64) *eventstore.ConflictError {
	var found *eventstore.ConflictError
	for i, w := range r.writes {
		actual := eventstore.Expected(revisions[expectations[i]-1])
		if w.Expect == actual || w.Expect == eventstore.Any && (len(w.Events) == 0 || found != nil) {
			continue
		}
		found = &eventstore.ConflictError{Stream: w.Stream, Expected: w.Expect, Actual: actual}
		if w.Expect != eventstore.Any { // which conflicts when some of its events were stored before
			break
		}
	}
	return found
}

func (w *writer) connect(ctx context.Context) (err error) {
	if w.conn != nil {
		return nil
	}
	if w.conn, err = connectWithoutCancel(ctx, w.config); err != nil {
		return err
	}
	if err = w.connected(ctx, w.conn); err != nil {
		w.disconnect()
	}
	return err
}

// connectWithoutCancel makes a connection that sends no cancel request when it is closed during a call. Such a request would end
// the wait for a synchronous standby, and show events that no standby has. The server ends other calls by its statement timeout.
func connectWithoutCancel(ctx context.Context, config *pgx.ConnConfig) (*pgx.Conn, error) {
	config = config.Copy()
	dial := config.DialFunc
	var connected atomic.Bool
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if connected.Load() {
			return nil, errors.New("no cancel requests")
		}
		return dial(ctx, network, address)
	}
	defer connected.Store(true)
	return pgx.ConnectConfig(ctx, config)
}

func (w *writer) disconnect() {
	closeConn(w.conn)
	w.conn = nil
}

// closeConn closes a connection that is broken or no longer needed, if there is one.
func closeConn(conn *pgx.Conn) {
	if conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

// errorKind classifies the errors of the database.
type errorKind int

const (
	transient     errorKind = iota // the connection, the server or other sessions; the outcome is not known
	invalidInput                   // of one append
	misconfigured                  // the schema, permissions, or a log that has lost events: retrying does not help
)

func kindOf(err error) errorKind {
	if errors.Is(err, eventstore.ErrDiverged) {
		return misconfigured
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || len(pg.Code) < 2 {
		return transient
	}
	switch pg.Code[:2] {
	case "22", "23", "54":
		return invalidInput
	case "42", "3F":
		return misconfigured
	}
	return transient
}
