package event

import (
	"errors"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// encoding makes equal values have equal JSON: members are in the order of their fields, or sorted by name in maps.
var encoding = json.JoinOptions(json.Deterministic(true), json.WithMarshalers(json.MarshalToFunc(writeTime)))

// AppendJSON appends the JSON of a value in the form in which facts are stored.
func AppendJSON(buffer []byte, value any) ([]byte, error) {
	encoded, err := json.Marshal(value, encoding)
	return append(buffer, encoded...), err
}

// writeTime writes a time like the API, with three decimals. The library writes times that are more precise, not UTC,
// or in an unusual year.
func writeTime(to *jsontext.Encoder, t time.Time) error {
	year, whole := t.Year(), t.Nanosecond()%int(time.Millisecond) == 0
	if !whole || t.Location() != time.UTC || year < 1 || year > 9999 {
		return errors.ErrUnsupported
	}
	return to.WriteValue(t.AppendFormat(to.AvailableBuffer(), `"2006-01-02T15:04:05.000Z"`))
}
