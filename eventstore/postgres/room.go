package postgres

import (
	"slices"

	"github.com/jackc/pgx/v5/pgconn"
)

// room is memory for what goes over one connection, kept from batch to batch. The driver begins each time with 1 KiB, and
// moves what it has into twice as much until a batch fits in.
//
// To the driver it is a message of no bytes. It belongs to one connection: a broken one may still be written to by the
// driver, which says goodbye.
type room struct{ buffer []byte }

// beside is what a call takes beside its arguments, in bytes and with some to spare.
const beside = 256

// reserve has the next messages of the connection, of so many bytes, written into the room.
func (r *room) reserve(conn *pgconn.PgConn, size int) {
	if cap(r.buffer) > maxKept && size <= maxKept {
		r.buffer = nil // much more than most need
	}
	r.buffer = slices.Grow(r.buffer[:0], size)
	conn.Frontend().Send(r)
}

// Encode implements pgproto3.FrontendMessage.
func (r *room) Encode(before []byte) ([]byte, error) { return append(r.buffer, before...), nil }

// Decode implements pgproto3.FrontendMessage. Nobody sends it here.
func (*room) Decode([]byte) error { return nil }

// Frontend implements pgproto3.FrontendMessage.
func (*room) Frontend() {}
