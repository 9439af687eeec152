package lead

import (
	"errors"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

var errNotObject = errors.New("not a JSON object")

// text is the content of a JSON string, and false for any other kind of value.
func text(v jsontext.Value) (string, bool) {
	if v.Kind() != '"' {
		return "", false
	}
	raw, err := jsontext.AppendUnquote(nil, v)
	return string(raw), err == nil
}

// quote is the JSON string of a text. What is not UTF-8 becomes U+FFFD.
func quote(s string) jsontext.Value {
	v, _ := jsontext.AppendQuote(nil, s) // the only error is about invalid UTF-8, which it replaces
	return v
}

// empty tells values that change nothing: null, a blank string, {} and []. Zero and false are values.
func empty(v jsontext.Value) bool {
	switch v.Kind() {
	case 'n', 0:
		return true
	case '"':
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

// Members splits a JSON object into its members. Their values come as they are stored, in the shortest form (numbers
// as written), so that spelling neither counts against a limit nor looks like a change.
func Members(v jsontext.Value) (map[string]jsontext.Value, error) {
	var members map[string]jsontext.Value
	if v.Kind() != '{' {
		return nil, errNotObject
	}
	if err := json.Unmarshal(v, &members); err != nil {
		return nil, errNotObject
	}
	for name, value := range members {
		if err := value.Format(); err != nil {
			return nil, errNotObject
		}
		members[name] = value
	}
	return members, nil
}
