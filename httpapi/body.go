package httpapi

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/field"
)

// Limits of a request body.
const (
	maxBody  = 2 << 20 // bytes
	maxDepth = 32      // objects and arrays in each other, the body itself included
)

// members reads the body as a JSON object, strictly. No body at all is read as a nil map. The error is errCoding,
// errMediaType, errTooLarge, errSlowBody or field.Errors.
func (x *exchange) members() (map[string]jsontext.Value, error) {
	if encoded(x.r.Header) {
		return nil, errCoding
	}
	if !acceptable(x.r.Header, mediaJSON) {
		return nil, errMediaType
	}
	raw, err := x.readBody()
	if err != nil {
		return nil, err
	}
	x.hasRead()
	return ParseObject(raw)
}

// encoded reports whether the headers say that a body is compressed or encoded otherwise.
func encoded(header http.Header) bool {
	return slices.ContainsFunc(header.Values("Content-Encoding"), func(coding string) bool {
		return coding != "" && !strings.EqualFold(strings.TrimSpace(coding), "identity")
	})
}

// acceptable reports whether the headers let a body be JSON in UTF-8, under one of the media types.
func acceptable(header http.Header, medias ...string) bool {
	types := header.Values("Content-Type")
	if len(types) == 0 || (len(types) == 1 && types[0] == "") {
		return true
	}
	if len(types) > 1 {
		return false
	}
	if slices.Contains(medias, types[0]) { // as most write it
		return true
	}
	media, params, err := mime.ParseMediaType(types[0])
	if err != nil || !slices.Contains(medias, media) && !(strings.Contains(media, "/") && strings.HasSuffix(media, "+json")) {
		return false
	}
	charset, given := params["charset"]
	return !given || strings.EqualFold(charset, "utf-8") || strings.EqualFold(charset, "utf8")
}

// preallocated is the most memory that is allocated for a body before it has come.
const preallocated = 64 << 10 // bytes

func (x *exchange) readBody() ([]byte, error) {
	if x.r.ContentLength > maxBody {
		return nil, errTooLarge
	}
	capacity := bytes.MinRead
	if x.r.ContentLength > 0 {
		capacity = int(min(x.r.ContentLength, preallocated)) + 1 // so that reading meets the end before it takes more memory
	}
	raw, body := make([]byte, 0, capacity), countedBody{x, http.MaxBytesReader(x.w, x.r.Body, maxBody)}
	for {
		n, err := body.Read(raw[len(raw):cap(raw)])
		raw = raw[:len(raw)+n]
		switch {
		case err == io.EOF:
			return raw, nil
		case err != nil:
			return nil, bodyError(err)
		case len(raw) == cap(raw):
			raw = slices.Grow(raw, len(raw))
		}
	}
}

// bodyError returns the error to answer when a body could not be read to its end.
func bodyError(err error) error {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return errTooLarge
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errSlowBody
	case errors.Is(err, errOverloaded):
		return errOverloaded
	}
	return bad("body", "is cut short") // a broken chunk, or a client that has gone
}

func bad(name, message string) error { return field.Errors{{Field: name, Message: message}} }

// byteOrderMark is what some programs put before UTF-8.
var byteOrderMark = []byte("\xef\xbb\xbf")

// ParseObject splits a JSON object into its members, whose values come out in the shortest form, as lead.Members gives
// them; a nil map when there is nothing but white space. The error is field.Errors, which names the member that is wrong,
// or body.
//
// Beyond the grammar it refuses what stores and readers disagree about: invalid UTF-8, lone surrogates, NUL, keys
// that come twice in an object, numbers that no float64 holds, and depth beyond maxDepth.
func ParseObject(raw []byte) (map[string]jsontext.Value, error) {
	raw = bytes.TrimPrefix(raw, byteOrderMark)
	if len(bytes.TrimLeft(raw, " \t\r\n")) == 0 {
		return nil, nil
	}
	decoder := decoders.Get().(*jsontext.Decoder)
	defer decoders.Put(decoder)
	decoder.Reset(bytes.NewBuffer(raw))
	if kind := decoder.PeekKind(); kind != '{' && kind != jsontext.KindInvalid {
		return nil, bad("body", "must be a JSON object")
	}
	if _, err := decoder.ReadToken(); err != nil {
		return nil, malformed(err)
	}
	members := make(map[string]jsontext.Value)
	compacted := make([]byte, 0, len(raw)) // for all values together
	for decoder.PeekKind() == '"' {
		name, err := decoder.ReadToken()
		if err != nil {
			return nil, malformed(err)
		}
		key := name.String()
		if strings.ContainsRune(key, 0) {
			return nil, bad("body", "must not contain NUL")
		}
		value, err := decoder.ReadValue()
		if err != nil {
			return nil, malformed(err)
		}
		var problem string
		if compacted, problem = appendCompact(compacted[len(compacted):], value); problem != "" {
			return nil, bad(shown(key), problem)
		}
		compact := jsontext.Value(compacted[:len(compacted):len(compacted)])
		if bytes.IndexByte(compact, '\\') >= 0 {
			if err := compact.Format(); err != nil {
				return nil, malformed(err)
			}
		}
		members[key] = compact
	}
	if _, err := decoder.ReadToken(); err != nil { // the closing brace
		return nil, malformed(err)
	}
	if _, err := decoder.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, bad("body", "has something after the JSON object")
	}
	return members, nil
}

var decoders = sync.Pool{New: func() any { return jsontext.NewDecoder(new(bytes.Buffer)) }}

// malformed says where a body is not the JSON that we take.
func malformed(err error) error {
	name := "body"
	var syntax *jsontext.SyntacticError
	if errors.As(err, &syntax) && !errors.Is(err, io.ErrUnexpectedEOF) {
		for first := range syntax.JSONPointer.Tokens() {
			if utf8.ValidString(first) && !strings.ContainsRune(first, 0) {
				name = shown(first)
			}
			break
		}
	}
	if errors.Is(err, jsontext.ErrDuplicateName) {
		return bad(name, "has the same key twice")
	}
	return bad(name, "is not valid JSON in UTF-8")
}

// maxShown is how much of a key an answer repeats.
const maxShown = 50 // characters

func shown(key string) string {
	if utf8.RuneCountInString(key) <= maxShown {
		return key
	}
	return string([]rune(key)[:maxShown]) + "…"
}

// appendCompact copies a value that is valid JSON without its insignificant white space, and says what else is wrong
// with it: one pass over the bytes for all of it.
func appendCompact(out []byte, value jsontext.Value) (_ []byte, problem string) {
	depth := 1 // of the body
	for i := 0; i < len(value); {
		switch c := value[i]; c {
		case ' ', '\t', '\r', '\n':
			i++
			continue
		case '"':
			end, nul := stringEnd(value, i)
			if nul {
				return nil, "must not contain NUL"
			}
			out = append(out, value[i:end]...)
			i = end
			continue
		case '{', '[':
			if depth++; depth > maxDepth {
				return nil, "must be at most 32 levels deep"
			}
		case '}', ']':
			depth--
		case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			end := numberEnd(value, i)
			if _, err := strconv.ParseFloat(string(value[i:end]), 64); err != nil {
				return nil, "has a number that is too large"
			}
			out = append(out, value[i:end]...)
			i = end
			continue
		}
		out = append(out, value[i])
		i++
	}
	return out, ""
}

// stringEnd is where the string literal ends that begins at start, and whether it has an escaped NUL. A raw one is
// not valid JSON.
func stringEnd(value []byte, start int) (end int, nul bool) {
	for i := start + 1; i < len(value); i++ {
		switch value[i] {
		case '\\':
			nul = nul || bytes.HasPrefix(value[i+1:], []byte("u0000"))
			i++
		case '"':
			return i + 1, nul
		}
	}
	return len(value), nul
}

func numberEnd(value []byte, start int) int {
	end := start
	for end < len(value) && strings.IndexByte("+-.0123456789eE", value[end]) >= 0 {
		end++
	}
	return end
}
