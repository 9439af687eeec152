package lead

import (
	"bytes"
	"errors"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

var errNotObject = errors.New("not a JSON object")

// text returns the content of a JSON string; false for any other kind of value.
func text(v jsontext.Value) (string, bool) {
	if v.Kind() != '"' {
		return "", false
	}
	if content := v[1 : len(v)-1]; literal(content) {
		return string(content), true
	}
	raw, err := jsontext.AppendUnquote(nil, v)
	return string(raw), err == nil
}

// literal reports whether the content of a JSON string is valid UTF-8 without escapes.
func literal(content []byte) bool { return bytes.IndexByte(content, '\\') < 0 && utf8.Valid(content) }

// quote returns a text as a JSON string, with U+FFFD for invalid UTF-8.
func quote(s string) jsontext.Value {
	// the only error is about invalid UTF-8, which it replaces
	v, _ := jsontext.AppendQuote(make([]byte, 0, len(s)+len(`""`)), s)
	return v
}

// quotes reports whether a value is quote(s), without allocating. It may return false for an equal value with escapes.
func quotes(v jsontext.Value, s string) bool {
	return len(v) == len(s)+2 && v[0] == '"' && string(v[1:len(v)-1]) == s && literal(v[1:len(v)-1])
}

// empty reports whether a value counts as not given: null, a blank string, {} and []. Zero and false are values.
func empty(v jsontext.Value) bool {
	switch v.Kind() {
	case 'n', 0:
		return true
	case '"':
		if content := v[1 : len(v)-1]; literal(content) {
			return len(bytes.TrimSpace(content)) == 0
		}
		s, _ := text(v)
		return Blank(s)
	case '{', '[':
		for _, c := range v[1 : len(v)-1] {
			if c != ' ' && c != '\t' && c != '\n' && c != '\r' {
				return false
			}
		}
		return true
	}
	return false
}

// Members splits a JSON object into its members. Their values are in the form in which they are stored, the shortest
// (numbers as written), so that another spelling of the same value neither counts against a limit nor looks like a
// change.
func Members(v jsontext.Value) (map[string]jsontext.Value, error) {
	if v.Kind() != '{' {
		return nil, errNotObject
	}
	var members map[string]jsontext.Value
	if err := json.Unmarshal(v, &members); err != nil {
		return nil, errNotObject
	}
	for name, value := range members {
		if !shortest(value) {
			if err := value.Format(); err != nil {
				return nil, errNotObject
			}
			members[name] = value
		}
	}
	return members, nil
}

// shortest reports whether a value is known to be in its shortest form. For some that are it returns false.
func shortest(v jsontext.Value) bool {
	switch v.Kind() {
	case '{', '[':
		return false
	case '"':
		return literal(v[1 : len(v)-1])
	}
	return true
}

// texts reads a list of strings.
func texts(v jsontext.Value) (list []string, ok bool) {
	err := json.Unmarshal(v, &list)
	return list, err == nil
}
