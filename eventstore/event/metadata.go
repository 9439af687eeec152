package event

import "github.com/go-json-experiment/json"

// Metadata records who caused an event, by which request and from where. It has the same form for every type.
type Metadata struct {
	Account     string `json:"account,omitzero"`     // the account that owns the stream
	Actor       string `json:"actor,omitzero"`       // user:{sub}, token:{tokenId} or system:{what}
	Credential  string `json:"credential,omitzero"`  // jwt:{sub} or token:{tokenId}; never a value
	RequestID   string `json:"requestId,omitzero"`   // as in the response's X-Request-Id; the caller may have chosen it
	Causation   string `json:"causation,omitzero"`   // id of the event that caused this one
	Correlation string `json:"correlation,omitzero"` // internal id of the request, shared by all its effects
	TraceParent string `json:"traceParent,omitzero"` // W3C trace context
	IP          string `json:"ip,omitzero"`          // address of the client
	UserAgent   string `json:"userAgent,omitzero"`
	Line        string `json:"line,omitzero"` // line of the batch or file; absent for a single request
	// Commitment commits the log to what is sealed of the event, by package eventstore/sealed; empty for events that
	// are not sealed.
	Commitment string `json:"commitment,omitzero"`
}

// Encode returns the stored encoding of the metadata.
func (m *Metadata) Encode() ([]byte, error) {
	return json.Marshal(m, encoding)
}

// DecodeMetadata decodes stored metadata.
func DecodeMetadata(encoded []byte) (m Metadata, err error) {
	err = json.Unmarshal(encoded, &m)
	return m, err
}
