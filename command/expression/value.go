package expression

import (
	"bytes"
	"errors"
	"io"
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

// Parse reads JSON as an expression sees it: whole numbers that fit 64 bits are ints, all others are doubles, and a
// text is cut after its first 40 KiB. Beyond the grammar it refuses input that stores and readers treat differently:
// invalid UTF-8, lone surrogates, NUL, duplicate keys of an object, numbers beyond a double, and depth beyond 32. It
// refuses more than 10,000 values, because the time of an evaluation grows with them. The error's text suits the
// sender.
func Parse(raw []byte) (any, error) {
	decoder := &decoder{Decoder: jsontext.NewDecoder(bytes.NewBuffer(raw))}
	value, err := decoder.read()
	if err != nil {
		return nil, err
	}
	if _, err := decoder.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, errTrailing
	}
	return value, nil
}

// Later returns a variable of JSON that is parsed when the first of several expressions reads it. It is not safe for
// concurrent use.
func Later(raw []byte) any {
	var value any
	var err error
	parsed := false
	return func() any {
		if !parsed {
			value, err = Parse(raw)
			parsed = true
		}
		if err != nil {
			return types.WrapErr(err)
		}
		return value
	}
}

var (
	errSyntax    = errors.New("is not valid JSON in UTF-8")
	errTwice     = errors.New("has the same key twice")
	errTrailing  = errors.New("has data after the JSON value")
	errDeep      = errors.New("must be at most 32 levels deep")
	errMany      = errors.New("must have at most 10000 values")
	errTooLarge  = errors.New("has a number that is too large")
	errHasNUL    = errors.New("must not contain NUL")
	maxJSONDepth = 32
	maxValues    = 10_000
)

func malformed(err error) error {
	if errors.Is(err, jsontext.ErrDuplicateName) {
		return errTwice
	}
	return errSyntax
}

// decoder counts what it reads.
type decoder struct {
	*jsontext.Decoder
	values int
}

func (d *decoder) read() (any, error) {
	if d.values++; d.values > maxValues {
		return nil, errMany
	}
	token, err := d.ReadToken()
	if err != nil {
		return nil, malformed(err)
	}
	if d.StackDepth() > maxJSONDepth {
		return nil, errDeep
	}
	switch token.Kind() {
	case 't', 'f':
		return token.Bool(), nil
	case '"':
		return text(token.String())
	case '0':
		return number(token.String())
	case '[':
		list := []any{}
		for d.PeekKind() != ']' {
			element, err := d.read()
			if err != nil {
				return nil, err
			}
			list = append(list, element)
		}
		_, err := d.ReadToken()
		return list, err
	case '{':
		object := map[string]any{}
		for d.PeekKind() != '}' {
			name, err := d.ReadToken()
			if err != nil {
				return nil, malformed(err)
			}
			key := name.String()
			if strings.ContainsRune(key, 0) {
				return nil, errHasNUL
			}
			if object[key], err = d.read(); err != nil {
				return nil, err
			}
		}
		_, err := d.ReadToken()
		return object, err
	}
	return nil, nil // null
}

func text(s string) (any, error) {
	if strings.ContainsRune(s, 0) {
		return nil, errHasNUL
	}
	return Cut(s), nil
}

func number(literal string) (any, error) {
	if !strings.ContainsAny(literal, ".eE") {
		if whole, err := strconv.ParseInt(literal, 10, 64); err == nil {
			return whole, nil
		}
	}
	double, err := strconv.ParseFloat(literal, 64)
	if err != nil {
		return nil, errTooLarge
	}
	return double, nil
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

// appendJSON appends a value as compact JSON. It stops at maxResultBytes: a value that refers to itself many times may
// be very large.
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

// appendObject writes the members in the order of their names: a Go map has none, and equal values must have equal
// JSON.
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
