package event

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// requireSameDecoding requires that a codec and the library decode to the same value, or that both fail.
func requireSameDecoding[T any](t require.TestingT, encoded []byte) {
	var want T
	wantErr := json.Unmarshal(encoded, &want)
	got, err := NewCodec[T]().Decode(encoded)
	require.Equal(t, wantErr == nil, err == nil, "%s: %v, %v", encoded, wantErr, err)
	if err == nil {
		require.Equal(t, want, got, "%s", encoded)
	}
}

// requireSameEncoding requires that a codec and the library encode the same except for the decimals of times, or that both fail.
func requireSameEncoding[T any](t require.TestingT, value T) []byte {
	want, wantErr := json.Marshal(value, json.Deterministic(true), timesWithin)
	got, err := NewCodec[T]().Append([]byte("before"), &value)
	require.Equal(t, wantErr == nil, err == nil, "%+v: %v, %v", value, wantErr, err)
	if err != nil {
		return nil
	}
	require.Equal(t, "before"+string(want), string(got))
	return want
}

// embedding has a field of every kind.
type embedding struct {
	Name string
	Inner
	Number int64                     `json:"number,omitzero"`
	Count  int                       `json:"count"`
	At     time.Time                 `json:"at,omitzero"`
	Hash   []byte                    `json:"hash,omitzero"`
	Limit  *int                      `json:"limit,omitzero"`
	Values map[string]jsontext.Value `json:"values,omitzero"`
}

// Inner is embedded.
type Inner struct {
	Text  string   `json:"text,omitzero"`
	Flag  bool     `json:"flag,omitzero"`
	Texts []string `json:"texts"`
}

// drawn generates a struct. Most texts are plain ASCII.
func drawn[T any](t *rapid.T) (value T) {
	draw(t, reflect.ValueOf(&value).Elem())
	return value
}

func draw(t *rapid.T, fields reflect.Value) {
	text := rapid.OneOf(rapid.StringMatching(`[ -~]{0,12}`), rapid.StringMatching(`[a-z]{1,8}`), rapid.String())
	member := rapid.OneOf(rapid.Just(jsontext.Value(`"Pune"`)), rapid.Just(jsontext.Value(`""`)),
		rapid.SampledFrom([]jsontext.Value{jsontext.Value(`7`), jsontext.Value(`null`), jsontext.Value(`{"a":["b"]}`), jsontext.Value(`"\u00e9"`)}))
	for i := range fields.NumField() {
		name := fields.Type().Field(i).Name
		switch field := fields.Field(i).Addr().Interface().(type) {
		case *string:
			*field = text.Draw(t, name)
		case *bool:
			*field = rapid.Bool().Draw(t, name)
		case *int:
			*field = rapid.Int().Draw(t, name)
		case *int64:
			*field = rapid.Int64().Draw(t, name)
		case *time.Time:
			*field = time.UnixMilli(rapid.Int64Range(0, 4e12).Draw(t, name)).UTC()
		case *[]byte:
			*field = rapid.SliceOf(rapid.Byte()).Draw(t, name)
		case **int:
			*field = rapid.Ptr(rapid.Int(), true).Draw(t, name)
		case *[]string:
			*field = rapid.SliceOfN(text, 0, 4).Draw(t, name)
		case *map[string]jsontext.Value:
			*field = rapid.MapOfN(text, member, 0, 4).Draw(t, name)
		default:
			if fields.Type().Field(i).Anonymous {
				draw(t, fields.Field(i))
				continue
			}
			t.Fatalf("no generator for the type of %s", name)
		}
	}
}

func TestCodec_AgreesWithLibrary(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		for _, encoded := range [][]byte{
			requireSameEncoding(t, drawn[LeadCreated](t)), requireSameEncoding(t, drawn[LeadMerged](t)), requireSameEncoding(t, drawn[ClaimTaken](t)),
			requireSameEncoding(t, drawn[Metadata](t)), requireSameEncoding(t, drawn[embedding](t)),
		} {
			requireSameDecoding[LeadCreated](t, encoded)
			requireSameDecoding[LeadMerged](t, encoded)
			requireSameDecoding[Metadata](t, encoded)
			requireSameDecoding[embedding](t, encoded)
		}
	})
}

func TestCodec_AppendInvalid(t *testing.T) {
	t.Parallel()
	members := func(name, value string) map[string]jsontext.Value {
		return map[string]jsontext.Value{name: jsontext.Value(value)}
	}
	for _, fact := range []LeadCreated{
		{LeadFields: LeadFields{Name: "a\xff"}}, {Changed: []string{"a\xff"}}, {LeadFields: LeadFields{CustomFields: members("a\xff", `1`)}},
		{LeadFields: LeadFields{CustomFields: map[string]jsontext.Value{"none": nil, "empty": {}}}},
		{Metadata: members("cut", `"a`)}, {Metadata: members("quote", `"`)}, {Metadata: members("two", `"a""b"`)},
		{Metadata: map[string]jsontext.Value{"empty text": jsontext.Value(`""`), "null": nil}},
		{Metadata: members("word", `tru`)}, {Metadata: members("twice", `{"a":1,"a":2}`)},
		{Metadata: members("space", `{ "a" : [ 1.50, "\u00e9<" ] }`)},
		{Metadata: map[string]jsontext.Value{}, Changed: []string{}},
	} {
		requireSameEncoding(t, fact)
	}
}

// Stored events of leads are returned unchanged in responses, whose times have three decimals.
func TestCodec_TimesHaveThreeDecimals(t *testing.T) {
	t.Parallel()
	at := time.Date(2025, 3, 30, 1, 2, 3, 450e6, time.UTC)
	for _, fact := range []Data{
		LeadCreated{KeptArrival: KeptArrival{ReceivedAt: at}}, LeadJoined{Was: LeadSnapshot{CreatedAt: at}}, IntakeResumed{ArrivedAt: at},
	} {
		_, encoded, err := Encode(fact)
		require.NoError(t, err)
		require.Contains(t, string(encoded), `"2025-03-30T01:02:03.450Z"`)
	}
}

// Decoding falls back to the library with the same result, so only this test detects a field without the fast path.
func TestCodec_DecodesLeadsOnFastPath(t *testing.T) {
	t.Parallel()
	requireFastPath[LeadCreated](t)
	requireFastPath[LeadMerged](t)
	requireFastPath[Metadata](t)
}

func requireFastPath[T any](t *testing.T) {
	t.Helper()
	value := new(T)
	fields := reflect.ValueOf(value).Elem()
	for _, of := range reflect.VisibleFields(fields.Type()) {
		switch field := fields.FieldByIndex(of.Index).Addr().Interface().(type) {
		case *string:
			*field = "a"
		case *bool:
			*field = true
		case *[]string:
			*field = []string{"a", "b"}
		case *time.Time:
			*field = time.Date(2025, 3, 30, 1, 2, 3, 45e6, time.UTC)
		case *map[string]jsontext.Value:
			*field = map[string]jsontext.Value{"a": jsontext.Value(`"b"`)}
		default:
			require.True(t, of.Anonymous, of.Name)
		}
	}
	codec, read := NewCodec[T](), new(T)
	encoded, err := codec.Append(nil, value)
	require.NoError(t, err)
	require.True(t, codec.decodePlain(encoded, read), "%s", encoded)
	require.Equal(t, value, read)
}

func TestCodec_Decode(t *testing.T) {
	t.Parallel()
	for name, encoded := range map[string]string{
		"nothing":              ``,
		"null":                 `null`,
		"no members":           `{}`,
		"space":                `{ "account": "acme" , "ip":"192.0.2.1"}`,
		"escape":               `{"account":"ac\u006de","userAgent":"\"quoted\" \\"}`,
		"escaped name":         `{"acc\u006funt":"acme"}`,
		"text beyond ASCII":    `{"account":"acme","userAgent":"Käfer"}`,
		"unknown member":       `{"account":"acme","addedLater":{"deep":"{\"account\":\"x\"}"}}`,
		"other order":          `{"ip":"192.0.2.1","account":"acme"}`,
		"duplicate member":     `{"account":"acme","account":"other"}`,
		"duplicate empty":      `{"account":"","account":"other"}`,
		"other type":           `{"account":7}`,
		"null text":            `{"account":null,"ip":"192.0.2.1"}`,
		"truncated":            `{"account":"acme`,
		"truncated after text": `{"account":"acme"`,
		"trailing comma":       `{"account":"acme",}`,
		"leading comma":        `{,"account":"acme"}`,
		"trailing object":      `{"account":"acme"}{}`,
		"trailing members":     `{"account":"acme"}"ip":"192.0.2.1"}`,
		"not UTF-8":            "{\"account\":\"\xff\"}",
		"control character":    "{\"account\":\"a\nb\"}",
		"other letter case":    `{"Account":"acme"}`,
		"second value":         `{"account":"acme":"x"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireSameDecoding[Metadata](t, []byte(encoded))
		})
	}
}

func FuzzCodec(f *testing.F) {
	for _, seed := range []string{
		`{"name":"Asha","changed":["name"],"metadata":{"a":"b"},"nameDerived":true}`, `{"name":"a","name":"b"}`, `{"changed":[,]}`,
		`{"metadata":{"a":"b","a":"c"}}`, `{"metadata":{},"metadata":{}}`, `{"changed":[],"changed":[]}`, `{"name":"a",}`, `{,"name":"a"}`,
		`{"nameDerived":truex}`, `{"newSource":true}`, `{"name":""}`, `{"name":"a"}}`, `{"changed":["a"}]`, `{"changed":["a",]}`,
		`{"account":"acme","requestId":"01J","ip":"192.0.2.1"}`, `{"account":"","account":"\u0000"}`, `{"nameDerived":tru`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, encoded []byte) {
		requireSameDecoding[LeadCreated](t, encoded)
		requireSameDecoding[LeadMerged](t, encoded)
		requireSameDecoding[Metadata](t, encoded)
	})
}

func TestIsPlain_EveryByte(t *testing.T) {
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

// BenchmarkCodec compares the codec with the library.
func BenchmarkCodec(b *testing.B) {
	created := LeadCreated{
		ContactUID: "01M7YGZVZWE6S8RYN49QGMF6BH", LeadFields: LeadFields{
			Name: "Asha Rao", Phone: "+919876543210", Email: "asha@example.com",
			Status: "new", Temperature: "warm", CustomFields: map[string]jsontext.Value{"city": jsontext.Value(`"Pune"`)},
		}, Source: "website",
		Metadata: map[string]jsontext.Value{"source": jsontext.Value(`"website"`), "utm_campaign": jsontext.Value(`"diwali"`)},
		IP:       "127.0.0.1", UserAgent: "curl/7.88.1", Changed: []string{"name", "phone", "email", "customFields", "metadata"},
	}
	codec := NewCodec[LeadCreated]()
	encoded, err := codec.Append(nil, &created)
	require.NoError(b, err)
	for name, work := range map[string]func() error{
		"append":    func() error { _, err := codec.Append(make([]byte, 0, 512), &created); return err },
		"marshal":   func() error { _, err := json.Marshal(&created, json.Deterministic(true)); return err },
		"decode":    func() error { _, err := codec.Decode(encoded); return err },
		"unmarshal": func() error { var into LeadCreated; return json.Unmarshal(encoded, &into) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := work(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
