package expression

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"github.com/go-json-experiment/json/jsontext"
)

// Value returns a JSON value as an expression sees it: whole numbers that fit 64 bits are ints, all others are doubles, and a text is
// cut after its first 40 KiB. The JSON must be valid.
func Value(v jsontext.Value) any {
	decoder := jsontext.NewDecoder(strings.NewReader(string(v)))
	return valueOf(decoder)
}

func valueOf(decoder *jsontext.Decoder) any {
	token, err := decoder.ReadToken()
	if err != nil {
		return nil
	}
	switch token.Kind() {
	case 't', 'f':
		return token.Bool()
	case '"':
		return Cut(token.String())
	case '0':
		return number(token.String())
	case '[':
		list := []any{}
		for kind := decoder.PeekKind(); kind != ']' && kind != 0; kind = decoder.PeekKind() {
			list = append(list, valueOf(decoder))
		}
		_, _ = decoder.ReadToken()
		return list
	case '{':
		object := map[string]any{}
		for decoder.PeekKind() == '"' {
			name, _ := decoder.ReadToken()
			key := name.String()
			object[key] = valueOf(decoder)
		}
		_, _ = decoder.ReadToken()
		return object
	}
	return nil
}

func number(literal string) any {
	if !strings.ContainsAny(literal, ".eE") {
		if whole, err := strconv.ParseInt(literal, 10, 64); err == nil {
			return whole
		}
	}
	double, _ := strconv.ParseFloat(literal, 64)
	return double
}

// Cut returns as much of a text as an expression sees.
func Cut(text string) string {
	if len(text) <= maxText {
		return text
	}
	end := maxText
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

// maxDepth bounds the depth of a result.
const maxDepth = 64

func toJSON(v ref.Val) (jsontext.Value, error) {
	out, err := appendJSON(nil, v, 0)
	if err != nil {
		return nil, err
	}
	return out, nil
}

// appendJSON appends a value as compact JSON. It stops at maxResultBytes: a value that refers to itself many times may be very large.
func appendJSON(out []byte, v ref.Val, depth int) ([]byte, error) {
	if len(out) > maxResultBytes {
		return nil, errLarge
	}
	if depth > maxDepth {
		return nil, errResult
	}
	switch v := v.(type) {
	case types.Null:
		return append(out, "null"...), nil
	case types.Bool:
		return strconv.AppendBool(out, bool(v)), nil
	case types.Int:
		return strconv.AppendInt(out, int64(v), 10), nil
	case types.Uint:
		return strconv.AppendUint(out, uint64(v), 10), nil
	case types.Double:
		return appendNumber(out, float64(v))
	case types.String:
		return quoted(out, string(v))
	case types.Timestamp, types.Duration:
		if text, ok := v.ConvertToType(types.StringType).(types.String); ok {
			return quoted(out, string(text))
		}
	case *types.Optional:
		if v.HasValue() {
			return appendJSON(out, v.GetValue(), depth+1)
		}
		return append(out, "null"...), nil
	case traits.Mapper:
		return appendObject(out, v, depth)
	case traits.Lister:
		return appendList(out, v, depth)
	}
	return nil, errResult
}

func appendNumber(out []byte, f float64) ([]byte, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, errResult
	}
	if abs := math.Abs(f); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		return strconv.AppendFloat(out, f, 'e', -1, 64), nil
	}
	return strconv.AppendFloat(out, f, 'f', -1, 64), nil
}

func quoted(out []byte, text string) ([]byte, error) {
	if strings.ContainsRune(text, 0) {
		return nil, errNUL
	}
	out, _ = jsontext.AppendQuote(out, text) // the only error is about invalid UTF-8, which it replaces
	return out, nil
}

func appendList(out []byte, list traits.Lister, depth int) ([]byte, error) {
	var err error
	out = append(out, '[')
	for it, first := list.Iterator(), true; it.HasNext() == types.True; first = false {
		if !first {
			out = append(out, ',')
		}
		if out, err = appendJSON(out, it.Next(), depth+1); err != nil {
			return nil, err
		}
	}
	return append(out, ']'), nil
}

// appendObject writes the members in the order of their names: a Go map has none, and equal values must have equal JSON.
func appendObject(out []byte, object traits.Mapper, depth int) ([]byte, error) {
	var names []string
	for it := object.Iterator(); it.HasNext() == types.True; {
		name, ok := it.Next().(types.String)
		if !ok {
			return nil, errResult
		}
		names = append(names, string(name))
	}
	slices.Sort(names)
	var err error
	out = append(out, '{')
	for i, name := range names {
		if i > 0 {
			out = append(out, ',')
		}
		if out, err = quoted(out, name); err != nil {
			return nil, err
		}
		out = append(out, ':')
		if out, err = appendJSON(out, object.Get(types.String(name)), depth+1); err != nil {
			return nil, err
		}
	}
	return append(out, '}'), nil
}
