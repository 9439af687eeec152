package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/leadlog/leadlog/eventstore"
)

const callAppend = `SELECT head, revisions, refused, stored FROM log.append(
	$1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)`

// The arguments of log.append, in its order, but for the last; what they mean is said there.
const (
	expectedStream = iota
	expectedRevision
	expectedFirst
	writeAppend
	writeExpected
	eventAppend
	eventExpected
	eventPlace
	eventNumber
	eventID
	eventAt
	eventType
	eventData
	eventMetadata
	metadata
	keyAppend
	keyExpected
	keyID
	keySealedBy
	keySealed
	arguments
	expectedLook = arguments // of log.append_whole
	all          = arguments + 1
)

var elementTypes = [all]uint32{
	expectedStream: pgtype.TextOID, expectedRevision: pgtype.Int8OID, expectedFirst: pgtype.UUIDOID,
	writeAppend: pgtype.Int4OID, writeExpected: pgtype.Int4OID,
	eventAppend: pgtype.Int4OID, eventExpected: pgtype.Int4OID, eventPlace: pgtype.Int4OID, eventNumber: pgtype.Int4OID,
	eventID: pgtype.UUIDOID, eventAt: pgtype.TimestamptzOID, eventType: pgtype.TextOID, eventData: pgtype.ByteaOID,
	eventMetadata: pgtype.Int4OID, metadata: pgtype.ByteaOID,
	keyAppend: pgtype.Int4OID, keyExpected: pgtype.Int4OID,
	keyID: pgtype.Int8OID, keySealedBy: pgtype.TextOID, keySealed: pgtype.ByteaOID,
	expectedLook: pgtype.Int4OID,
}

// columns are a batch in the form of the arguments of log.append and log.append_whole. Their memory is used for every batch.
type columns struct {
	arrays   [all]array
	expected []int32               // per write: the number of what it expects
	believed []int64               // per expectation: the revision
	shared   map[expectation]int32 // numbers of what checks expect: many expect the same
	any      bool                  // something expects nothing
}

type expectation struct {
	stream string
	expect eventstore.Expected
}

// fill encodes a batch.
func (c *columns) fill(batch []*request) {
	c.reset()
	a := &c.arrays
	for i, r := range batch {
		number := int32(i + 1)
		event := 0
		for _, write := range r.writes {
			expected := c.expect(write)
			a[writeAppend].element32(number)
			a[writeExpected].element32(expected)
			if write.Key != nil && len(write.Events) > 0 {
				a[keyAppend].element32(number)
				a[keyExpected].element32(expected)
				a[keyID].element64(write.Key.ID)
				a[keySealedBy].text(write.Key.SealedBy)
				a[keySealed].raw(write.Key.Sealed)
			}
			for place, e := range write.Events {
				a[eventAppend].element32(number)
				a[eventExpected].element32(expected)
				a[eventPlace].element32(int32(place))
				a[eventNumber].element32(int32(a[eventAppend].n))
				a[eventID].raw(e.ID[:])
				a[eventAt].time(e.At)
				a[eventType].text(e.Type)
				a[eventData].raw(e.Data)
				if event == 0 || !same(r.metadata[event], r.metadata[event-1]) {
					a[metadata].raw(r.metadata[event])
				}
				a[eventMetadata].element32(int32(a[metadata].n))
				event++
			}
		}
	}
	if !c.any {
		a[expectedFirst].reset()
	}
}

func (c *columns) reset() {
	for i := range c.arrays {
		c.arrays[i].element = elementTypes[i]
		c.arrays[i].reset()
	}
	c.expected, c.believed, c.any = c.expected[:0], c.believed[:0], false
	if c.shared == nil {
		c.shared = make(map[expectation]int32)
	}
	clear(c.shared)
}

// same reports whether two events share the memory of their encoded metadata.
func same(a, b []byte) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

// expect returns the number of what a write expects.
func (c *columns) expect(write eventstore.Write) (number int32) {
	check := len(write.Events) == 0
	key := expectation{write.Stream, write.Expect}
	if check {
		number = c.shared[key]
	}
	if number == 0 {
		a := &c.arrays
		a[expectedStream].text(write.Stream)
		a[expectedRevision].element64(int64(write.Expect))
		c.believed = append(c.believed, int64(write.Expect))
		c.any = c.any || write.Expect == eventstore.Any
		if !check && write.Expect == eventstore.Any {
			a[expectedFirst].raw(write.Events[0].ID[:])
		} else {
			a[expectedFirst].null()
		}
		number = int32(a[expectedStream].n)
		if check || write.Expect != eventstore.NoStream {
			a[expectedLook].element32(number)
		}
		if check {
			c.shared[key] = number
		}
	}
	c.expected = append(c.expected, number)
	return number
}

// answer is what log.append returns.
type answer struct {
	head      int64
	revisions []int64
	refused   []int64
	stored    []int64
}

// call writes the batch by log.append, which is prepared on the connection.
func (c *columns) call(
	conn *pgconn.PgConn, prepared *pgconn.StatementDescription, buffer *sendBuffer, replicated eventstore.Position,
) (a answer, err error) {
	var values [arguments + 1][]byte
	for i := range arguments {
		values[i] = c.arrays[i].bytes()
	}
	values[arguments] = binary.BigEndian.AppendUint64(nil, uint64(replicated))
	row, err := roundTrip(conn, prepared, buffer, values[:])
	if err != nil {
		return a, err
	}
	if len(row) != 4 || len(row[0]) != 8 {
		return a, errors.New("log.append answers otherwise than this program knows")
	}
	a.head = int64(binary.BigEndian.Uint64(row[0]))
	for i, into := range []*[]int64{&a.revisions, &a.refused, &a.stored} {
		if *into, err = integers(row[i+1]); err != nil {
			return a, err
		}
	}
	return a, nil
}

// roundTrip calls a function, which is a transaction, and returns its one row.
func roundTrip(conn *pgconn.PgConn, prepared *pgconn.StatementDescription, buffer *sendBuffer, values [][]byte) ([][]byte, error) {
	size := beside
	for _, v := range values {
		size += 4 + len(v)
	}
	buffer.reserve(conn, size)
	binaryFormat := []int16{pgx.BinaryFormatCode}
	result := conn.ExecStatement(context.Background(), prepared, values, binaryFormat, binaryFormat).Read()
	if result.Err != nil {
		return nil, result.Err
	}
	if len(result.Rows) != 1 {
		return nil, fmt.Errorf("%d rows from a function of the log", len(result.Rows))
	}
	return result.Rows[0], nil
}

// outcomes returns what the answer means for each append of the batch.
func (c *columns) outcomes(batch []*request, a answer) []outcome {
	outcomes := make([]outcome, len(batch))
	position := eventstore.Position(a.head)
	expected, refused := c.expected, 0
	for i, r := range batch {
		switch {
		case refused < len(a.refused) && a.refused[refused] == int64(i+1):
			if there := a.stored[refused]; there > 0 {
				outcomes[i].position = eventstore.Position(there)
			} else {
				outcomes[i].err = conflict(r, expected, a.revisions)
			}
			refused++
		case len(r.metadata) == 0: // checks alone
			outcomes[i].position = eventstore.Position(a.head)
		default:
			position += eventstore.Position(len(r.metadata))
			outcomes[i].position = position
		}
		expected = expected[len(r.writes):]
	}
	return outcomes
}

// conflict returns the error about the first write of a refused append whose stream is not as expected.
func conflict(r *request, expected []int32, revisions []int64) *eventstore.ConflictError {
	var found *eventstore.ConflictError
	for i, write := range r.writes {
		actual := eventstore.Expected(revisions[expected[i]-1])
		if write.Expect == actual || write.Expect == eventstore.Any && (len(write.Events) == 0 || found != nil) {
			continue
		}
		found = &eventstore.ConflictError{Stream: write.Stream, Expected: write.Expect, Actual: actual}
		if write.Expect != eventstore.Any { // which is wrong when a part of its events is there already
			break
		}
	}
	return found
}
