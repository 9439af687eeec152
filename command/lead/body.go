package lead

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/field"
)

// maxDepth is how many objects and arrays may be in each other, the body itself included.
const maxDepth = 32

// byteOrderMark precedes the UTF-8 of some programs.
var byteOrderMark = []byte("\xef\xbb\xbf")

func invalid(name, message string) error { return field.Errors{{Field: name, Message: message}} }

// ParseObject splits a JSON object into its members, whose values have the shortest form, like those of Members; a
// nil map if the input is only white space. The error is field.Errors, which names the wrong member, or body.
//
// Beyond the grammar it refuses input that stores and readers treat differently: invalid UTF-8, lone surrogates, NUL,
// duplicate keys of an object, numbers beyond a float64, and depth beyond maxDepth.
func ParseObject(raw []byte) (map[string]jsontext.Value, error) {
	raw = bytes.TrimPrefix(raw, byteOrderMark)
	if len(bytes.TrimLeft(raw, " \t\r\n")) == 0 {
		return nil, nil
	}
	decoder := jsontext.NewDecoder(bytes.NewBuffer(raw))
	if kind := decoder.PeekKind(); kind != jsontext.KindBeginObject && kind != jsontext.KindInvalid {
		return nil, invalid("body", "must be a JSON object")
	}
	if _, err := decoder.ReadToken(); err != nil {
		return nil, malformed(err)
	}
	members := make(map[string]jsontext.Value)
	mayHaveNUL := bytes.Contains(raw, []byte(`\u0000`)) // which is the only way to write one
	for decoder.PeekKind() == jsontext.KindString {
		token, err := decoder.ReadToken()
		if err != nil {
			return nil, malformed(err)
		}
		name, begin := token.String(), decoder.InputOffset()
		if strings.ContainsRune(name, 0) {
			return nil, invalid("body", "must not contain NUL")
		}
		for first := true; first || decoder.StackDepth() > 1; first = false {
			token, err := decoder.ReadToken()
			switch {
			case err != nil:
				return nil, malformed(err)
			case decoder.StackDepth() > maxDepth:
				return nil, invalid(field.ShownKey(name), "must be at most 32 levels deep")
			case mayHaveNUL && token.Kind() == jsontext.KindString && strings.ContainsRune(token.String(), 0):
				return nil, invalid(field.ShownKey(name), "must not contain NUL")
			case token.Kind() == jsontext.KindNumber:
				if _, err := strconv.ParseFloat(token.String(), 64); err != nil {
					return nil, invalid(field.ShownKey(name), "has a number that is too large")
				}
			}
		}
		value := jsontext.Value(bytes.TrimLeft(raw[begin:decoder.InputOffset()], ": \t\r\n")).Clone()
		if err := value.Format(); err != nil {
			return nil, malformed(err)
		}
		members[name] = value
	}
	if _, err := decoder.ReadToken(); err != nil { // the closing brace
		return nil, malformed(err)
	}
	if _, err := decoder.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, invalid("body", "has something after the JSON object")
	}
	return members, nil
}

// malformed returns the error of a body that is not valid JSON, with the member that it is in.
func malformed(err error) error {
	name := "body"
	var syntax *jsontext.SyntacticError
	if errors.As(err, &syntax) && !errors.Is(err, io.ErrUnexpectedEOF) {
		for first := range syntax.JSONPointer.Tokens() {
			if utf8.ValidString(first) && !strings.ContainsRune(first, 0) {
				name = field.ShownKey(first)
			}
			break
		}
	}
	if errors.Is(err, jsontext.ErrDuplicateName) {
		return invalid(name, "has the same key twice")
	}
	return invalid(name, "is not valid JSON in UTF-8")
}
