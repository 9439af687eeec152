package event

// Facts of reading and importing. Each is on a stream of its own, because it changes nothing that it is about. They contain no value
// of a person.

// DataRevealed records that a caller was shown personal data of one lead, or what was posted when a lead arrived. It is the first of a
// minute by this caller.
type DataRevealed struct {
	LeadID    string `json:"leadId,omitzero"`
	ArrivalID string `json:"arrivalId,omitzero"` // of what was posted
	What      string `json:"what"`               // lead or arrival
}

// DataExported records that an export begins, and on the same stream again that it ended.
type DataExported struct {
	ExportID string            `json:"exportId"`
	What     string            `json:"what"`            // leads, sources and so on
	Format   string            `json:"format"`          // csv, ndjson or parquet
	Filter   map[string]string `json:"filter,omitzero"` // by parameter; personal values are masked
	// Rows and Complete say how it ended. They are absent when it begins.
	Rows     *int64 `json:"rows,omitzero"`
	Complete *bool  `json:"complete,omitzero"` // false: it broke off
}

// DataSearched records that a caller listed or searched personal data. It is the first of a minute by this caller, of this list and with
// these fields.
type DataSearched struct {
	What   string   `json:"what"`            // leads, sources, touches or events
	Fields []string `json:"fields,omitzero"` // personal ones that were searched by: q, phone, email
}

// ImportFinished records that the import of a file has ended.
type ImportFinished struct {
	Rows     int `json:"rows"`
	Created  int `json:"created"`
	Merged   int `json:"merged"`
	Refused  int `json:"refused"` // duplicates
	Invalid  int `json:"invalid"`
	Repeated int `json:"repeated"` // of all these: done by an earlier import of the file
}

func (DataRevealed) EventType() string   { return "data.revealed.v1" }
func (DataExported) EventType() string   { return "data.exported.v1" }
func (DataSearched) EventType() string   { return "data.searched.v1" }
func (ImportFinished) EventType() string { return "import.finished.v1" }
