package event

import "github.com/go-json-experiment/json"

// Metadata says who caused an event, by which request and from where. It has the same form for every type.
type Metadata struct {
	Account     string `json:"account,omitzero"`     // the account that owns the stream
	Actor       string `json:"actor,omitzero"`       // user:{sub}, token:{tokenId} or system:{what}
	Credential  string `json:"credential,omitzero"`  // jwt:{sub} or token:{tokenId}; never a value
	RequestID   string `json:"requestId,omitzero"`   // as in the answer's X-Request-Id; the caller may have chosen it
	Causation   string `json:"causation,omitzero"`   // id of the event that led to this one
	Correlation string `json:"correlation,omitzero"` // the service's own id of the request, shared by everything that it set off
	TraceParent string `json:"traceParent,omitzero"` // W3C trace context
	IP          string `json:"ip,omitzero"`          // address of the client that called
	UserAgent   string `json:"userAgent,omitzero"`
	Line        string `json:"line,omitzero"` // line of the batch or file that it came in; absent for a single request
}

// DecodeMetadata reads stored metadata. Texts that are equal to those of an earlier event, as most are, share their memory.
func DecodeMetadata(encoded []byte, before *Metadata) (Metadata, error) {
	if isPlain(encoded) {
		var m Metadata
		p := plain{encoded: encoded}
		if m.read(&p, before); p.done() {
			return m, nil
		}
	}
	return anyMetadata(encoded)
}

func (m *Metadata) read(p *plain, before *Metadata) {
	p.expect('{')
	for first := true; p.more(&first, '}'); {
		name, value := p.name(), p.quoted()
		field := m.field(p.bytes(name))
		if field == nil || *field != "" || value.from == value.to {
			p.bad = true
			return
		}
		if *field = *before.field(p.bytes(name)); *field != string(p.bytes(value)) {
			*field = string(p.bytes(value))
		}
	}
}

func anyMetadata(encoded []byte) (m Metadata, err error) {
	err = json.Unmarshal(encoded, &m)
	return m, err
}

func (m *Metadata) field(name []byte) *string {
	switch string(name) {
	case "account":
		return &m.Account
	case "actor":
		return &m.Actor
	case "credential":
		return &m.Credential
	case "requestId":
		return &m.RequestID
	case "causation":
		return &m.Causation
	case "correlation":
		return &m.Correlation
	case "traceParent":
		return &m.TraceParent
	case "ip":
		return &m.IP
	case "userAgent":
		return &m.UserAgent
	case "line":
		return &m.Line
	}
	return nil
}
