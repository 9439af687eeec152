package sealed

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/leadlog/leadlog/eventstore"
)

// An event is stored with its plain members unchanged and, last, a member "sealed": in base64, the id of the key, a nonce and,
// encrypted and authenticated, the IP address, user agent and request id and the personal members. It is bound to what is not sealed: when one
// byte of the stream, id, type, time, metadata or plain members changes, it no longer opens. So nobody without the key can give a
// lead another source or another day.

// ErrDamaged says that a sealed event does not open: it was changed, or copied from another place.
var ErrDamaged = errors.New("the sealed part of an event is damaged")

const (
	keyIDBytes  = 8
	sealedName  = `"sealed":`
	erasedShown = `"erased":true}`
)

// Forms of what is sealed.
const (
	wholeForm   byte = iota // all of the data, byte for byte
	membersForm             // members, to follow the plain ones
)

var encoding = base64.RawStdEncoding

// seal makes an event into what is stored of it.
func seal(k key, stream string, e eventstore.Event) (eventstore.Event, error) {
	aead, err := k.aead()
	if err != nil {
		return e, fmt.Errorf("%w: stream %s", err, stream)
	}
	s := takeScratch()
	defer s.giveBack()
	s.text = append(s.text, membersForm)
	s.text = appendText(s.text, e.Metadata.IP)
	s.text = appendText(s.text, e.Metadata.UserAgent)
	s.text = appendText(s.text, e.Metadata.RequestID)
	e.Metadata.IP, e.Metadata.UserAgent, e.Metadata.RequestID = "", "", ""
	var ok bool
	if s.plain, s.text, ok = divide(e.Type, e.Data, s.plain, s.text); !ok {
		s.text[0] = wholeForm
		s.text = append(s.text, e.Data...)
	}
	s.blob = binary.BigEndian.AppendUint64(s.blob, uint64(k.id))
	s.bound = appendBound(s.bound, stream, &e, s.plain)
	s.blob = aead.Seal(s.blob, nil, s.text, s.bound)
	data := make([]byte, 0, len(`{,`)+len(s.plain)+len(sealedName)+len(`""}`)+encoding.EncodedLen(len(s.blob)))
	data = append(append(data, '{'), s.plain...)
	if len(s.plain) > 0 {
		data = append(data, ',')
	}
	data = append(append(data, sealedName...), '"')
	data = encoding.AppendEncode(data, s.blob)
	e.Data = append(data, '"', '}')
	return e, nil
}

// scratch is memory that sealing and opening use again and again.
type scratch struct{ text, plain, blob, bound []byte }

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func takeScratch() *scratch { return scratches.Get().(*scratch) }

// mostScratch is how many bytes of text are worth keeping the memory for. Most events have less than a thousandth part of
// what the largest have.
const mostScratch = 16 << 10

// giveBack overwrites the personal data in the memory before it is used again.
func (s *scratch) giveBack() {
	if cap(s.text) > mostScratch {
		return
	}
	clear(s.text)
	s.text, s.plain, s.blob, s.bound = s.text[:0], s.plain[:0], s.blob[:0], s.bound[:0]
	scratches.Put(s)
}

func appendText(to []byte, text string) []byte {
	return append(binary.AppendUvarint(to, uint64(len(text))), text...)
}

// appendBound adds what an event is bound to: all that is stored of it in the open. Before each text stands its length, so
// that nothing of one can pass for the beginning of the next. The address, the user agent and the request id are sealed themselves.
func appendBound(to []byte, stream string, e *eventstore.Event, plain []byte) []byte {
	to = append(to, e.ID[:]...)
	to = binary.AppendVarint(to, e.At.UnixMicro())
	m := &e.Metadata
	for _, text := range [...]string{
		stream, e.Type, m.Account, m.Actor, m.Credential, m.Causation, m.Correlation, m.TraceParent, m.Line,
	} {
		to = appendText(to, text)
	}
	return append(to, plain...)
}

// envelope is a stored event, taken apart.
type envelope struct {
	plain []byte // members, without the braces
	keyID int64
	blob  []byte
}

// openEnvelope takes a stored event apart, and appends what is sealed to a buffer. Not ok: nothing of it is sealed, as in
// those from before there were keys.
//
// What is sealed is the last member, a string of base64 alone. A quote within a string has a backslash before it, so no
// text of anybody's looks like the member's name.
func openEnvelope(data, buffer []byte) (v envelope, _ []byte, ok bool) {
	members, ok := bytes.CutSuffix(data, []byte(`"}`))
	if !ok {
		return v, buffer, false
	}
	// From the front, where there is little, and not from the back: what is sealed is most of it.
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

// open gives an event back as it was before it was sealed.
func (v envelope) open(o *opener, r *eventstore.Recorded) error {
	if err := o.prepare(); err != nil {
		return fmt.Errorf("%w: stream %s at revision %d", err, r.Stream, r.Revision)
	}
	s := takeScratch()
	defer s.giveBack()
	s.bound = appendBound(s.bound, r.Stream, &r.Event, v.plain)
	opened, err := o.aead.Open(s.text, nil, v.blob, s.bound)
	if err != nil || len(opened) == 0 {
		return fmt.Errorf("%w: stream %s at revision %d", ErrDamaged, r.Stream, r.Revision)
	}
	s.text = opened
	form, text := opened[0], opened[1:]
	ip, text, ipOK := cutText(text, o.ip)
	userAgent, text, agentOK := cutText(text, o.userAgent)
	requestID, personal, requestOK := cutText(text, "") // which seldom is that of the event before
	if !ipOK || !agentOK || !requestOK {
		return fmt.Errorf("%w: stream %s at revision %d", ErrDamaged, r.Stream, r.Revision)
	}
	o.ip, o.userAgent = ip, userAgent
	r.Metadata.IP, r.Metadata.UserAgent, r.Metadata.RequestID = ip, userAgent, requestID
	if form == wholeForm {
		r.Data = bytes.Clone(personal)
		return nil
	}
	data := make([]byte, 0, len(v.plain)+len(personal)+3)
	data = append(append(data, '{'), v.plain...)
	if len(v.plain) > 0 && len(personal) > 0 {
		data = append(data, ',')
	}
	r.Data = append(append(data, personal...), '}')
	return nil
}

// erase shows an event whose key is gone.
func (v envelope) erase(r *eventstore.Recorded) {
	r.Erased, r.LostKey = true, v.keyID
	r.Data = append(append(make([]byte, 0, len(v.plain)+len(erasedShown)+2), '{'), v.plain...)
	if len(v.plain) > 0 {
		r.Data = append(r.Data, ',')
	}
	r.Data = append(r.Data, erasedShown...)
}

// cutText reads a text. If it is the same as the one before, as most are, it gives that one again and takes no memory.
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

// divide appends the members of an event's data to what is plain and what is personal of it. Not ok: nothing is appended,
// since the type is not declared, or the data is no object of members.
func divide(eventType string, data, plain, personal []byte) (_, _ []byte, ok bool) {
	d, known := declared[eventType]
	if !known {
		return plain, personal, false
	}
	plainStart, personalStart := len(plain), len(personal)
	for s := (scanner{rest: data}); ; {
		name, member, more := s.next()
		if !more && !s.done {
			return plain[:plainStart], personal[:personalStart], false
		}
		if !more {
			return plain, personal, true
		}
		if slices.ContainsFunc(d.plain, func(p string) bool { return p == string(name) }) {
			plain = appendMember(plain, plainStart, member)
		} else {
			personal = appendMember(personal, personalStart, member)
		}
	}
}

// appendMember puts a comma between members, of which the first is at a place.
func appendMember(to []byte, first int, member []byte) []byte {
	if len(to) > first {
		to = append(to, ',')
	}
	return append(to, member...)
}
