package httpapi

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/httpapi/console"
	"github.com/leadlog/leadlog/query"
)

// maxBody bounds a request's body.
const maxBody = 2 << 20 // bytes

// members reads the body as a JSON object, strictly. No body at all is read as a nil map. The error is errCoding,
// errMediaType, errTooLarge, errSlowBody or field.Errors.
func (ex *exchange) members() (map[string]jsontext.Value, error) {
	return ex.membersUpTo(maxBody, errTooLarge)
}

// membersUpTo is members with another limit of the body's size, and the error of a larger one.
func (ex *exchange) membersUpTo(most int64, tooLarge error) (map[string]jsontext.Value, error) {
	if encoded(ex.r.Header) {
		return nil, errCoding
	}
	if !acceptable(ex.r.Header, mediaJSON) {
		return nil, errMediaType
	}
	return ex.objectUpTo(most, tooLarge)
}

// objectUpTo is membersUpTo of a body of any media type.
func (ex *exchange) objectUpTo(most int64, tooLarge error) (map[string]jsontext.Value, error) {
	raw, err := ex.readBodyUpTo(most, tooLarge)
	if err != nil {
		return nil, err
	}
	ex.bodyRead()
	return lead.ParseObject(raw)
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
	if err != nil || !slices.Contains(medias, media) &&
		!(strings.Contains(media, "/") && strings.HasSuffix(media, "+json")) {
		return false
	}
	charset, given := params["charset"]
	return !given || strings.EqualFold(charset, "utf-8") || strings.EqualFold(charset, "utf8")
}

// readBodyUpTo reads a body of at most most bytes. The error of a larger one is tooLarge.
func (ex *exchange) readBodyUpTo(most int64, tooLarge error) ([]byte, error) {
	if ex.r.ContentLength > most {
		return nil, tooLarge
	}
	body, err := ex.readAll(countedBody{ex, http.MaxBytesReader(ex.w, ex.r.Body, most)})
	if err != nil {
		if err = bodyError(err); errors.Is(err, errTooLarge) {
			err = tooLarge
		}
		return nil, err
	}
	return body, nil
}

func (ex *exchange) readAll(body countedBody) ([]byte, error) {
	if !ex.kind.AtIntake() {
		return io.ReadAll(body)
	}
	paced := newPacedBody(body)
	all, err := io.ReadAll(paced)
	if err == nil { // net/http reads the rest of any other body
		paced.end()
	}
	return all, err
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
	return bad("body", "is cut short") // a broken chunk, or a disconnected client
}

func bad(name, message string) error { return field.Errors{{Field: name, Message: message}} }

// byteOrderMark precedes the UTF-8 of some programs.
var byteOrderMark = []byte("\xef\xbb\xbf")

// fields reads the fields of a small body one by one and collects the errors. Null means absent.
type fields struct {
	members map[string]jsontext.Value
	wrong   field.Errors
}

// fields reads the body of a route that has these fields, and rejects all others: a misspelt limit would otherwise be
// no limit.
func (ex *exchange) fields(names ...string) (*fields, error) {
	members, err := ex.members()
	body := &fields{members: members}
	body.only(names...)
	return body, err
}

// withoutFields rejects a body with fields, for a route that has none. Its media type does not matter, because a client
// may announce one for an empty body.
func withoutFields(handle func(*exchange) (answer, error)) func(*exchange) (answer, error) {
	return func(ex *exchange) (answer, error) {
		members, err := ex.objectUpTo(maxBody, errTooLarge)
		body := &fields{members: members}
		body.only()
		if err := body.with(err); err != nil {
			return answer{}, err
		}
		return handle(ex)
	}
}

// idAndFields reads the id in the path and then the body. The error of an invalid id is missing.
func (ex *exchange) idAndFields(missing error, names ...string) (id string, body *fields, err error) {
	if id, err = ex.ulidID(missing); err == nil {
		body, err = ex.fields(names...)
	}
	return id, body, err
}

// recordFields returns the fields of a record, and others: a record may be sent back as it was answered.
func recordFields[R any](others ...string) []string {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[R]()) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			others = append(others, name)
		}
	}
	return others
}

func member[T any](f *fields, name, message string, kind jsontext.Kind) (value T, given bool) {
	raw, given := f.members[name]
	if !given || raw.Kind() == jsontext.KindNull {
		return value, false
	}
	if raw.Kind() != kind || json.Unmarshal(raw, &value) != nil {
		f.wrong.Add(name, message)
		var none T
		return none, false
	}
	return value, true
}

// only rejects all other fields.
func (f *fields) only(names ...string) {
	field.Only(&f.wrong, "", f.members, names...)
}

// someOf rejects a missing body, and a body that has only other fields.
func (f *fields) someOf(names ...string) {
	if f.wrong != nil || f.members != nil && len(f.members) == 0 || slices.ContainsFunc(names, func(name string) bool {
		return f.members[name] != nil
	}) {
		return
	}
	last := len(names) - 1
	f.wrong.Add("body", "must have at least one of "+strings.Join(names[:last], ", ")+" and "+names[last])
}

// has reports whether a field is given.
func (f *fields) has(name string) bool {
	raw, given := f.members[name]
	return given && raw.Kind() != jsontext.KindNull
}

func (f *fields) boolean(name string) *bool {
	if !f.has(name) {
		return nil
	}
	value := f.members[name].Kind() == jsontext.KindTrue
	if !value && f.members[name].Kind() != jsontext.KindFalse {
		f.wrong.Add(name, "must be true or false")
	}
	return &value
}

// time reads a time; zero when absent.
func (f *fields) time(name string) time.Time {
	text := f.textOrNil(name)
	if text == nil {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339, *text)
	if err != nil || !at.After(time.Time{}) {
		f.wrong.Add(name, "must be a time such as 2006-01-02T15:04:05Z")
	}
	return at
}

// textOrNil reads a text; nil when absent.
func (f *fields) textOrNil(name string) *string {
	value, given := member[string](f, name, "must be a string", jsontext.KindString)
	if !given {
		return nil
	}
	return &value
}

func (f *fields) text(name string) string {
	value, _ := member[string](f, name, "must be a string", jsontext.KindString)
	return value
}

// texts reads a list of strings; null is not one.
func (f *fields) texts(name string) []string {
	const message = "must be a list of strings"
	list, given := member[[]jsontext.Value](f, name, message, jsontext.KindBeginArray)
	if !given {
		return nil
	}
	texts := make([]string, 0, len(list))
	for _, raw := range list {
		text, err := jsontext.AppendUnquote(nil, raw)
		if raw.Kind() != jsontext.KindString || err != nil {
			f.wrong.Add(name, message)
			return nil
		}
		texts = append(texts, string(text))
	}
	return texts
}

func (f *fields) number(name string) *float64 {
	value, given := member[float64](f, name, "must be a number", jsontext.KindNumber)
	if !given {
		return nil
	}
	return &value
}

// integer reads a whole number in plain digits. One beyond the range of int becomes the nearest int, which no field
// allows.
func (f *fields) integer(name string) *int {
	raw, given := member[jsontext.Value](f, name, "must be a whole number", jsontext.KindNumber)
	if !given {
		return nil
	}
	value, err := strconv.Atoi(string(raw))
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		f.wrong.Add(name, "must be a whole number")
		return nil
	}
	return &value
}

// with joins the errors of types with the command's field errors, one per field. An error of another kind is returned
// alone.
func (f *fields) with(err error) error {
	var decided field.Errors
	if err != nil && !errors.As(err, &decided) {
		return err
	}
	all := slices.Clone(f.wrong)
	for _, one := range decided {
		if !slices.ContainsFunc(f.wrong, func(w field.Error) bool { return w.Field == one.Field }) {
			all = append(all, one)
		}
	}
	return all.Err()
}

const (
	defaultLimit = 50
	maxLimit     = 200
	maxParam     = 1000 // characters
)

// params reads the parameters of a query string one by one and collects those that are wrong. Unknown ones are ignored.
type params struct {
	values url.Values
	wrong  field.Errors
}

func (ex *exchange) params() *params { return &params{values: console.QueryParams(ex.r)} }

// get reads a parameter that may be given only once.
func (p *params) get(name string) string {
	if len(p.values[name]) > 1 {
		p.wrong.Add(name, "must be given once")
	}
	return p.values.Get(name)
}

func (p *params) text(name string) string {
	value := p.get(name)
	if !utf8.ValidString(value) || strings.ContainsRune(value, 0) || utf8.RuneCountInString(value) > maxParam {
		p.wrong.Add(name, "must be text of at most 1000 characters")
		return ""
	}
	return value
}

// oneOf reads one of a few values, in any letter case. Any other is an error: an empty list would look like a result.
func (p *params) oneOf(name string, values ...string) string {
	return p.wrong.OneOf(name, p.text(name), values...)
}

func (p *params) source() string { return p.oneOf("source", lead.Sources()...) }

// flag reads true or false; false when it is not given. Anything else is an error.
func (p *params) flag(name string) bool {
	values := p.values[name]
	switch {
	case len(values) == 0 || len(values) == 1 && values[0] == "false":
		return false
	case len(values) == 1 && values[0] == "true":
		return true
	}
	p.wrong.Add(name, "must be true or false")
	return false
}

// phone reads a number. Its plus sign arrives as a space if it was not escaped.
func (p *params) phone(name string) string {
	value := p.text(name)
	if national, ok := strings.CutPrefix(value, " "); ok {
		return "+" + national
	}
	return value
}

// time reads a time; zero when absent. The plus sign of its offset may be a space, like that of a phone.
func (p *params) time(name string) time.Time {
	value := p.get(name)
	if value == "" {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339, strings.Replace(value, " ", "+", 1))
	if err != nil || !at.After(time.Time{}) {
		p.wrong.Add(name, "must be a time such as 2006-01-02T15:04:05Z")
	}
	return at
}

func (p *params) page() query.Page {
	page := query.Page{Limit: defaultLimit, Cursor: p.text("cursor")}
	if value := p.get("limit"); value != "" {
		limit, err := strconv.Atoi(value)
		if err != nil || limit < 1 || limit > maxLimit {
			p.wrong.Add("limit", "must be a whole number from 1 to 200")
		}
		page.Limit = limit
	}
	return page
}
