package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/leadlog/leadlog/eventstore"
)

const callAppend = `SELECT head, positions, unexpected, revisions FROM log.append(
	$1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)`

// commit writes a batch and answers its callers. Whatever may pass is tried again for as long as one of them waits:
// what was written and not heard of is recognised then.
func (w *writer) commit(batch []*request) {
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 250*time.Millisecond) {
		outcomes, err := w.send(batch)
		switch cause := causeOf(err); {
		case err == nil:
			w.succeeded()
			for i, r := range batch {
				r.done <- outcomes[i]
			}
			return
		case cause == theData && len(batch) == 1:
			batch[0].done <- outcome{err: fmt.Errorf("the database refuses the append: %w", err)}
			return
		case cause == theData:
			w.commit(batch[:len(batch)/2])
			w.commit(batch[len(batch)/2:])
			return
		case cause == theSetup:
			w.log.Error("the log cannot be written", "error", err)
			for _, r := range batch {
				r.done <- outcome{err: unavailable(context.Background(), err)}
			}
			return
		}
		w.failed(err)
		time.Sleep(pause)
		if abandoned(batch) {
			return
		}
	}
}

// failed and succeeded tell the log of the first failure and of the end of the trouble, not of each attempt.
func (w *writer) failed(err error) {
	if w.failure.Swap(&err) == nil {
		w.log.Warn("the log cannot be written for now; trying on", "error", err)
	}
}

func (w *writer) succeeded() {
	if w.failure.Swap(nil) != nil {
		w.log.Info("the log is written again")
	}
}

func abandoned(batch []*request) bool {
	for _, r := range batch {
		if !r.abandoned() {
			return false
		}
	}
	return true
}

// send makes one attempt. It keeps the connection only when the database has answered with a result or refused
// the data.
func (w *writer) send(batch []*request) ([]outcome, error) {
	ctx, cancel := context.WithTimeout(context.Background(), w.patience)
	defer cancel()
	if w.conn == nil {
		conn, err := pgx.ConnectConfig(ctx, w.config)
		if err != nil {
			return nil, err
		}
		w.conn = conn
	}
	w.columns.fill(batch)
	var a answer
	err := w.conn.QueryRow(ctx, callAppend, w.columns.arguments()...).Scan(&a.head, &a.positions, &a.unexpected, &a.revisions)
	if err != nil {
		if causeOf(err) != theData {
			w.disconnect()
		}
		return nil, err
	}
	return a.outcomes(batch, w.columns.writeStream), nil
}

func (w *writer) disconnect() {
	if w.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = w.conn.Close(ctx) // broken already, or no longer needed
	w.conn = nil
}

// answer is what log.append returns.
type answer struct {
	head       int64
	positions  []int64
	unexpected []int32
	revisions  []int64
}

func (a *answer) outcomes(batch []*request, writeStream []int32) []outcome {
	outcomes := make([]outcome, len(batch))
	first := 0 // index of the request's first write among all
	for i, r := range batch {
		if wrong := int(a.unexpected[i]); wrong == 0 {
			outcomes[i].position = eventstore.Position(a.positions[i])
		} else {
			write := r.writes[wrong-1-first]
			outcomes[i].err = &eventstore.ConflictError{
				Stream:   write.Stream,
				Expected: write.Expect,
				Actual:   eventstore.Expected(a.revisions[writeStream[wrong-1]-1]),
			}
		}
		first += len(r.writes)
	}
	return outcomes
}

// columns are the arguments of log.append, kept from batch to batch for their memory.
type columns struct {
	index map[string]int32 // of each stream

	streams []string
	probe   []pgtype.UUID

	writeAppend, writeStream []int32
	writeExpect              []int64
	writeEvents              []int32

	eventAppend, eventWrite []int32
	eventStream             []string
	eventPlace, eventAfter  []int32
	eventID                 [][16]byte
	eventAt                 []time.Time
	eventType               []string
	eventData               [][]byte
	eventMetadata           [][]byte
}

func (c *columns) arguments() []any {
	return []any{
		c.streams, c.probe,
		c.writeAppend, c.writeStream, c.writeExpect, c.writeEvents,
		c.eventAppend, c.eventWrite, c.eventStream, c.eventPlace, c.eventAfter,
		c.eventID, c.eventAt, c.eventType, c.eventData, c.eventMetadata,
	}
}

func (c *columns) fill(batch []*request) {
	c.reset()
	for i, r := range batch {
		events := int32(len(r.metadata))
		done := int32(0)
		for _, write := range r.writes {
			c.writeAppend = append(c.writeAppend, int32(i+1))
			c.writeStream = append(c.writeStream, c.stream(write))
			c.writeExpect = append(c.writeExpect, int64(write.Expect))
			c.writeEvents = append(c.writeEvents, events)
			for place, e := range write.Events {
				done++
				c.eventAppend = append(c.eventAppend, int32(i+1))
				c.eventWrite = append(c.eventWrite, int32(len(c.writeAppend)))
				c.eventStream = append(c.eventStream, write.Stream)
				c.eventPlace = append(c.eventPlace, int32(place))
				c.eventAfter = append(c.eventAfter, events-done)
				c.eventID = append(c.eventID, e.ID)
				c.eventAt = append(c.eventAt, e.At)
				c.eventType = append(c.eventType, e.Type)
				c.eventData = append(c.eventData, e.Data)
				c.eventMetadata = append(c.eventMetadata, r.metadata[done-1])
			}
		}
	}
}

// stream returns a stream's number, from 1.
func (c *columns) stream(write eventstore.Write) int32 {
	number, known := c.index[write.Stream]
	if !known {
		number = int32(len(c.streams) + 1)
		c.index[write.Stream] = number
		c.streams = append(c.streams, write.Stream)
		c.probe = append(c.probe, pgtype.UUID{})
	}
	if write.Expect == eventstore.Any && len(write.Events) > 0 {
		c.probe[number-1] = pgtype.UUID{Bytes: write.Events[0].ID, Valid: true}
	}
	return number
}

// reset empties the columns. What they held is let go: data may be large.
func (c *columns) reset() {
	clear(c.eventData)
	clear(c.eventMetadata)
	clear(c.eventStream)
	clear(c.streams)
	clear(c.index)
	*c = columns{
		index:   c.index,
		streams: c.streams[:0], probe: c.probe[:0],
		writeAppend: c.writeAppend[:0], writeStream: c.writeStream[:0], writeExpect: c.writeExpect[:0], writeEvents: c.writeEvents[:0],
		eventAppend: c.eventAppend[:0], eventWrite: c.eventWrite[:0], eventStream: c.eventStream[:0],
		eventPlace: c.eventPlace[:0], eventAfter: c.eventAfter[:0], eventID: c.eventID[:0], eventAt: c.eventAt[:0],
		eventType: c.eventType[:0], eventData: c.eventData[:0], eventMetadata: c.eventMetadata[:0],
	}
	if c.index == nil {
		c.index = make(map[string]int32)
	}
}

// cause is what an error of the database is due to.
type cause int

const (
	theMoment cause = iota // the connection, the server or other sessions: it may pass, and the outcome is not known
	theData                // what one append carries
	theSetup               // the schema or permissions: trying again does not help
)

func causeOf(err error) cause {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || len(pg.Code) < 2 {
		return theMoment
	}
	switch pg.Code[:2] {
	case "22", "23", "54":
		return theData
	case "42", "3F":
		return theSetup
	}
	return theMoment
}
