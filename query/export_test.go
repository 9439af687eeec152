package query

import "time"

// Timeout sets how long WaitFor waits.
func (r *Reader) Timeout(d time.Duration) { r.timeout = d }

// ScanLeads sets how many leads a search scans before it uses the trigram index. A page scans ten times as many.
func (r *Reader) ScanLeads(n int) { r.scannedLeads = n }

// Functions for the fuzz test of cursors.
var (
	DecodeNewest  = decodeNewest
	DecodeOrdinal = decodeOrdinal
	EncodeOrdinal = encodeOrdinal
	EncodeCursor  = encodeCursor
	CursorOf      = cursorOf

	DecodeReport     = decodeReport
	DecodeTimeCursor = decodeTimeCursor
)

// Encode returns the cursor's text.
func (c newestCursor) Encode(kind string) string { return c.encode(kind) }

// Encode returns the cursor's text.
func (c timeCursor) Encode(kind string) string { return c.encode(kind) }

// ScanRows sets how many rows a page scans for a filter without an index.
func (r *Reader) ScanRows(n int) { r.scannedRows = n }

// LeadsAtOnce sets how many leads' histories a report reads at once.
func (r *Reader) LeadsAtOnce(n int) { r.leadsAtOnce = n }
