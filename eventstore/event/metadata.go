package event

import (
	"bytes"

	"github.com/go-json-experiment/json"
)

// Metadata tells who caused an event, by which request and from where. It is the same for every type.
type Metadata struct {
	Account     string `json:"account,omitzero"`     // the account that owns the stream
	Actor       string `json:"actor,omitzero"`       // user:{sub}, token:{tokenId} or system:{what}
	Credential  string `json:"credential,omitzero"`  // jwt:{sub} or token:{tokenId}; never a value
	RequestID   string `json:"requestId,omitzero"`   // as in the answer's X-Request-Id
	Causation   string `json:"causation,omitzero"`   // id of the event that led to this one
	Correlation string `json:"correlation,omitzero"` // shared by everything that one request set off
	TraceParent string `json:"traceParent,omitzero"` // W3C trace context
	IP          string `json:"ip,omitzero"`          // address of the client that called
	UserAgent   string `json:"userAgent,omitzero"`
}

// DecodeMetadata reads stored metadata. What it has in common with that of an event before, which on a log is most of
// it, takes no memory of its own.
func DecodeMetadata(encoded []byte, before *Metadata) (Metadata, error) {
	if m, plain := plainMetadata(encoded, before); plain {
		return m, nil
	}
	return anyMetadata(encoded)
}

func anyMetadata(encoded []byte) (m Metadata, err error) {
	err = json.Unmarshal(encoded, &m)
	return m, err
}

// plainMetadata reads metadata that has nothing but our own members, each once, of texts that are not empty and have no
// escapes, with no space between them: what a log has by the million. It is not plain when it is anything else, sound or
// not.
func plainMetadata(encoded []byte, before *Metadata) (m Metadata, plain bool) {
	for _, c := range encoded {
		if c < ' ' || c >= 0x7f || c == '\\' {
			return m, false
		}
	}
	rest, plain := bytes.CutPrefix(encoded, []byte(`{`))
	for plain {
		var name, value []byte
		if name, rest, plain = text(rest, ':'); !plain {
			break
		}
		if value, rest, plain = text(rest, ',', '}'); !plain {
			break
		}
		field := m.field(name)
		if field == nil || *field != "" || len(value) == 0 {
			return m, false
		}
		if *field = *before.field(name); *field != string(value) {
			*field = string(value)
		}
		if behind := encoded[len(encoded)-len(rest)-1]; behind == '}' {
			return m, len(rest) == 0
		}
	}
	return m, false
}

// text takes a text without escapes, and behind it one of the given characters.
func text(encoded []byte, behind ...byte) (text, rest []byte, ok bool) {
	if len(encoded) == 0 || encoded[0] != '"' {
		return nil, nil, false
	}
	end := 1 + bytes.IndexByte(encoded[1:], '"')
	if end == 0 || end+1 >= len(encoded) || bytes.IndexByte(behind, encoded[end+1]) < 0 {
		return nil, nil, false
	}
	return encoded[1:end], encoded[end+2:], true
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
	}
	return nil
}
