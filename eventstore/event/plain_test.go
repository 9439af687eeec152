package event

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
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

// requireWrittenAlike holds that a value is written by hand as the library writes it, or by neither.
func requireWrittenAlike(t require.TestingT, value any, write func() ([]byte, error)) {
	want, wrong := json.Marshal(value, json.Deterministic(true))
	got, err := write()
	require.Equal(t, wrong == nil, err == nil, "%+v: %v, %v", value, wrong, err)
	if err == nil {
		require.Equal(t, string(want), string(got))
	}
}

func TestFactsAreWrittenByHandAsTheLibraryWritesThem(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		for _, fact := range []Data{drawn[LeadCreated](t), drawn[LeadMerged](t), drawn[ClaimTaken](t)} {
			requireWrittenAlike(t, fact, func() ([]byte, error) {
				require.Implements(t, (*written)(nil), fact)
				_, encoded, err := Encode(fact)
				return encoded, err
			})
		}
	})
}

func TestWhatIsNoJSONIsNotWritten(t *testing.T) {
	t.Parallel()
	for _, fact := range []Data{
		LeadCreated{Name: "a\xff"}, LeadCreated{CustomFields: map[string]jsontext.Value{"a\xff": jsontext.Value(`1`)}},
		LeadCreated{Changed: []string{"a\xff"}}, LeadCreated{CustomFields: map[string]jsontext.Value{"none": nil, "empty": {}}},
		LeadCreated{Metadata: map[string]jsontext.Value{"cut": jsontext.Value(`"a`)}},
		LeadCreated{Metadata: map[string]jsontext.Value{"quote": jsontext.Value(`"`)}},
		LeadCreated{Metadata: map[string]jsontext.Value{"two": jsontext.Value(`"a""b"`)}},
		LeadCreated{Metadata: map[string]jsontext.Value{"nothing": jsontext.Value(`""`), "null": nil}},
		LeadCreated{Metadata: map[string]jsontext.Value{"word": jsontext.Value(`tru`)}},
		LeadCreated{Metadata: map[string]jsontext.Value{"twice": jsontext.Value(`{"a":1,"a":2}`)}},
		LeadCreated{Metadata: map[string]jsontext.Value{"space": jsontext.Value(`{ "a" : [ 1.50, "\u00e9<" ] }`)}},
		LeadMerged{Metadata: map[string]jsontext.Value{}, Changed: []string{}},
	} {
		requireWrittenAlike(t, fact, func() ([]byte, error) {
			_, encoded, err := Encode(fact)
			return encoded, err
		})
	}
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
