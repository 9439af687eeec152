package query

import (
	"reflect"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// tagged is a lead without the method that writes it.
type tagged Lead

func TestALeadIsShownAsItsTagsSay(t *testing.T) {
	t.Parallel()
	text := rapid.OneOf(rapid.StringMatching(`[ -~]{0,12}`), rapid.String(), rapid.Just("not \xff UTF-8"))
	value := rapid.SampledFrom([]jsontext.Value{
		jsontext.Value(`"Pune"`), jsontext.Value(`""`), jsontext.Value(`7.50`), jsontext.Value(`null`), jsontext.Value(`{"a":["b",{}]}`),
		jsontext.Value(`"\u00e9\u2028</"`),
	})
	id := "01JQKXZ8V4W9H6M3T2R5N7P0AB"
	rapid.Check(t, func(t *rapid.T) {
		var l Lead
		fields := reflect.ValueOf(&l).Elem()
		for i := range fields.NumField() {
			name := fields.Type().Field(i).Name
			switch field := fields.Field(i).Addr().Interface().(type) {
			case *string:
				*field = text.Draw(t, name)
			case **string:
				*field = rapid.SampledFrom([]*string{nil, &id}).Draw(t, name)
			case *[]string:
				*field = rapid.OneOf(rapid.Just[[]string](nil), rapid.SliceOfN(text, 0, 3)).Draw(t, name)
			case *jsontext.Value:
				*field = rapid.SampledFrom([]jsontext.Value{jsontext.Value(`null`), jsontext.Value(`120000.5`), nil}).Draw(t, name)
			case *map[string]jsontext.Value:
				*field = rapid.OneOf(rapid.Just[map[string]jsontext.Value](nil), rapid.MapOfN(rapid.String(), value, 0, 4)).Draw(t, name)
			case *Timestamp:
				*field = rapid.SampledFrom([]Timestamp{{}, Timestamp(time.UnixMilli(1_700_000_000_007))}).Draw(t, name)
			default:
				t.Fatalf("%s is of a new type", name)
			}
		}
		options := json.JoinOptions(json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
		want, err := json.Marshal((*tagged)(&l), options)
		require.NoError(t, err)
		got, err := json.Marshal(&l, options)
		require.NoError(t, err)
		require.Equal(t, string(want), string(got))
	})
}
