package sealed

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/sealbox"
)

// A new type or member must be declared in personal.go.
func TestPersonal_DeclaresEveryMember(t *testing.T) {
	t.Parallel()
	require.Equal(t, event.Catalogue(), slices.Sorted(maps.Keys(declared)), "types of the catalogue and types declared in personal.go")
	for _, name := range event.Catalogue() {
		data, err := event.Decode(name, []byte(`{}`))
		require.NoError(t, err)
		var members []string
		for _, field := range reflect.VisibleFields(reflect.TypeOf(data)) {
			if member, _, _ := strings.Cut(field.Tag.Get("json"), ","); !field.Anonymous {
				require.NotEmpty(t, member, "%T.%s", data, field.Name)
				members = append(members, member)
			}
		}
		d := declared[name]
		require.ElementsMatch(t, members, slices.Concat(d.personal, d.plain, d.content),
			"%s: members of the type and members declared in eventstore/sealed/personal.go", name)
		require.False(t, d.bare && len(d.personal)+len(d.content) > 0, name)
	}
}

// golden returns the stored form of a type's sample.
func golden(t *testing.T, eventType string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "event", "testdata", eventType+".json"))
	require.NoError(t, err)
	return []byte(strings.TrimSuffix(string(content), "\n"))
}

func testKey() key {
	return key{id: -7, secret: [sealbox.KeySize]byte([]byte("0123456789abcdef0123456789abcdef"))}
}

func TestSeal_PersonalMembers(t *testing.T) {
	t.Parallel()
	k := testKey()
	for _, name := range append(event.Catalogue(), "unknown.type.v1") {
		data := []byte(`{"phone":"+491701234567"}`)
		if name != "unknown.type.v1" {
			data = golden(t, name)
		}
		given := eventstore.Event{ID: ulid.Make(), Type: name, Data: data,
			Metadata: event.Metadata{Account: "acme", IP: "192.0.2.99", UserAgent: `a "browser"`}}
		stored, content, err := seal(k, "lead-1", given)
		require.NoError(t, err)
		require.Equal(t, content != nil, bytes.Contains(data, []byte(`"raw":`)))
		require.True(t, jsontext.Value(stored.Data).IsValid(), "%s", stored.Data)
		require.Equal(t, event.Metadata{Account: "acme"}, stored.Metadata)
		members := map[string]jsontext.Value{}
		require.NoError(t, json.Unmarshal(stored.Data, &members))
		require.Contains(t, members, "sealed")
		delete(members, "sealed")
		for member := range members {
			require.Contains(t, declared[name].plain, member, name)
		}

		read := eventstore.Recorded{Event: stored, Stream: "lead-1"}
		v, _, ok := openEnvelope(stored.Data, nil)
		require.True(t, ok)
		require.Equal(t, k.id, v.keyID)
		o := &opener{key: k}
		hash, err := v.open(o, &read)
		require.NoError(t, err)
		if content != nil {
			require.NotContains(t, string(read.Data), `"raw":`)
			require.Equal(t, content.Hash, hash)
			require.True(t, openContent(o, hash, content.Sealed, &read))
		}
		require.Equal(t, given.Metadata, read.Metadata)
		require.JSONEq(t, string(given.Data), string(read.Data))
		require.False(t, read.Erased)

		v, _, _ = openEnvelope(stored.Data, nil)
		erased := eventstore.Recorded{Event: stored}
		v.erase(&erased)
		require.True(t, erased.Erased)
		members["erased"] = jsontext.Value("true")
		shown, err := json.Marshal(members)
		require.NoError(t, err)
		require.JSONEq(t, string(shown), string(erased.Data))
		if name != "unknown.type.v1" {
			_, err := event.Decode(name, erased.Data)
			require.NoError(t, err, "%s", erased.Data)
		}

		moved := eventstore.Recorded{Event: stored, Stream: "lead-2"}
		_, err = v.open(&opener{key: k}, &moved)
		require.ErrorIs(t, err, ErrDamaged)
	}
}

func TestOpenEnvelope_UnsealedData(t *testing.T) {
	t.Parallel()
	for _, data := range []string{
		``, `{}`, `"sealed":"AAAAAAAAAAAAAAAAAAAAAAAA"}`, `{"sealed":1}`, `{"sealed":"not base64!"}`, `{"sealed":"AAAA"}`,
		`{"sealed":"AAAAAAAAAAAAAAAAAAAAAAAA"} `, `{"name":"\"sealed\":\"AAAAAAAAAAAAAAAAAAAAAAAA"}`,
		`{"customFields":{"sealed":"AAAAAAAAAAAAAAAAAAAAAAAA"}}`, `{"unsealed":"AAAAAAAAAAAAAAAAAAAAAAAA"}`, `{"name":"sealed"}`,
	} {
		_, _, ok := openEnvelope([]byte(data), nil)
		require.False(t, ok, data)
	}
	const nested = `"a":{"sealed":"AAAAAAAAAAAAAAAAAAAAAAAA"}`
	v, _, ok := openEnvelope([]byte(`{`+nested+`,"sealed":"AAAAAAAAAAAAAAAAAAAAAAAA"}`), nil)
	require.True(t, ok)
	require.Equal(t, nested, string(v.plain))
	for _, name := range event.Catalogue() {
		_, _, ok := openEnvelope(golden(t, name), nil)
		require.False(t, ok, name)
	}
}

// Data that is no compact JSON object is sealed as a whole, byte for byte.
func TestSeal_RoundTrip(t *testing.T) {
	t.Parallel()
	k := testKey()
	for _, data := range []string{
		`{}`, `{"name":"x"}`, `{"source":"s"}`, `[]`, `"text"`, `1`, `null`, ` {"name":"x"}`, `{"name":"x"} `, `{"name" : "x"}`, `{"name":"x",}`, `{"na\"me":{"a":["}",{"b":"]\\"}]},"source":"s"}`,
		`{"name":"é\u00e9\\","source":"api","changed":["name"]}`, `{`, `{"`, `{"name"`, `{"name":`, `{"name":"`, `not JSON`,
	} {
		given := eventstore.Event{ID: ulid.Make(), Type: event.LeadCreated{}.EventType(), Data: []byte(data)}
		stored, _, err := seal(k, "lead-1", given)
		require.NoError(t, err)
		read := eventstore.Recorded{Event: stored, Stream: "lead-1"}
		v, _, ok := openEnvelope(read.Data, nil)
		require.True(t, ok)
		_, err = v.open(&opener{key: k}, &read)
		require.NoError(t, err)
		if string(read.Data) != data {
			require.JSONEq(t, data, string(read.Data))
		}
	}
}

func FuzzSealedData(f *testing.F) {
	for _, data := range []string{`{"name":"x","source":"api"}`, `{"a":[1,{"b":"}"}],"status":"\\\""}`, `[`, `"`} {
		f.Add([]byte(data))
	}
	k := key{id: 1}
	f.Fuzz(func(t *testing.T, data []byte) {
		given := eventstore.Event{ID: ulid.Make(), Type: event.LeadCreated{}.EventType(), Data: data}
		stored, _, err := seal(k, "lead-1", given)
		require.NoError(t, err)
		read := eventstore.Recorded{Event: stored, Stream: "lead-1"}
		v, _, ok := openEnvelope(read.Data, nil)
		require.True(t, ok)
		_, err = v.open(&opener{key: k}, &read)
		require.NoError(t, err)
		canonical, shown := jsontext.Value(data).Clone(), jsontext.Value(read.Data).Clone()
		if canonical.IsValid() {
			require.NoError(t, canonical.Canonicalize())
			require.NoError(t, shown.Canonicalize())
			require.Equal(t, string(canonical), string(shown))
		}
	})
}
