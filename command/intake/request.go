package intake

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/url"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/htmlindex"

	"github.com/leadlog/leadlog/command/expression"
)

// Request is a post to an intake, or the content that was fetched for it.
type Request struct {
	ContentType string
	Body        []byte
	Headers     map[string]string // by names in lower case
	Query       map[string]string
	Region      string // of phones without a country code
	Item        bool   // the body is an element of a post with several arrivals
	Post        []byte // JSON of that post, without its lists; nil: none
}

// maxFields is how many fields a form may have.
const maxFields = 1000

var (
	errForm    = errors.New("is not a valid form")
	errFields  = errors.New("must have at most 1000 fields")
	errMedia   = errors.New("must be JSON or a form")
	errCharset = errors.New("has a character set that is not known")
	errNUL     = errors.New("must not contain NUL")
)

// byteOrderMark precedes the UTF-8 of some programs.
var byteOrderMark = []byte("\xef\xbb\xbf")

// parse reads the body: JSON, or a form as an object of texts. A field that a form repeats is a list. The error's text
// suits the sender.
func (r Request) parse() (any, error) {
	media, params, err := mime.ParseMediaType(r.ContentType)
	if err != nil {
		media, params = "", nil
	}
	body := bytes.TrimPrefix(r.Body, byteOrderMark)
	trimmed := bytes.TrimLeft(body, " \t\r\n")
	looksLikeJSON := len(trimmed) > 0 && (trimmed[0] == '{' || trimmed[0] == '[')
	switch {
	case media == "application/x-www-form-urlencoded" && looksLikeJSON: // programs such as curl send JSON as this
		if parsed, err := parseJSON(trimmed); err == nil {
			return parsed, nil
		}
		return parseURLEncoded(body, params["charset"], FromBrowser(r.Headers))
	case media == "application/x-www-form-urlencoded":
		return parseURLEncoded(body, params["charset"], FromBrowser(r.Headers))
	case media == "multipart/form-data":
		return parseMultipart(body, params["boundary"])
	case media == "application/json", strings.HasSuffix(media, "+json"):
		return parseJSON(body)
	}
	// Scripts that must not ask for permission first (sendBeacon) post JSON as text/plain, and some programs name no
	// type at all.
	switch {
	case len(trimmed) == 0, looksLikeJSON:
		return parseJSON(trimmed)
	case media == "" && bytes.IndexByte(trimmed, '=') > 0:
		return parseURLEncoded(trimmed, "", FromBrowser(r.Headers))
	}
	return nil, errMedia
}

func parseJSON(body []byte) (any, error) {
	if len(bytes.TrimLeft(body, " \t\r\n")) == 0 {
		return map[string]any{}, nil
	}
	return expression.Parse(body)
}

// fields are those of a form, in the order in which they came, not yet decoded.
type fields []struct{ name, value string }

func (f *fields) add(name, value string) error {
	if len(*f) == maxFields {
		return errFields
	}
	*f = append(*f, struct{ name, value string }{name, value})
	return nil
}

func parseURLEncoded(body []byte, charset string, browser bool) (any, error) {
	var all fields
	for pair := range strings.SplitSeq(string(body), "&") {
		if pair == "" {
			continue
		}
		name, value, err := decodePair(pair, browser)
		if err != nil {
			return nil, errForm
		}
		if err := all.add(name, value); err != nil {
			return nil, err
		}
	}
	return all.object(charset)
}

// decodePair decodes a field of a urlencoded form or query. Programs often write the + of a phone as it is, which is a
// space there; browsers escape it.
func decodePair(pair string, browser bool) (name, value string, err error) {
	name, value, _ = strings.Cut(pair, "=")
	plus := !browser && strings.HasPrefix(value, "+")
	if name, err = url.QueryUnescape(name); err == nil {
		value, err = url.QueryUnescape(value)
	}
	if plus && isNumber(value) {
		value = "+" + strings.TrimLeft(value, " ")
	}
	return name, value, err
}

// isNumber reports whether a text has the digits of a phone number, and else only what separates them.
func isNumber(text string) bool {
	const fewest = 7
	digits := 0
	for _, r := range text {
		switch {
		case '0' <= r && r <= '9':
			digits++
		case !strings.ContainsRune(" -().", r):
			return false
		}
	}
	return digits >= fewest
}

// parseMultipart leaves files out.
func parseMultipart(body []byte, boundary string) (any, error) {
	if boundary == "" {
		return nil, errForm
	}
	var all fields
	reader := multipart.NewReader(bytes.NewReader(body), boundary)
	for parts := 0; ; parts++ {
		part, err := reader.NextPart()
		switch {
		case errors.Is(err, io.EOF) && (parts > 0 || bytes.Contains(body, []byte("--"+boundary))):
			return all.object("")
		case err != nil:
			return nil, errForm
		case parts == maxFields:
			return nil, errFields
		}
		if part.FormName() == "" || part.FileName() != "" {
			continue
		}
		value, err := io.ReadAll(part)
		if err != nil {
			return nil, errForm
		}
		if err := all.add(part.FormName(), string(value)); err != nil {
			return nil, err
		}
	}
}

// WithoutFiles returns a body as it is kept: a multipart form without the contents of its files, which no mapping sees.
// It returns any other body, and one that cannot be parsed, unchanged.
func WithoutFiles(contentType string, body []byte) []byte {
	media, params, err := mime.ParseMediaType(contentType)
	if err != nil || media != "multipart/form-data" {
		return body
	}
	reader, files := multipart.NewReader(bytes.NewReader(body), params["boundary"]), false
	var kept bytes.Buffer
	writer := multipart.NewWriter(&kept)
	if writer.SetBoundary(params["boundary"]) != nil {
		return body
	}
	for parts := 0; ; parts++ {
		part, err := reader.NextRawPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || parts == maxFields {
			return body
		}
		copied, err := writer.CreatePart(part.Header)
		if err != nil {
			return body
		}
		if part.FileName() != "" {
			files = true
			continue
		}
		if _, err := io.Copy(copied, part); err != nil {
			return body
		}
	}
	if !files || writer.Close() != nil {
		return body
	}
	return kept.Bytes()
}

// charsetField is the name of a hidden field that browsers fill in with the name of the form's encoding.
const charsetField = "_charset_"

// object decodes the fields. Without a character set they are UTF-8, or Windows-1252 if they are not valid UTF-8.
func (f fields) object(charset string) (any, error) {
	valid := true
	for _, pair := range f {
		if pair.name == charsetField && charset == "" {
			charset = pair.value
		}
		valid = valid && utf8.ValidString(pair.name) && utf8.ValidString(pair.value)
	}
	decode := func(s string) (string, error) { return s, nil }
	if charset == "" && !valid {
		decode = charmap.Windows1252.NewDecoder().String
	} else if charset != "" && !strings.EqualFold(charset, "utf-8") {
		found, err := htmlindex.Get(charset)
		if err != nil {
			return nil, errCharset
		}
		decode = found.NewDecoder().String
	}
	object := make(map[string]any, len(f))
	for _, pair := range f {
		name, err := decode(pair.name)
		if err != nil {
			return nil, errForm
		}
		value, err := decode(pair.value)
		if err != nil {
			return nil, errForm
		}
		if strings.ContainsRune(name, 0) || strings.ContainsRune(value, 0) {
			return nil, errNUL
		}
		if name == charsetField || name == "" {
			continue
		}
		value = expression.Cut(strings.ToValidUTF8(value, "\uFFFD"))
		name = strings.ToValidUTF8(name, "\uFFFD")
		switch earlier := object[name].(type) {
		case nil:
			object[name] = value
		case string:
			object[name] = []any{earlier, value}
		case []any:
			object[name] = append(earlier, value)
		}
	}
	return object, nil
}
