package postgres

import (
	"encoding/binary"
	"fmt"
	"time"
)

// array is a one-dimensional array in PostgreSQL's binary format. It is encoded element by element while a batch is filled, so that
// nothing is copied twice.
type array struct {
	element uint32 // OID of the elements' type
	n       int
	nulls   bool
	encoded []byte // with room for the header in front
}

// The header of an array: dimensions, whether it has nulls, the elements' type, how many, and the first one's number.
const (
	arrayHeader      = 20 // bytes
	emptyArrayHeader = 12 // an array without elements has no dimension
)

// reset empties the array. Its memory is kept for the next batch, unless it is much more than most batches need.
func (a *array) reset() {
	if cap(a.encoded) > maxKept {
		a.encoded = nil
	}
	a.n, a.nulls, a.encoded = 0, false, append(a.encoded[:0], make([]byte, arrayHeader)...)
}

// bytes returns the encoded array.
func (a *array) bytes() []byte {
	header := a.encoded[:arrayHeader]
	binary.BigEndian.PutUint32(header[8:], a.element)
	if a.n == 0 {
		return header[:emptyArrayHeader]
	}
	binary.BigEndian.PutUint32(header[0:], 1)
	if a.nulls {
		binary.BigEndian.PutUint32(header[4:], 1)
	}
	binary.BigEndian.PutUint32(header[12:], uint32(a.n))
	binary.BigEndian.PutUint32(header[16:], 1)
	return a.encoded
}

func (a *array) element32(v int32) {
	a.n++
	a.encoded = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(a.encoded, 4), uint32(v))
}

func (a *array) element64(v int64) {
	a.n++
	a.encoded = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(a.encoded, 8), uint64(v))
}

func (a *array) time(t time.Time) { a.element64(t.UnixMicro() - postgresEpoch) }

func (a *array) text(s string) {
	a.n++
	a.encoded = append(binary.BigEndian.AppendUint32(a.encoded, uint32(len(s))), s...)
}

func (a *array) raw(b []byte) {
	a.n++
	a.encoded = append(binary.BigEndian.AppendUint32(a.encoded, uint32(len(b))), b...)
}

func (a *array) null() {
	a.n++
	a.nulls = true
	a.encoded = binary.BigEndian.AppendUint32(a.encoded, 1<<32-1)
}

// integers reads an array of integers without nulls, of 4 or 8 bytes each. A null array is one without elements.
func integers(encoded []byte) ([]int64, error) {
	if len(encoded) < arrayHeader { // null or empty
		return nil, nil
	}
	if d := binary.BigEndian.Uint32(encoded); d != 1 {
		return nil, fmt.Errorf("an array of %d dimensions", d)
	}
	values := make([]int64, 0, binary.BigEndian.Uint32(encoded[12:]))
	for rest := encoded[arrayHeader:]; len(rest) > 0; {
		switch size := binary.BigEndian.Uint32(rest); {
		case size == 4 && len(rest) >= 8:
			values = append(values, int64(int32(binary.BigEndian.Uint32(rest[4:]))))
			rest = rest[8:]
		case size == 8 && len(rest) >= 12:
			values = append(values, int64(binary.BigEndian.Uint64(rest[4:])))
			rest = rest[12:]
		default:
			return nil, fmt.Errorf("an element of %d bytes in an array of integers", int32(size))
		}
	}
	return values, nil
}
