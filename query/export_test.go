package query

import "time"

// Timeout sets how long WaitFor waits.
func (r *Reader) Timeout(d time.Duration) { r.timeout = d }

// ScanLeads sets how many leads a search goes through before it uses the trigram index. A page goes through ten times as many.
func (r *Reader) ScanLeads(n int) { r.scannedLeads = n }

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

// ScanRows sets how many rows a page goes through whose filter no index answers.
func (r *Reader) ScanRows(n int) { r.scannedRows = n }
