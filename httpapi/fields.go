package httpapi

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/field"
)

// fields reads the fields of a small body one by one and collects those of the wrong type. Null means absent.
type fields struct {
	members map[string]jsontext.Value
	wrong   field.Errors
}

// fields reads the body for a route that knows all its fields.
func (x *exchange) fields() (*fields, error) {
	members, err := x.members()
	return &fields{members: members}, err
}

func take[T any](f *fields, name, message string, kind jsontext.Kind) (value T, given bool) {
	raw, there := f.members[name]
	if !there || raw.Kind() == jsontext.KindNull {
		return value, false
	}
	if raw.Kind() != kind || json.Unmarshal(raw, &value) != nil {
		f.wrong.Add(name, message)
		var none T
		return none, false
	}
	return value, true
}

// only refuses all other fields.
func (f *fields) only(names ...string) {
	for _, name := range slices.Sorted(maps.Keys(f.members)) {
		if !slices.Contains(names, name) {
			f.wrong.Add(shown(name), "is not known here")
		}
	}
}

// someOf refuses a body that is missing, or that has fields but none of these.
func (f *fields) someOf(names ...string) {
	if f.members != nil && len(f.members) == 0 || slices.ContainsFunc(names, func(name string) bool { return f.members[name] != nil }) {
		return
	}
	last := len(names) - 1
	f.wrong.Add("body", "must give "+strings.Join(names[:last], ", ")+" or "+names[last])
}

// has reports whether a field is given.
func (f *fields) has(name string) bool {
	raw, there := f.members[name]
	return there && raw.Kind() != jsontext.KindNull
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

// time reads a moment; the zero time when it is not given.
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

// textOrNil reads a text; nil when it is not given.
func (f *fields) textOrNil(name string) *string {
	value, given := take[string](f, name, "must be a string", jsontext.KindString)
	if !given {
		return nil
	}
	return &value
}

func (f *fields) text(name string) string {
	value, _ := take[string](f, name, "must be a string", jsontext.KindString)
	return value
}

// texts reads a list of strings. A null in it is no string.
func (f *fields) texts(name string) []string {
	const message = "must be a list of strings"
	list, _ := take[[]jsontext.Value](f, name, message, jsontext.KindBeginArray)
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
	value, given := take[float64](f, name, "must be a number", jsontext.KindNumber)
	if !given {
		return nil
	}
	return &value
}

// integer reads a whole number, in plain digits. One beyond the range of int becomes the nearest int, which no field allows either.
func (f *fields) integer(name string) *int {
	raw, given := take[jsontext.Value](f, name, "must be a whole number", jsontext.KindNumber)
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

// with joins the errors of types with those that the command found, one message for a field. An error of another kind is returned
// alone. The result is nil when nothing is wrong.
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
