package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
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
	maxBatchBytes = 2 << 20 // of appends together

	// lookUpsAfterRefusal is for how many batches log.append looks up every stream after an append was refused. Presuming that streams are new
	// saves a fifth of its time, but doubles it when a stream exists, and leaves dead rows. A process that wrongly presumed this once often
	// does so again.
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
	conn      *pgx.Conn                    // nil while disconnected
	prepared  *pgconn.StatementDescription // the call of log.append
	arguments *arguments
	lookUps   int // number of further batches that do not presume that streams are new
	timeout   time.Duration
	failing   bool          // the last attempt failed
	ended     chan struct{} // closed after the last append
	replicas  *replicated
	connected func(context.Context, *pgx.Conn) error // checks a new connection
	appended  func(b appended, complete bool)        // called after a batch; b lacks appended events if not complete
	onBatch   func(Batch)                            // called after a batch
	log       *slog.Logger
}

func newWriter(config *pgx.ConnConfig, timeout time.Duration, log *slog.Logger) *writer {
	config = named(config, "writer")
	config.RuntimeParams["statement_timeout"] = fmt.Sprint(timeout.Milliseconds())
	config.RuntimeParams["enable_bitmapscan"] = "off"
	return &writer{
		config: config, timeout: timeout, ended: make(chan struct{}), replicas: &replicated{}, arguments: newArguments(),
		connected: func(context.Context, *pgx.Conn) error { return nil }, appended: func(appended, bool) {}, onBatch: func(Batch) {},
		log: log,
	}
}

// appendGroup is an eventstore.AppendGroup that writes a group in one transaction.
func (w *writer) appendGroup(ctx context.Context, group []eventstore.Append) []eventstore.Result {
	results, requests, batch := make([]eventstore.Result, len(group)), make([]*request, len(group)), make([]*request, 0, len(group))
	for i, a := range group {
		if requests[i], results[i].Err = newRequest(a); requests[i] != nil {
			batch = append(batch, requests[i])
		}
	}
	if len(batch) > 0 {
		w.commit(ctx, batch)
	}
	for i, r := range requests {
		if r != nil {
			results[i] = eventstore.Result{Position: r.outcome.position, Err: r.outcome.err}
		}
	}
	return results
}

// close disconnects after the last append.
func (w *writer) close() {
	w.disconnect()
	close(w.ended)
}

// commit writes a batch and sets the outcomes. It retries transient errors until the context is done; if an earlier attempt was written,
// log.append recognises its events.
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
			w.succeeded()
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
		w.failed(err)
		w.appended(appended{}, false) // the batch may have been written
		if eventstore.Sleep(ctx, pause) != nil {
			fail(unavailable(ctx, err))
			return
		}
	}
}

// failed and succeeded log only the first failure, and the first success after it.
func (w *writer) failed(err error) {
	if !w.failing {
		w.log.Warn("the log cannot be written, retrying", "error", err)
	}
	w.failing = true
}

func (w *writer) succeeded() {
	if w.failing {
		w.log.Info("appends succeed again")
	}
	w.failing = false
}

// send makes one attempt. It keeps the connection only if the database returned a result or rejected the input.
func (w *writer) send(batch []*request) (outcomes []outcome, events int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), w.timeout)
	defer cancel()
	if err := w.connect(ctx); err != nil {
		return nil, 0, err
	}
	w.arguments.fill(batch)
	answer, err := w.arguments.call(ctx, w.conn, w.prepared, w.replicas.position(), w.lookUps == 0)
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
	outcomes, stored, complete := w.arguments.outcomes(batch, answer)
	w.replicas.committed(stored.end)
	w.appended(stored, complete)
	return outcomes, int(w.arguments.eventWrite.n), nil
}

// arguments are a batch in the form of the arguments of log.append, which documents them. Their memory is reused for every batch.
type arguments struct {
	stream, expect, first         array
	writeAppend, writeExpectation array
	eventWrite, eventPlace        array
	eventID, eventAt              array
	eventType, eventData          array
	eventMetadata, metadata       array
	keyWrite, keyID               array
	keySealedBy, keySealed        array
	contentWrite, contentKey      array
	contentHash, contentSealed    array

	arrays       []*array // all of them, in the order of the parameters
	expectations []int32  // per write, as in writeExpectation
}

func newArguments() *arguments {
	a := &arguments{}
	add := func(array *array, elementType uint32) {
		array.elementType = elementType
		a.arrays = append(a.arrays, array)
	}
	add(&a.stream, pgtype.TextOID)
	add(&a.expect, pgtype.Int8OID)
	add(&a.first, pgtype.UUIDOID)
	add(&a.writeAppend, pgtype.Int4OID)
	add(&a.writeExpectation, pgtype.Int4OID)
	add(&a.eventWrite, pgtype.Int4OID)
	add(&a.eventPlace, pgtype.Int4OID)
	add(&a.eventID, pgtype.UUIDOID)
	add(&a.eventAt, pgtype.TimestamptzOID)
	add(&a.eventType, pgtype.TextOID)
	add(&a.eventData, pgtype.ByteaOID)
	add(&a.eventMetadata, pgtype.Int4OID)
	add(&a.metadata, pgtype.ByteaOID)
	add(&a.keyWrite, pgtype.Int4OID)
	add(&a.keyID, pgtype.Int8OID)
	add(&a.keySealedBy, pgtype.TextOID)
	add(&a.keySealed, pgtype.ByteaOID)
	add(&a.contentWrite, pgtype.Int4OID)
	add(&a.contentKey, pgtype.Int8OID)
	add(&a.contentHash, pgtype.ByteaOID)
	add(&a.contentSealed, pgtype.ByteaOID)
	return a
}

// fill replaces the batch.
func (a *arguments) fill(batch []*request) {
	for _, array := range a.arrays {
		array.reset()
	}
	a.expectations = a.expectations[:0]
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
		a.stream.text(w.Stream)
		a.expect.int64(int64(w.Expect))
		if len(w.Events) > 0 {
			a.first.bytes(w.Events[0].ID[:])
		} else {
			a.first.null()
			checks[c] = a.stream.n
		}
		return a.stream.n
	}
	for i, r := range batch {
		event := 0
		for _, w := range r.writes {
			n := expectation(w)
			a.expectations = append(a.expectations, n)
			a.writeAppend.int32(int32(i + 1))
			a.writeExpectation.int32(n)
			if w.Key != nil && len(w.Events) > 0 {
				a.keyWrite.int32(a.writeAppend.n)
				a.keyID.int64(w.Key.ID)
				a.keySealedBy.text(w.Key.SealedBy)
				a.keySealed.bytes(w.Key.Sealed)
			}
			for _, c := range w.Contents {
				a.contentWrite.int32(a.writeAppend.n)
				a.contentKey.int64(c.KeyID)
				a.contentHash.bytes(c.Hash)
				a.contentSealed.bytes(c.Sealed)
			}
			for place, e := range w.Events {
				if event == 0 || !same(r.metadata[event], r.metadata[event-1]) {
					a.metadata.bytes(r.metadata[event])
				}
				a.eventWrite.int32(a.writeAppend.n)
				a.eventPlace.int32(int32(place))
				a.eventID.bytes(e.ID[:])
				a.eventAt.time(e.At)
				a.eventType.text(e.Type)
				a.eventData.bytes(e.Data)
				a.eventMetadata.int32(a.metadata.n)
				event++
			}
		}
	}
}

// same reports whether two events share the memory of their encoded metadata.
func same(a, b []byte) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

// answer is the result of log.append.
type answer struct {
	head      int64
	revisions []int64
	refused   []int32
	stored    []int64
}

const callAppend = `SELECT head, revisions, refused, stored
  FROM log.append($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23)`

// call calls log.append. The call is one transaction.
func (a *arguments) call(
	ctx context.Context, conn *pgx.Conn, prepared *pgconn.StatementDescription, replicated eventstore.Position, presumeNew bool,
) (answer answer, err error) {
	values := make([][]byte, 0, len(a.arrays)+2)
	for _, array := range a.arrays {
		values = append(values, array.encoded())
	}
	presume := []byte{0}
	if presumeNew {
		presume[0] = 1
	}
	values = append(values, binary.BigEndian.AppendUint64(nil, uint64(replicated)), presume)
	formats := []int16{pgx.BinaryFormatCode} // of all arguments and columns
	result := conn.PgConn().ExecStatement(ctx, prepared, values, formats, formats).Read()
	if result.Err != nil {
		return answer, result.Err
	}
	if len(result.Rows) != 1 || len(result.Rows[0]) != 4 {
		return answer, errors.New("log.append has another result than this program expects")
	}
	scan := func(column int, oid uint32, into any) error {
		return conn.TypeMap().Scan(oid, pgx.BinaryFormatCode, result.Rows[0][column], into)
	}
	return answer, errors.Join(
		scan(0, pgtype.Int8OID, &answer.head), scan(1, pgtype.Int8ArrayOID, &answer.revisions),
		scan(2, pgtype.Int4ArrayOID, &answer.refused), scan(3, pgtype.Int8ArrayOID, &answer.stored),
	)
}

// array encodes a one-dimensional array in PostgreSQL's binary format, element by element, and reuses its memory for the next batch.
// Encoding slices with pgx takes 10 µs more processor time for the events of a capture, nearly a tenth of its total.
type array struct {
	elementType uint32 // OID
	n           int32
	hasNulls    bool
	buffer      []byte // the header, then each element preceded by its length
}

const (
	arrayHeader   = 20      // bytes: number of dimensions, whether there are nulls, type, number of elements, first index
	maxArrayBytes = 1 << 20 // a larger buffer is not reused; full batches of most leads are smaller
)

func (a *array) reset() {
	if cap(a.buffer) > maxArrayBytes {
		a.buffer = nil
	}
	a.n, a.hasNulls, a.buffer = 0, false, append(a.buffer[:0], make([]byte, arrayHeader)...)
}

func (a *array) int32(v int32) {
	a.n++
	a.buffer = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(a.buffer, 4), uint32(v))
}

func (a *array) int64(v int64) {
	a.n++
	a.buffer = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(a.buffer, 8), uint64(v))
}

func (a *array) time(t time.Time) { a.int64(t.UnixMicro() - postgresEpoch) }

func (a *array) text(s string) {
	a.n++
	a.buffer = append(binary.BigEndian.AppendUint32(a.buffer, uint32(len(s))), s...)
}

func (a *array) bytes(b []byte) {
	a.n++
	a.buffer = append(binary.BigEndian.AppendUint32(a.buffer, uint32(len(b))), b...)
}

func (a *array) null() {
	a.n++
	a.hasNulls = true
	a.buffer = binary.BigEndian.AppendUint32(a.buffer, math.MaxUint32)
}

// encoded returns the encoded array, which is valid until reset.
func (a *array) encoded() []byte {
	header := a.buffer[:arrayHeader]
	binary.BigEndian.PutUint32(header[8:], a.elementType)
	if a.n == 0 { // no dimension
		return header[:12]
	}
	binary.BigEndian.PutUint32(header, 1)
	if a.hasNulls {
		binary.BigEndian.PutUint32(header[4:], 1)
	}
	binary.BigEndian.PutUint32(header[12:], uint32(a.n))
	binary.BigEndian.PutUint32(header[16:], 1)
	return a.buffer
}

// outcomes returns the outcome of each append of the batch, and the stored events. Complete is false if an append of the batch had been
// stored before.
func (a *arguments) outcomes(batch []*request, answer answer) (outcomes []outcome, stored appended, complete bool) {
	outcomes, complete = make([]outcome, len(batch)), true
	head := eventstore.Position(answer.head)
	stored = appended{after: head, end: head}
	expectations, refused := a.expectations, 0
	for i, r := range batch {
		switch {
		case refused < len(answer.refused) && int(answer.refused[refused]) == i+1:
			if position := answer.stored[refused]; position > 0 {
				outcomes[i].position, complete = eventstore.Position(position), false
			} else {
				outcomes[i].err = conflict(r, expectations, answer.revisions)
			}
			refused++
		case len(r.metadata) == 0: // only checks
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
		w.prepared, err = w.conn.Prepare(ctx, "append", callAppend)
	}
	if err != nil {
		w.disconnect()
	}
	return err
}

// connectWithoutCancel returns a connection that sends no cancel request when it is closed during a call. A cancel request would end the
// wait for a synchronous standby, and make events visible that no standby has. The statement timeout of the server ends other calls.
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
	transient     errorKind = iota // the connection, the server or other sessions; it is unknown whether the batch was written
	invalidInput                   // of one append
	misconfigured                  // the schema, permissions, or a log that has lost events; a retry does not help
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
