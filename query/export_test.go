package query

import "time"

// Timeout sets how long WaitFor waits.
func (r *Reader) Timeout(d time.Duration) { r.timeout = d }

// Few sets how many leads of a source or a stage are looked at one by one.
func (r *Reader) Few(leads int) { r.few = leads }

// What the fuzz target of cursors needs.
var (
	DecodeNewest  = decodeNewest
	DecodeOrdinal = decodeOrdinal
	EncodeOrdinal = encodeOrdinal
	EncodeCursor  = encodeCursor
	CursorOf      = cursorOf

	DecodeReport     = decodeReport
	DecodeTimeCursor = decodeTimeCursor
)

// Encode makes the cursor again.
func (c newestCursor) Encode(kind string) string { return c.encode(kind) }

// Encode makes the cursor again.
func (c timeCursor) Encode(kind string) string { return c.encode(kind) }
