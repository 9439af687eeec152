package event

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// requireReadAlike holds that a fact is read as the library reads it, or is refused by both.
func requireReadAlike[T Data](t require.TestingT, encoded []byte) {
	want, wrong := decode[T](encoded)
	var none T
	got, err := Decode(none.EventType(), encoded)
	require.Equal(t, wrong == nil, err == nil, "%s: %v, %v", encoded, wrong, err)
	require.Equal(t, want, got, "%s", encoded)
}

// drawn is a fact whose fields are drawn by their types: mostly plain texts, and now and then something else.
func drawn[T Data](t *rapid.T) (fact T) {
	text := rapid.OneOf(rapid.StringMatching(`[ -~]{0,12}`), rapid.StringMatching(`[a-z]{1,8}`), rapid.String())
	value := rapid.OneOf(rapid.Just(jsontext.Value(`"Pune"`)), rapid.Just(jsontext.Value(`""`)),
		rapid.SampledFrom([]jsontext.Value{jsontext.Value(`7`), jsontext.Value(`null`), jsontext.Value(`{"a":["b"]}`), jsontext.Value(`"\u00e9"`)}))
	fields := reflect.ValueOf(&fact).Elem()
	for i := range fields.NumField() {
		name := fields.Type().Field(i).Name
		switch field := fields.Field(i).Addr().Interface().(type) {
		case *string:
			*field = text.Draw(t, name)
		case *bool:
			*field = rapid.Bool().Draw(t, name)
		case *[]string:
			*field = rapid.SliceOfN(text, 0, 4).Draw(t, name)
		case *map[string]jsontext.Value:
			*field = rapid.MapOfN(text, value, 0, 4).Draw(t, name)
		default:
			t.Fatalf("%s is of a new type", name)
		}
	}
	return fact
}

func TestFactsAreReadPlainlyAsTheLibraryReadsThem(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		for _, fact := range []Data{drawn[LeadCreated](t), drawn[LeadMerged](t)} {
			_, encoded, err := Encode(fact)
			require.NoError(t, err)
			requireReadAlike[LeadCreated](t, encoded)
			requireReadAlike[LeadMerged](t, encoded)
		}
	})
}

// Else it would be read the long way, and nobody would notice.
func TestEveryFieldOfThePlainFactsIsReadPlainly(t *testing.T) {
	t.Parallel()
	for _, fact := range []Data{LeadCreated{}, LeadMerged{}} {
		fields := reflect.TypeOf(fact)
		for i := range fields.NumField() {
			name, _, _ := strings.Cut(fields.Field(i).Tag.Get("json"), ",")
			read := slices.ContainsFunc([]string{`"a"`, `true`, `["a","b"]`, `{"a":"b"}`}, func(value string) bool {
				p := plain{encoded: []byte(`"` + name + `":` + value)}
				reflect.New(fields).Interface().(interface{ member(*plain, span) }).member(&p, p.name())
				return p.done()
			})
			require.True(t, read, "%s.%s", fields, name)
		}
	}
}

func FuzzPlainFacts(f *testing.F) {
	for _, seed := range []string{
		`{"name":"Asha","changed":["name"],"metadata":{"a":"b"},"nameDerived":true}`, `{"name":"a","name":"b"}`, `{"changed":[,]}`,
		`{"metadata":{"a":"b","a":"c"}}`, `{"metadata":{},"metadata":{}}`, `{"changed":[],"changed":[]}`, `{"name":"a",}`, `{,"name":"a"}`,
		`{"nameDerived":truex}`, `{"newSource":true}`, `{"name":""}`, `{"name":"a"}}`, `{"changed":["a"}]`, `{"changed":["a",]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, encoded []byte) {
		requireReadAlike[LeadCreated](t, encoded)
		requireReadAlike[LeadMerged](t, encoded)
	})
}

func TestAByteThatIsNotPlainIsSeenWhereverItIs(t *testing.T) {
	t.Parallel()
	for _, around := range []byte{' ', '[', ']', '~', '"', 'a'} {
		for place := range 19 {
			for c := range 256 {
				text := bytes.Repeat([]byte{around}, 19)
				text[place] = byte(c)
				require.Equal(t, c >= ' ' && c < 0x7f && c != '\\', isPlain(text), "%q", text)
			}
		}
	}
}
