package postgres

import (
	"slices"

	"github.com/jackc/pgx/v5/pgconn"
)

// sendBuffer is memory for what goes over one connection, kept from batch to batch. The driver begins each time with 1 KiB, and
// moves what it has into twice as much until a batch fits in.
//
// To the driver it is a message of no bytes. It belongs to one connection: a broken one may still be written to by the
// driver, which says goodbye.
type sendBuffer struct{ bytes []byte }

// beside is what a call takes beside its arguments, in bytes and with some to spare.
const beside = 256

// reserve has the next messages of the connection, of so many bytes, written into the buffer.
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
