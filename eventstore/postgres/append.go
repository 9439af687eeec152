package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/migration"
)

const (
	maxBatch      = 512     // appends
	maxBatchBytes = 2 << 20 // of appends together

	// lookUpsAfterRefusal is for how many batches log.append looks up every stream after an append was refused.
	// Presuming that streams are new saves a fifth of its time, but doubles it when a stream exists, and leaves dead
	// rows. A process that wrongly presumed this once often does so again.
	lookUpsAfterRefusal = 32
)

// Append implements eventstore.Store, as eventstore.Queue does.
func (s *Store) Append(ctx context.Context, writes ...eventstore.Write) (eventstore.Position, error) {
	if len(writes) == 0 {
		return s.Head(ctx)
	}
	return s.queue.Append(ctx, writes...)
}

// request is an append of a batch.
type request struct {
	writes   []eventstore.Write
	metadata [][]byte // encoded, of each event in order
	bytes    int
	outcome  outcome
}

type outcome struct {
	position eventstore.Position
	err      error
}

func newRequest(a eventstore.Append) (*request, error) {
	r := &request{writes: a.Writes, bytes: a.Bytes}
	var previous event.Metadata
	var encoded []byte
	for _, w := range a.Writes {
		for _, e := range w.Events {
			if encoded == nil || e.Metadata != previous {
				var err error
				if encoded, err = e.Metadata.Encode(); err != nil {
					return nil, fmt.Errorf("%w: metadata of %s: %w", eventstore.ErrInvalid, e.Type, err)
				}
				previous = e.Metadata
			}
			r.metadata = append(r.metadata, encoded)
		}
	}
	return r, nil
}

// writer is the single appender of a process, with its own connection.
type writer struct {
	config    *pgx.ConnConfig
	conn      *pgx.Conn // nil while disconnected
	lookUps   int       // number of further batches that do not presume that streams are new
	timeout   time.Duration
	failing   bool          // the last attempt failed, and was logged
	ended     chan struct{} // closed after the last append
	replicas  *replicated
	connected func(context.Context, *pgx.Conn) error // checks a new connection
	appended  func(last mark)                        // called after events were appended; 0: it is unknown which
	onBatch   func(Batch)                            // called after a batch
	log       *slog.Logger
}

func newWriter(config *pgx.ConnConfig, timeout time.Duration, log *slog.Logger) *writer {
	config = named(config, "writer")
	config.RuntimeParams["statement_timeout"] = fmt.Sprint(timeout.Milliseconds())
	config.RuntimeParams["enable_bitmapscan"] = "off"
	return &writer{
		config: config, timeout: timeout, ended: make(chan struct{}), replicas: &replicated{},
		connected: func(context.Context, *pgx.Conn) error { return nil }, appended: func(mark) {},
		onBatch: func(Batch) {},
		log:     log,
	}
}

// appendGroup is an eventstore.AppendGroup that writes a group in one transaction. Its appends were prepared by
// newRequest.
func (w *writer) appendGroup(ctx context.Context, group []eventstore.Append) []eventstore.Result {
	batch, results := make([]*request, len(group)), make([]eventstore.Result, len(group))
	for i, a := range group {
		batch[i] = a.Prepared.(*request)
	}
	w.commit(ctx, batch)
	for i, r := range batch {
		results[i] = eventstore.Result{Position: r.outcome.position, Err: r.outcome.err}
	}
	return results
}

// close disconnects after the last append.
func (w *writer) close() {
	w.disconnect()
	close(w.ended)
}

// commit writes a batch and sets the outcomes. It retries transient errors until the context is done; if an earlier
// attempt was written, log.append recognises its events.
func (w *writer) commit(ctx context.Context, batch []*request) {
	fail := func(err error) {
		for _, r := range batch {
			r.outcome = outcome{err: err}
		}
	}
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 250*time.Millisecond) {
		began := time.Now()
		outcomes, events, err := w.send(batch)
		switch kind := kindOf(err); {
		case err == nil:
			if w.failing {
				w.log.Info("appends succeed again")
			}
			w.failing = false
			w.onBatch(Batch{Appends: len(batch), Events: events, Took: time.Since(began)})
			for i, r := range batch {
				r.outcome = outcomes[i]
			}
			return
		case kind == invalidInput && len(batch) == 1:
			fail(fmt.Errorf("the database rejects the append: %w", err))
			return
		case kind == invalidInput:
			w.commit(ctx, batch[:len(batch)/2])
			w.commit(ctx, batch[len(batch)/2:])
			return
		case kind == misconfigured:
			w.log.Error("the log cannot be written", "error", err)
			fail(unavailable(context.Background(), err))
			return
		}
		if !w.failing {
			w.log.Warn("the log cannot be written, retrying", "error", err)
		}
		w.failing = true
		w.appended(mark{}) // the batch may have been written
		if eventstore.Sleep(ctx, pause) != nil {
			fail(unavailable(ctx, err))
			return
		}
	}
}

// send makes one attempt. It keeps the connection only if the database returned a result or rejected the input.
func (w *writer) send(batch []*request) (outcomes []outcome, events int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), w.timeout)
	defer cancel()
	if err := w.connect(ctx); err != nil {
		return nil, 0, err
	}
	arguments := argumentsOf(batch)
	answer, err := arguments.call(ctx, w.conn, w.replicas.position(), w.lookUps == 0)
	if !waited(w.conn.PgConn()) && err == nil {
		err = errCancelledWait // the retry waits for the standby
	}
	if err != nil {
		if kindOf(err) != invalidInput {
			w.disconnect()
		}
		return nil, 0, err
	}
	if len(answer.refused) > 0 {
		w.lookUps = lookUpsAfterRefusal
	} else if w.lookUps > 0 {
		w.lookUps--
	}
	outcomes, last, repeated := arguments.outcomes(batch, answer)
	w.replicas.committed(last.position)
	switch {
	case last.position > eventstore.Position(answer.head):
		w.appended(last)
	case repeated:
		w.appended(mark{})
	}
	return outcomes, len(arguments.eventID), nil
}

// arguments are a batch in the form of the arguments of log.append, which documents them.
type arguments struct {
	stream                        []string
	expect                        []int64
	first                         pgtype.FlatArray[pgtype.UUID]
	writeAppend, writeExpectation []int32
	eventWrite, eventOffset       []int32
	eventID                       pgtype.FlatArray[pgtype.UUID]
	eventAt                       []time.Time
	eventType                     []string
	eventData                     [][]byte
	eventMetadata                 []int32
	metadata                      [][]byte
	keyWrite                      []int32
	keyID                         []int64
	keySealedBy                   []string
	keySealed                     [][]byte
	contentWrite                  []int32
	contentKey                    []int64
	contentHash, contentSealed    [][]byte
}

func argumentsOf(batch []*request) *arguments {
	a := &arguments{}
	type check struct {
		stream string
		expect eventstore.Expected
	}
	checks := map[check]int32{} // many appends have the same checks
	expectation := func(w eventstore.Write) int32 {
		c := check{w.Stream, w.Expect}
		if n := checks[c]; n > 0 && len(w.Events) == 0 {
			return n
		}
		a.stream, a.expect = append(a.stream, w.Stream), append(a.expect, int64(w.Expect))
		n := int32(len(a.stream))
		if len(w.Events) > 0 {
			a.first = append(a.first, uuid(w.Events[0]))
		} else {
			a.first = append(a.first, pgtype.UUID{})
			checks[c] = n
		}
		return n
	}
	for i, r := range batch {
		event := 0
		for _, w := range r.writes {
			a.writeExpectation = append(a.writeExpectation, expectation(w))
			a.writeAppend = append(a.writeAppend, int32(i+1))
			n := int32(len(a.writeAppend))
			if w.Key != nil && len(w.Events) > 0 {
				a.keyWrite, a.keyID = append(a.keyWrite, n), append(a.keyID, w.Key.ID)
				a.keySealedBy, a.keySealed = append(a.keySealedBy, w.Key.SealedBy), append(a.keySealed, w.Key.Sealed)
			}
			for _, c := range w.Contents {
				a.contentWrite, a.contentKey = append(a.contentWrite, n), append(a.contentKey, c.KeyID)
				a.contentHash, a.contentSealed = append(a.contentHash, c.Hash), append(a.contentSealed, c.Sealed)
			}
			for offset, e := range w.Events {
				if event == 0 || !same(r.metadata[event], r.metadata[event-1]) {
					a.metadata = append(a.metadata, r.metadata[event])
				}
				a.eventWrite, a.eventOffset = append(a.eventWrite, n), append(a.eventOffset, int32(offset))
				a.eventID, a.eventAt = append(a.eventID, uuid(e)), append(a.eventAt, e.At)
				a.eventType, a.eventData = append(a.eventType, e.Type), append(a.eventData, e.Data)
				a.eventMetadata = append(a.eventMetadata, int32(len(a.metadata)))
				event++
			}
		}
	}
	return a
}

func uuid(e eventstore.Event) pgtype.UUID { return pgtype.UUID{Bytes: e.ID, Valid: true} }

// same reports whether two events share the memory of their encoded metadata.
func same(a, b []byte) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

// answer is the result of log.append.
type answer struct {
	head      int64
	revisions []int64
	refused   []int32
	stored    []int64
}

// callName is the name of the prepared call of log.append on the writer's connection.
const (
	callName   = "append"
	callAppend = `SELECT head, revisions, refused, stored
  FROM log.append($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22,
    $23)`
)

// call calls log.append. The call is one transaction.
func (a *arguments) call(
	ctx context.Context, conn *pgx.Conn, replicated eventstore.Position, presumeNew bool,
) (answer answer, err error) {
	err = conn.QueryRow(ctx, callName, a.stream, a.expect, a.first, a.writeAppend, a.writeExpectation,
		a.eventWrite, a.eventOffset, a.eventID, a.eventAt, a.eventType, a.eventData, a.eventMetadata, a.metadata,
		a.keyWrite, a.keyID, a.keySealedBy, a.keySealed,
		a.contentWrite, a.contentKey, a.contentHash, a.contentSealed, int64(replicated), presumeNew,
	).Scan(&answer.head, &answer.revisions, &answer.refused, &answer.stored)
	return answer, err
}

// outcomes returns the outcome of each append of the batch, and the last event that was stored: the earlier head,
// without an id, if none was. Repeated reports whether an append of the batch had been stored before.
func (a *arguments) outcomes(batch []*request, answer answer) (outcomes []outcome, last mark, repeated bool) {
	outcomes = make([]outcome, len(batch))
	head := eventstore.Position(answer.head)
	last.position = head
	expectations, refused := a.writeExpectation, 0
	for i, r := range batch {
		switch {
		case refused < len(answer.refused) && int(answer.refused[refused]) == i+1:
			if position := answer.stored[refused]; position > 0 {
				outcomes[i].position, repeated = eventstore.Position(position), true
			} else {
				outcomes[i].err = conflict(r, expectations, answer.revisions)
			}
			refused++
		case len(r.metadata) == 0: // only checks
			outcomes[i].position = head
		default:
			for _, w := range r.writes {
				if n := len(w.Events); n > 0 {
					last.position, last.id = last.position+eventstore.Position(n), w.Events[n-1].ID
				}
			}
			outcomes[i].position = last.position
		}
		expectations = expectations[len(r.writes):]
	}
	return outcomes, last, repeated
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
		if w.Expect != eventstore.Any { // Any conflicts if some of its events were stored before
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
	if err = w.connected(ctx, w.conn); err == nil {
		_, err = w.conn.Prepare(ctx, callName, callAppend)
	}
	if err != nil {
		w.disconnect()
	}
	return err
}

// connectWithoutCancel returns a connection that sends no cancel request when it is closed during a call. A cancel
// request would end the wait for a synchronous standby, and make events visible that no standby has. The statement
// timeout of the server ends other calls.
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
	return migration.Connect(ctx, config)
}

func (w *writer) disconnect() {
	closeConn(w.conn)
	w.conn = nil
}

// closeConn closes a connection that is broken or no longer needed, unless it is nil.
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
	// the connection, the server or other sessions; it is unknown whether the batch was written
	transient     errorKind = iota
	invalidInput            // of one append
	misconfigured           // the schema, permissions, or a log that has lost events; a retry does not help
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
