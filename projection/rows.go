package projection

import (
	"bytes"
	"context"
	"encoding/binary"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// rows are new rows of a table on their way there, in the binary format of COPY: the fastest way into PostgreSQL, and
// without an object for each value on the way.
type rows struct {
	buffer []byte
}

// copyHeader is the signature, no flags, no extension.
const copyHeader = "PGCOPY\n\xff\r\n\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00"

// row begins a row. As many values follow, in the order of the columns.
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

// json is a value of type json, not jsonb.
func (r *rows) json(value []byte) {
	r.buffer = binary.BigEndian.AppendUint32(r.buffer, uint32(len(value)))
	r.buffer = append(r.buffer, value...)
}

// jsonb has a version before the text.
func (r *rows) jsonb(value []byte) {
	r.buffer = binary.BigEndian.AppendUint32(r.buffer, uint32(len(value)+1))
	r.buffer = append(r.buffer, 1)
	r.buffer = append(r.buffer, value...)
}

func (r *rows) bigint(value int64) {
	r.buffer = binary.BigEndian.AppendUint32(r.buffer, 8)
	r.buffer = binary.BigEndian.AppendUint64(r.buffer, uint64(value))
}

func (r *rows) integer(value int32) {
	r.buffer = binary.BigEndian.AppendUint32(r.buffer, 4)
	r.buffer = binary.BigEndian.AppendUint32(r.buffer, uint32(value))
}

// epoch is where PostgreSQL's timestamps count microseconds from.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func (r *rows) timestamp(value time.Time) { r.bigint(value.UnixMicro() - epoch.UnixMicro()) }

// insert puts the rows into a table. None may be there yet.
func (r *rows) insert(ctx context.Context, tx pgx.Tx, table string, columns ...string) error {
	if len(r.buffer) == 0 {
		return nil
	}
	r.buffer = append(r.buffer, 0xff, 0xff) // the end
	_, err := tx.Conn().PgConn().CopyFrom(ctx, bytes.NewReader(r.buffer),
		`COPY `+pgx.Identifier{table}.Sanitize()+` (`+strings.Join(columns, ", ")+`) FROM STDIN (FORMAT binary)`)
	return err
}
