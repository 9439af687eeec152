package event

// Facts about access and imports. Each is on a stream of its own, because it changes no subject. They contain no
// personal values.

// DataRevealed records that a caller was shown personal data of one lead, or the posted content of an arrival. It is a
// sample: the first access of a minute by this caller.
type DataRevealed struct {
	LeadID    string `json:"leadId,omitzero"`
	ArrivalID string `json:"arrivalId,omitzero"` // of the shown content
	What      string `json:"what"`               // lead or arrival
}

// DataExported records that an export starts, and again on the same stream that it has ended.
type DataExported struct {
	ExportID string            `json:"exportId"`
	What     string            `json:"what"`            // leads, sources and so on
	Format   string            `json:"format"`          // csv, ndjson or parquet
	Filter   map[string]string `json:"filter,omitzero"` // by parameter; personal values are masked
	// Rows and Complete are the result. They are absent at the start.
	Rows     *int64 `json:"rows,omitzero"`
	Complete *bool  `json:"complete,omitzero"` // false: it was interrupted
}

// DataSearched records that a caller listed or searched personal data. It is a sample: the first request of a minute by
// this caller, for this list and with these fields.
type DataSearched struct {
	What   string   `json:"what"`            // leads, sources, touches or events
	Fields []string `json:"fields,omitzero"` // personal fields that were searched by: q, phone, email
}

// ImportStarted records that the import of a file begins. The events of one file are on one stream.
type ImportStarted struct {
	RunID   string `json:"runId"`   // the request id of what the import appends
	Reading string `json:"reading"` // digest of how its columns are read
}

// ImportFinished records that the import of a file has ended.
type ImportFinished struct {
	RunID    string `json:"runId"`
	Rows     int    `json:"rows"`
	Created  int    `json:"created"`
	Merged   int    `json:"merged"`
	Refused  int    `json:"refused"` // duplicates
	Invalid  int    `json:"invalid"`
	Repeated int    `json:"repeated"` // how many of all these an earlier import of the file had done
}

// ImportUndone records that the leads that only one import had made were erased.
type ImportUndone struct {
	RunID  string `json:"runId"`
	Leads  int    `json:"leads"`  // that were erased
	Stayed int    `json:"stayed"` // leads that others have changed, or that were there before
}

func (DataRevealed) EventType() string   { return "data.revealed.v1" }
func (DataExported) EventType() string   { return "data.exported.v1" }
func (DataSearched) EventType() string   { return "data.searched.v1" }
func (ImportStarted) EventType() string  { return "import.started.v1" }
func (ImportFinished) EventType() string { return "import.finished.v1" }
func (ImportUndone) EventType() string   { return "import.undone.v1" }
