package event

import (
	"bytes"
	"encoding/binary"

	"github.com/go-json-experiment/json/jsontext"
)

// plain is a fast reader of the JSON that most events are stored as: objects without white space, and strings of ASCII without
// escapes. For any other JSON, valid or not, it sets bad, and the caller uses the library instead. What plain reads, the library
// reads the same way, but takes several times as long.
//
// All strings are parts of one string, so that reading another one does not allocate.
type plain struct {
	encoded []byte
	at      int
	bad     bool
	text    string // of what is encoded, once somebody keeps a part of it
}

// span is where a text is, without its quotes.
type span struct{ from, to int }

// isPlain reports whether plain may succeed: all bytes are printable ASCII, and none is a backslash.
func isPlain(encoded []byte) bool {
	// Eight bytes at a time: the highest bit of the first that is not plain says so, and there is none where all are.
	const each = 0x0101010101010101
	const highest = 0x80 * each
	for ; len(encoded) >= 8; encoded = encoded[8:] {
		eight := binary.LittleEndian.Uint64(encoded)
		backslash := eight ^ '\\'*each
		if (eight|(eight+each)|(eight-' '*each)|(backslash-each)&^backslash)&highest != 0 {
			return false
		}
	}
	for _, c := range encoded {
		if c < ' ' || c >= 0x7f || c == '\\' {
			return false
		}
	}
	return true
}

// more reports whether an object or a list has another element, which comes next. First is true before the first one, and is
// set to false.
func (p *plain) more(first *bool, end byte) bool {
	if p.bad || p.found(end) {
		return false
	}
	if !*first {
		p.expect(',')
	}
	*first = false
	return !p.bad
}

// name passes over the name of a member, whose value comes next.
func (p *plain) name() span {
	s := p.quoted()
	p.expect(':')
	return s
}

// done reports whether everything was read, and was plain.
func (p *plain) done() bool { return !p.bad && p.at == len(p.encoded) }

func (p *plain) found(c byte) bool {
	if p.at < len(p.encoded) && p.encoded[p.at] == c {
		p.at++
		return true
	}
	return false
}

func (p *plain) expect(c byte) {
	if !p.found(c) {
		p.bad = true
	}
}

// quoted passes over a text.
func (p *plain) quoted() span {
	p.expect('"')
	length := bytes.IndexByte(p.encoded[p.at:], '"')
	if p.bad || length < 0 {
		p.bad = true
		return span{}
	}
	s := span{p.at, p.at + length}
	p.at = s.to + 1
	return s
}

func (p *plain) bytes(s span) []byte { return p.encoded[s.from:s.to] }

// keep is a text that outlives what it was read from.
func (p *plain) keep(s span) string {
	if p.text == "" {
		p.text = string(p.encoded)
	}
	return p.text[s.from:s.to]
}

// readText takes a text that is not empty, for a field that was not read before.
func (p *plain) readText(into *string) {
	s := p.quoted()
	if s.from == s.to || *into != "" {
		p.bad = true
		return
	}
	*into = p.keep(s)
}

// readTrue takes true, for a field that was not read before.
func (p *plain) readTrue(into *bool) {
	if *into || !bytes.HasPrefix(p.encoded[p.at:], []byte("true")) {
		p.bad = true
		return
	}
	*into = true
	p.at += len("true")
}

// readList takes a list of texts, for a field that was not read before.
func (p *plain) readList(into *[]string) {
	if p.expect('['); *into != nil {
		p.bad = true
	}
	*into = make([]string, 0, 4)
	for first := true; p.more(&first, ']'); {
		*into = append(*into, p.keep(p.quoted()))
	}
}

// Plain returns the members of an object whose members are plain texts, in memory of their own. Not ok: it is another value,
// sound or not.
func Plain(object jsontext.Value) (members map[string]jsontext.Value, ok bool) {
	if !isPlain(object) {
		return nil, false
	}
	p := plain{encoded: bytes.Clone(object)}
	p.readValues(&members)
	return members, p.done()
}

// readValues takes an object whose members are texts, for a field that was not read before.
func (p *plain) readValues(into *map[string]jsontext.Value) {
	if p.expect('{'); *into != nil {
		p.bad = true
	}
	*into = map[string]jsontext.Value{}
	for first := true; p.more(&first, '}'); {
		name, value := p.name(), p.quoted()
		if _, twice := (*into)[string(p.bytes(name))]; twice || p.bad {
			p.bad = true
			return
		}
		(*into)[p.keep(name)] = p.encoded[value.from-1 : value.to+1 : value.to+1]
	}
}
