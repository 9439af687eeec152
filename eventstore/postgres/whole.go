package postgres

import (
	"encoding/binary"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leadlog/leadlog/eventstore"
)

const callAppendWhole = `SELECT log.append_whole($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)`

// wholeArguments are what log.append_whole takes, in its order, but for the last.
var wholeArguments = [...]int{
	expectedStream, expectedRevision, expectedLook, eventExpected, eventPlace, eventNumber, eventID, eventAt, eventType, eventData,
	eventMetadata, metadata, keyExpected, keyID, keySealedBy, keySealed,
}

// pessimism is how many more batches are written by log.append, which first looks up every stream. log.append_whole is optimistic
// and costs a sixth less, but nearly twice as much for a batch in which anything is refused.
type pessimism int

// afterRefusal is large enough that a process with frequent conflicts, by known people whom it takes for new, nearly always uses
// log.append.
const afterRefusal pessimism = 32

// wrote counts a batch that log.append has written.
func (p *pessimism) wrote(a answer) {
	switch {
	case len(a.refused) > 0:
		*p = afterRefusal
	case *p > 0:
		*p--
	}
}

// write makes one attempt at the batch in the columns.
func (w *writer) write(replicated eventstore.Position) (answer, error) {
	conn := w.conn.PgConn()
	if w.pessimism == 0 && !w.columns.any {
		a, stored, err := w.columns.callWhole(conn, w.whole, w.buffer, replicated)
		if stored || err != nil {
			return a, err
		}
	}
	a, err := w.columns.call(conn, w.prepared, w.buffer, replicated)
	if err == nil {
		w.pessimism.wrote(a)
	}
	return a, err
}

// callWhole writes the batch by log.append_whole. Stored is false when nothing was written, because something is not as expected.
func (c *columns) callWhole(
	conn *pgconn.PgConn, prepared *pgconn.StatementDescription, buffer *sendBuffer, replicated eventstore.Position,
) (a answer, stored bool, err error) {
	var values [len(wholeArguments) + 1][]byte
	for i, argument := range wholeArguments {
		values[i] = c.arrays[argument].bytes()
	}
	values[len(wholeArguments)] = binary.BigEndian.AppendUint64(nil, uint64(replicated))
	row, err := roundTrip(conn, prepared, buffer, values[:])
	switch {
	case err != nil:
		return a, false, err
	case len(row) == 1 && row[0] == nil:
		return a, false, nil
	case len(row) != 1 || len(row[0]) != 8:
		return a, false, errors.New("log.append_whole answers otherwise than this program knows")
	}
	return answer{head: int64(binary.BigEndian.Uint64(row[0])), revisions: c.believed}, true, nil
}
