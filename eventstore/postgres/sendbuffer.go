package postgres

import (
	"slices"

	"github.com/jackc/pgx/v5/pgconn"
)

// sendBuffer is the memory in which messages for one connection are encoded, used for every batch. Otherwise the driver would
// start with 1 KiB each time, and copy everything into twice as much until a batch fits.
//
// To the driver it is a message of no bytes. It belongs to one connection, because the driver may still write to a broken one, to
// terminate the session.
type sendBuffer struct{ bytes []byte }

// beside is the size of a call without its arguments, in bytes, rounded up.
const beside = 256

// reserve makes the driver encode the next messages of the connection, of so many bytes, in the buffer.
func (b *sendBuffer) reserve(conn *pgconn.PgConn, size int) {
	if cap(b.bytes) > maxKept && size <= maxKept {
		b.bytes = nil // much more than most need
	}
	b.bytes = slices.Grow(b.bytes[:0], size)
	conn.Frontend().Send(b)
}

// Encode implements pgproto3.FrontendMessage.
func (b *sendBuffer) Encode(before []byte) ([]byte, error) { return append(b.bytes, before...), nil }

// Decode implements pgproto3.FrontendMessage. Nobody sends it here.
func (*sendBuffer) Decode([]byte) error { return nil }

// Frontend implements pgproto3.FrontendMessage.
func (*sendBuffer) Frontend() {}
