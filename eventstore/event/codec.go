package event

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Codec encodes and decodes the JSON of a struct by its tags, like the library with [json.Deterministic]. It has a fast path for the field
// types of the most frequent events, and leaves other types to the library. Encoding a lead's creation takes half of the library's time and
// decoding it a third (BenchmarkCodec), which matters when a log is replayed.
//
// Tags have a name and at most omitzero. Embedded structs are inlined.
type Codec[T any] struct{ fields []codecField }

type codecField struct {
	name     string
	before   string // precedes the value: `,"name":`
	index    []int
	omitZero bool
	text     bool // most fields are
}

// NewCodec returns the codec of a struct.
func NewCodec[T any]() Codec[T] {
	var c Codec[T]
	for _, field := range reflect.VisibleFields(reflect.TypeFor[T]()) {
		if field.Anonymous {
			continue
		}
		name, option, _ := strings.Cut(field.Tag.Get("json"), ",")
		name = cmp.Or(name, field.Name)
		c.fields = append(c.fields, codecField{name, `,"` + name + `":`, field.Index, option == "omitzero", field.Type == reflect.TypeFor[string]()})
	}
	return c
}

// Append appends a struct to a buffer.
func (c Codec[T]) Append(buffer []byte, of *T) (_ []byte, err error) {
	start, value := len(buffer), reflect.ValueOf(of).Elem()
	for i := range c.fields {
		f := &c.fields[i]
		field := value.FieldByIndex(f.index)
		if f.text {
			if text := field.String(); text != "" || !f.omitZero {
				if buffer, err = appendText(append(buffer, f.before...), text); err != nil {
					return nil, err
				}
			}
			continue
		}
		if f.omitZero && field.IsZero() {
			continue
		}
		if buffer, err = appendValue(append(buffer, f.before...), field.Addr().Interface()); err != nil {
			return nil, err
		}
	}
	if len(buffer) == start {
		return append(buffer, "{}"...), nil
	}
	buffer[start] = '{' // replaces the first comma
	return append(buffer, '}'), nil
}

func appendValue(buffer []byte, pointer any) ([]byte, error) {
	switch value := pointer.(type) {
	case *string:
		return appendText(buffer, *value)
	case *bool:
		return strconv.AppendBool(buffer, *value), nil
	case *int:
		return strconv.AppendInt(buffer, int64(*value), 10), nil
	case *int64:
		return strconv.AppendInt(buffer, *value, 10), nil
	case *time.Time:
		return appendTime(buffer, *value)
	case *[]string:
		return AppendList(buffer, *value)
	case *map[string]jsontext.Value:
		return AppendObject(buffer, *value)
	}
	encoded, err := json.Marshal(pointer, json.Deterministic(true), timesWithin)
	return append(buffer, encoded...), err
}

// timesWithin makes the library encode times like appendTime.
var timesWithin = json.WithMarshalers(json.MarshalFunc(func(t time.Time) ([]byte, error) { return appendTime(nil, t) }))

// appendTime encodes a time like the API, with three decimals. The library encodes times that are more precise, not UTC, or in an unusual
// year.
func appendTime(buffer []byte, t time.Time) ([]byte, error) {
	year, whole := t.Year(), t.Nanosecond()%int(time.Millisecond) == 0
	if !whole || t.Location() != time.UTC || year < 1 || year > 9999 {
		encoded, err := json.Marshal(t)
		return append(buffer, encoded...), err
	}
	return t.AppendFormat(buffer, `"2006-01-02T15:04:05.000Z"`), nil
}

// AppendList appends a list of strings.
func AppendList(buffer []byte, values []string) (_ []byte, err error) {
	buffer = append(buffer, '[')
	for i, value := range values {
		if i > 0 {
			buffer = append(buffer, ',')
		}
		if buffer, err = appendText(buffer, value); err != nil {
			return nil, err
		}
	}
	return append(buffer, ']'), nil
}

// AppendObject appends an object, with its members sorted by name.
func AppendObject(buffer []byte, members map[string]jsontext.Value) (_ []byte, err error) {
	var few [16]string // most objects have fewer members
	names := few[:0]
	for name := range members {
		names = append(names, name)
	}
	slices.Sort(names)
	buffer = append(buffer, '{')
	for i, name := range names {
		if i > 0 {
			buffer = append(buffer, ',')
		}
		if buffer, err = appendText(buffer, name); err != nil {
			return nil, err
		}
		buffer = append(buffer, ':')
		switch value := members[name]; {
		case value == nil:
			buffer = append(buffer, "null"...)
		case isPlainText(value): // has only one encoding
			buffer = append(buffer, value...)
		default:
			if buffer, err = jsontext.AppendFormat(buffer, value); err != nil {
				return nil, err
			}
		}
	}
	return append(buffer, '}'), nil
}

// isPlainText reports whether a value is a string of printable ASCII without escapes.
func isPlainText(v jsontext.Value) bool {
	last := len(v) - 1
	return last > 0 && v[0] == '"' && bytes.IndexByte(v[1:], '"') == last-1 && isPlain(v)
}

// appendText appends a quoted string. Most need no escapes.
func appendText(buffer []byte, text string) ([]byte, error) {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			return jsontext.AppendQuote(buffer, text)
		}
	}
	return append(append(append(buffer, '"'), text...), '"'), nil
}

// Decode decodes a struct. It may share memory with encoded, which must not be changed afterwards.
func (c Codec[T]) Decode(encoded []byte) (decoded T, err error) {
	if c.decodePlain(encoded, &decoded) {
		return decoded, nil
	}
	decoded = *new(T)
	err = json.Unmarshal(encoded, &decoded)
	return decoded, err
}

// decodePlain reports whether it could decode the object. If not, the struct may be partly filled.
func (c Codec[T]) decodePlain(encoded []byte, into *T) bool {
	if !isPlain(encoded) {
		return false
	}
	p, value := plain{encoded: encoded}, reflect.ValueOf(into).Elem()
	p.expect('{')
	next, seen := 0, uint64(0)
	for first := true; p.more(&first, '}'); next++ {
		next = c.find(p.bytes(p.name()), next)
		if next < 0 || seen&(1<<next) != 0 {
			return false
		}
		seen |= 1 << next
		p.value(value.FieldByIndex(c.fields[next].index).Addr().Interface())
	}
	return p.done()
}

// find returns the index of a field, or -1. It starts at the expected index, in case the members are in the order of the fields.
func (c Codec[T]) find(name []byte, first int) int {
	for i := range c.fields {
		if i = (first + i) % len(c.fields); c.fields[i].name == string(name) {
			return i
		}
	}
	return -1
}

// plain decodes the JSON of most stored events: objects without white space, and strings of printable ASCII without escapes. On any other
// JSON, valid or not, it sets bad, and the library is used instead. All strings are slices of one string, which saves allocations.
type plain struct {
	encoded []byte
	at      int
	bad     bool
	text    string // copy of encoded; empty until keep is called
}

// span is the range of a string in the input, without its quotes.
type span struct{ from, to int }

// isPlain reports whether all bytes are printable ASCII and none is a backslash.
func isPlain(encoded []byte) bool {
	// Eight bytes at a time: the highest bit of each byte is set if it is not plain.
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

// more reports whether an object or a list has another element. First is true before the first one, and is set to false.
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

// name reads the name of a member and the colon.
func (p *plain) name() span {
	s := p.quoted()
	p.expect(':')
	return s
}

// done reports whether the whole input was read, and was plain.
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

// quoted reads a quoted string.
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

// keep returns a span as a string.
func (p *plain) keep(s span) string {
	if p.text == "" {
		p.text = string(p.encoded)
	}
	return p.text[s.from:s.to]
}

// value reads a value into the field that pointer points to.
func (p *plain) value(pointer any) {
	switch field := pointer.(type) {
	case *string:
		*field = p.keep(p.quoted())
	case *bool:
		*field = p.true()
	case *time.Time:
		*field = p.time()
	case *[]string:
		*field = p.list()
	case *map[string]jsontext.Value:
		*field = p.object()
	default:
		p.bad = true
	}
}

// true reads true, the only bool that is stored in events.
func (p *plain) true() bool {
	if p.bad = p.bad || !bytes.HasPrefix(p.encoded[p.at:], []byte("true")); !p.bad {
		p.at += len("true")
	}
	return !p.bad
}

// time reads a time in UTC.
func (p *plain) time() (t time.Time) {
	text := p.bytes(p.quoted())
	p.bad = p.bad || !bytes.HasSuffix(text, []byte("Z")) || t.UnmarshalText(text) != nil
	return t
}

// list reads a list of strings.
func (p *plain) list() []string {
	p.expect('[')
	list := make([]string, 0, 4)
	for first := true; p.more(&first, ']'); {
		list = append(list, p.keep(p.quoted()))
	}
	return list
}

// object reads an object whose members are strings.
func (p *plain) object() map[string]jsontext.Value {
	p.expect('{')
	members := map[string]jsontext.Value{}
	for first := true; p.more(&first, '}'); {
		name, value := p.name(), p.quoted()
		if _, twice := members[string(p.bytes(name))]; twice || p.bad {
			p.bad = true
			break
		}
		members[p.keep(name)] = p.encoded[value.from-1 : value.to+1 : value.to+1]
	}
	return members
}

// DecodeObject returns the members of an object whose members are all plain strings, in new memory. For any other value it returns false.
func DecodeObject(object jsontext.Value) (members map[string]jsontext.Value, ok bool) {
	if !isPlain(object) {
		return nil, false
	}
	p := plain{encoded: bytes.Clone(object)}
	members = p.object()
	return members, p.done()
}
