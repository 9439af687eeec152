package sealed

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// An event is stored with its plain members unchanged and, last, a member "sealed": in base64, the id of the key, a
// nonce and, encrypted and authenticated, the nonce of the commitment, the IP address, user agent and request id and
// the personal members. The stream, id, type, time, metadata and plain members are authenticated too: without the key,
// a lead's source or day cannot be changed. Content is elsewhere: content.go.

// ErrDamaged means that a sealed event cannot be opened: it was changed, or copied from another stream.
var ErrDamaged = errors.New("the sealed part of an event is damaged")

const (
	keyIDBytes  = 8
	sealedName  = `"sealed":`
	erasedShown = `"erased":true}`
)

// Forms of the sealed part.
const (
	wholeForm   byte = iota // all of the data
	membersForm             // the personal members
	contentForm             // the hash of the content, and the other personal members
)

var encoding = base64.RawStdEncoding

// seal returns an event in stored form, with its commitment, and its content or nil.
func seal(
	k key, stream string, revision eventstore.Revision, e eventstore.Event,
) (_ eventstore.Event, content *eventstore.Content, err error) {
	aead, err := k.aead()
	if err != nil {
		return e, nil, fmt.Errorf("%w: stream %s", err, stream)
	}
	nonce := make([]byte, event.NonceSize)
	_, _ = rand.Read(nonce) // never fails
	e.Metadata.Commitment, err = event.Commitment(nonce, event.Shown{
		ID: e.ID, Stream: stream, Revision: int64(revision), Type: e.Type, At: e.At, Actor: e.Metadata.Actor,
		Data: e.Data,
	})
	if err != nil {
		return e, nil, fmt.Errorf("%w: stream %s: %w", eventstore.ErrInvalid, stream, err)
	}
	parts, ok := divide(e.Type, e.Data)
	// most addresses, user agents and request ids fit
	text := make([]byte, 0, len(e.Data)-len(parts.content)+sha256.Size+256)
	text = append(text, nonce...)
	switch {
	case !ok:
		text, parts.personal = append(text, wholeForm), e.Data
	case len(parts.content) > 0:
		if content, err = sealContent(k, parts.content); err != nil {
			return e, nil, err
		}
		text = append(append(text, contentForm), content.Hash...)
	default:
		text = append(text, membersForm)
	}
	text = appendText(text, e.Metadata.IP)
	text = appendText(text, e.Metadata.UserAgent)
	text = appendText(text, e.Metadata.RequestID)
	e.Metadata.IP, e.Metadata.UserAgent, e.Metadata.RequestID = "", "", ""
	text = append(text, parts.personal...)
	plain := parts.plain
	blob := make([]byte, 0, keyIDBytes+len(text)+aead.Overhead())
	blob = binary.BigEndian.AppendUint64(blob, uint64(k.id))
	blob = aead.Seal(blob, nil, text, bound(stream, &e, plain))
	data := make([]byte, 0, len(`{,`)+len(plain)+len(sealedName)+len(`""}`)+encoding.EncodedLen(len(blob)))
	data = append(append(data, '{'), plain...)
	if len(plain) > 0 {
		data = append(data, ',')
	}
	data = append(append(data, sealedName...), '"')
	data = encoding.AppendEncode(data, blob)
	e.Data = append(data, '"', '}')
	return e, content, nil
}

func appendText(to []byte, text string) []byte {
	return append(binary.AppendUvarint(to, uint64(len(text))), text...)
}

// bound returns the data that is authenticated but not sealed. Each text is preceded by its length, so that no bytes
// can be moved to the next text. The address, the user agent and the request id are sealed.
func bound(stream string, e *eventstore.Event, plain []byte) []byte {
	to := make([]byte, 0, 256+len(plain)) // most names fit
	to = append(to, e.ID[:]...)
	to = binary.AppendVarint(to, e.At.UnixMicro())
	m := &e.Metadata
	for _, text := range [...]string{
		stream, e.Type, m.Account, m.Actor, m.Credential, m.Causation, m.Correlation, m.TraceParent, m.Line,
		m.Commitment,
	} {
		to = appendText(to, text)
	}
	return append(to, plain...)
}

// envelope is the parsed data of a stored event.
type envelope struct {
	plain []byte // members, without the braces
	keyID int64
	blob  []byte
}

// openEnvelope parses the data of a stored event, and appends the sealed part to a buffer. Ok is false if the event is
// not sealed, as those from before there were keys.
//
// The sealed part is the last member, a string of base64. A quote within a string is preceded by a backslash, so no
// other value can be mistaken for the member's name.
func openEnvelope(data, buffer []byte) (v envelope, _ []byte, ok bool) {
	members, ok := bytes.CutSuffix(data, []byte(`"}`))
	if !ok {
		return v, buffer, false
	}
	// The search starts at the front, because the sealed part is usually the longest.
	before, text, ok := bytes.Cut(members, []byte(sealedName+`"`))
	for ok && bytes.IndexByte(text, '"') >= 0 {
		var more []byte
		more, text, ok = bytes.Cut(text, []byte(sealedName+`"`))
		before = members[:len(before)+len(sealedName)+1+len(more)]
	}
	if !ok || len(before) == 0 {
		return v, buffer, false
	}
	from := len(buffer)
	buffer, err := encoding.AppendDecode(buffer, text)
	blob := buffer[from:]
	if err != nil || len(blob) < keyIDBytes {
		return v, buffer[:from], false
	}
	plain := bytes.TrimSuffix(before[1:], []byte{','})
	return envelope{plain, int64(binary.BigEndian.Uint64(blob)), blob[keyIDBytes:]}, buffer, true
}

// open restores the unsealed event without its content. It returns the nonce of the commitment and the hash of the
// content, if it has any.
func (v envelope) open(o *opener, r *eventstore.Recorded) (nonce, content []byte, err error) {
	damaged := func(err error) error { return fmt.Errorf("%w: stream %s at revision %d", err, r.Stream, r.Revision) }
	if err := o.prepare(); err != nil {
		return nil, nil, damaged(err)
	}
	opened, err := o.aead.Open(nil, nil, v.blob, bound(r.Stream, &r.Event, v.plain))
	if err != nil || len(opened) <= event.NonceSize {
		return nil, nil, damaged(ErrDamaged)
	}
	nonce, form, text := opened[:event.NonceSize], opened[event.NonceSize], opened[event.NonceSize+1:]
	if form == contentForm && len(text) < sha256.Size {
		return nil, nil, damaged(ErrDamaged)
	}
	if form == contentForm {
		content, text = text[:sha256.Size], text[sha256.Size:]
	}
	ip, text, ipOK := cutText(text, o.ip)
	userAgent, text, agentOK := cutText(text, o.userAgent)
	requestID, personal, requestOK := cutText(text, "") // rarely that of the previous event
	if !ipOK || !agentOK || !requestOK {
		return nil, nil, damaged(ErrDamaged)
	}
	o.ip, o.userAgent = ip, userAgent
	r.Metadata.IP, r.Metadata.UserAgent, r.Metadata.RequestID = ip, userAgent, requestID
	if form == wholeForm {
		r.Data = personal
		return nonce, nil, nil
	}
	data := make([]byte, 0, len(v.plain)+len(personal)+3)
	data = append(append(data, '{'), v.plain...)
	if len(v.plain) > 0 && len(personal) > 0 {
		data = append(data, ',')
	}
	r.Data = append(append(data, personal...), '}')
	return nonce, content, nil
}

// erase marks an event whose key is missing as erased, and keeps its plain members.
func (v envelope) erase(r *eventstore.Recorded) {
	r.Erased = true
	r.Data = append(append(make([]byte, 0, len(v.plain)+len(erasedShown)+2), '{'), v.plain...)
	if len(v.plain) > 0 {
		r.Data = append(r.Data, ',')
	}
	r.Data = append(r.Data, erasedShown...)
}

// AsErased returns an opened event in the form that it has after its key is destroyed.
func AsErased(r eventstore.Recorded) eventstore.Recorded {
	of, _ := divide(r.Type, r.Data)
	envelope{plain: of.plain}.erase(&r)
	r.Metadata.IP, r.Metadata.UserAgent, r.Metadata.RequestID = "", "", ""
	return r
}

// cutText reads a text. If it equals the previous one, which is common, it returns that one without an allocation.
func cutText(from []byte, before string) (text string, rest []byte, ok bool) {
	length, n := binary.Uvarint(from)
	if n <= 0 || length > uint64(len(from)-n) {
		return "", nil, false
	}
	if text, rest := from[n:n+int(length)], from[n+int(length):]; string(text) != before {
		return string(text), rest, true
	}
	return before, from[n+int(length):], true
}

// parts are the members of an event's data.
type parts struct{ plain, personal, content []byte }

// divide divides the members of an event's data. A member without a class is personal, so that a missing tag leaks
// nothing. If the type is unknown, or the data is not an object, ok is false.
func divide(eventType string, data []byte) (of parts, ok bool) {
	classes, known := event.Classes(eventType)
	if !known {
		return parts{}, false
	}
	of.plain, of.personal = make([]byte, 0, len(data)), make([]byte, 0, len(data))
	for s := (scanner{rest: data}); ; {
		name, member, more := s.next()
		if !more && !s.done {
			return parts{}, false
		}
		if !more {
			return of, true
		}
		switch classes[string(name)] {
		case event.Plain:
			of.plain = appendMember(of.plain, member)
		case event.Content:
			of.content = appendMember(of.content, member)
		default:
			of.personal = appendMember(of.personal, member)
		}
	}
}

// appendMember appends a member, after a comma unless it is the first.
func appendMember(to, member []byte) []byte {
	if len(to) > 0 {
		to = append(to, ',')
	}
	return append(to, member...)
}

// scanner iterates over the members of a compact JSON object, in the form of event.Encode. It stops at any other form.
type scanner struct {
	rest  []byte
	begun bool
	done  bool // the object ended together with the data
}

// next returns a member's name and the whole member. More is false if the object has ended, or has another form.
func (s *scanner) next() (name, member []byte, more bool) {
	switch {
	case !s.begun:
		if len(s.rest) < 2 || s.rest[0] != '{' {
			return nil, nil, false
		}
		s.begun, s.rest = true, s.rest[1:]
		if s.rest[0] == '}' {
			s.done = len(s.rest) == 1
			return nil, nil, false
		}
	case len(s.rest) > 0 && s.rest[0] == ',':
		s.rest = s.rest[1:]
	default:
		s.done = len(s.rest) == 1 && s.rest[0] == '}'
		return nil, nil, false
	}
	end := stringEnd(s.rest)
	if end < 0 || end >= len(s.rest) || s.rest[end] != ':' {
		return nil, nil, false
	}
	name = s.rest[1 : end-1]
	length := valueEnd(s.rest[end+1:])
	if length <= 0 {
		return nil, nil, false
	}
	member, s.rest = s.rest[:end+1+length], s.rest[end+1+length:]
	return name, member, true
}

// stringEnd returns the length of the string at the start of a text, or -1.
func stringEnd(text []byte) int {
	if len(text) == 0 || text[0] != '"' {
		return -1
	}
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return -1
}

// valueEnd returns the length of the value at the start of a text, up to the next member or the end of the object, or
// -1.
func valueEnd(text []byte) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			end := stringEnd(text[i:])
			if end < 0 {
				return -1
			}
			i += end - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i
			}
			depth--
		case ',':
			if depth == 0 {
				return i
			}
		}
	}
	return -1
}
