package view

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/projection/schema"
)

// rows are new rows of a table in the binary format of COPY, which is the fastest way into PostgreSQL and needs no
// allocation for each value. With CopyFrom of pgx instead, a replay of all views takes 1.09 of the processor time, and
// 1.23 of the program's part of it.
type rows struct {
	buffer []byte
	err    error // of the first value that could not be encoded
}

// makeRows returns empty rows with capacity for count rows of about size bytes each.
func makeRows(count, size int) rows {
	return rows{buffer: make([]byte, 0, len(copyHeader)+count*size+2)}
}

// copyHeader is the signature, without flags and extension.
const copyHeader = "PGCOPY\n\xff\r\n\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00"

// row starts a row. The caller appends that many values, in the order of the columns.
func (r *rows) row(columns int) {
	if len(r.buffer) == 0 {
		r.buffer = append(r.buffer, copyHeader...)
	}
	r.buffer = binary.BigEndian.AppendUint16(r.buffer, uint16(columns))
}

func (r *rows) text(value string) {
	r.buffer = binary.BigEndian.AppendUint32(r.buffer, uint32(len(value)))
	r.buffer = append(r.buffer, value...)
}

// json appends a value of type json, not jsonb.
func (r *rows) json(value []byte) {
	r.jsonBy(func(buffer []byte) ([]byte, error) { return append(buffer, value...), nil })
}

// jsonBy appends a value of type json that write encodes.
func (r *rows) jsonBy(write func([]byte) ([]byte, error)) {
	start := len(r.buffer)
	written, err := write(append(r.buffer, 0, 0, 0, 0))
	if err != nil {
		r.err = cmp.Or(r.err, err)
		return
	}
	r.buffer = written
	binary.BigEndian.PutUint32(r.buffer[start:], uint32(len(r.buffer)-start-4))
}

// jsonbBy is jsonBy for jsonb, whose text is preceded by a version.
func (r *rows) jsonbBy(write func([]byte) ([]byte, error)) {
	r.jsonBy(func(buffer []byte) ([]byte, error) { return write(append(buffer, 1)) })
}

// bytesBy appends a value of type bytea that write encodes.
func (r *rows) bytesBy(write func([]byte) []byte) {
	start := len(r.buffer)
	r.buffer = write(append(r.buffer, 0, 0, 0, 0))
	binary.BigEndian.PutUint32(r.buffer[start:], uint32(len(r.buffer)-start-4))
}

func (r *rows) bigint(value int64) {
	r.buffer = binary.BigEndian.AppendUint32(r.buffer, 8)
	r.buffer = binary.BigEndian.AppendUint64(r.buffer, uint64(value))
}

func (r *rows) integer(value int32) {
	r.buffer = binary.BigEndian.AppendUint32(r.buffer, 4)
	r.buffer = binary.BigEndian.AppendUint32(r.buffer, uint32(value))
}

// date appends a day, such as 2026-01-31.
func (r *rows) date(day string) {
	at, err := time.Parse(time.DateOnly, day)
	if err != nil {
		r.err = cmp.Or(r.err, err)
	}
	r.integer(int32(at.Sub(epoch) / (24 * time.Hour)))
}

func (r *rows) boolean(value bool) {
	r.buffer = append(binary.BigEndian.AppendUint32(r.buffer, 1), 0)
	if value {
		r.buffer[len(r.buffer)-1] = 1
	}
}

// epoch is the zero of PostgreSQL's timestamps.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func (r *rows) timestamp(value time.Time) { r.bigint(value.UnixMicro() - epoch.UnixMicro()) }

// insert inserts the rows into a table. They must not exist yet.
func (r *rows) insert(ctx context.Context, tx pgx.Tx, table string, columns ...string) error {
	if r.err != nil || len(r.buffer) == 0 {
		return r.err
	}
	r.buffer = append(r.buffer, 0xff, 0xff) // trailer
	ctx, cancel := schema.Within(ctx, tx.Conn())
	defer cancel()
	_, err := tx.Conn().PgConn().CopyFrom(ctx, bytes.NewReader(r.buffer),
		`COPY `+pgx.Identifier{table}.Sanitize()+` (`+strings.Join(columns, ", ")+`) FROM STDIN (FORMAT binary)`)
	return err
}
