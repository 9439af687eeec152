package sealed

import (
	"bytes"
	"os"
	"path/filepath"
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

// An event that is stored unsealed must have nothing personal.
func TestBare_HasNoPersonalMembers(t *testing.T) {
	t.Parallel()
	for _, name := range event.Catalogue() {
		classes, _ := event.Classes(name)
		for member, class := range classes {
			require.False(t, bare(name) && class != event.Plain, "%s: %s", name, member)
		}
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
		stored, content, err := seal(k, "lead-1", 0, given)
		require.NoError(t, err)
		require.Equal(t, content != nil, bytes.Contains(data, []byte(`"raw":`)))
		require.True(t, jsontext.Value(stored.Data).IsValid(), "%s", stored.Data)
		require.Equal(t, event.Metadata{Account: "acme", Commitment: stored.Metadata.Commitment}, stored.Metadata)
		members := map[string]jsontext.Value{}
		require.NoError(t, json.Unmarshal(stored.Data, &members))
		require.Contains(t, members, "sealed")
		delete(members, "sealed")
		classes, _ := event.Classes(name)
		for member := range members {
			require.Equal(t, event.Plain, classes[member], "%s: %s", name, member)
		}

		read := eventstore.Recorded{Event: stored, Stream: "lead-1"}
		v, _, ok := openEnvelope(stored.Data, nil)
		require.True(t, ok)
		require.Equal(t, k.id, v.keyID)
		o := &opener{key: k}
		nonce, hash, err := v.open(o, &read)
		require.NoError(t, err)
		if content != nil {
			require.NotContains(t, string(read.Data), `"raw":`)
			require.Equal(t, content.Hash, hash)
			require.True(t, openContent(o, hash, content.Sealed, &read))
		}
		given.Metadata.Commitment = stored.Metadata.Commitment
		require.Equal(t, given.Metadata, read.Metadata)
		require.JSONEq(t, string(given.Data), string(read.Data))
		commitment, err := event.Commitment(nonce, event.Shown{
			ID: read.ID, Stream: "lead-1", Type: name, Data: read.Data,
		})
		require.NoError(t, err)
		require.Equal(t, stored.Metadata.Commitment, commitment)
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
		_, _, err = v.open(&opener{key: k}, &moved)
		require.ErrorIs(t, err, ErrDamaged)
	}
}

func TestOpenEnvelope_UnsealedData(t *testing.T) {
	t.Parallel()
	for _, data := range []string{
		``, `{}`, `"sealed":"AAAAAAAAAAAAAAAAAAAAAAAA"}`, `{"sealed":1}`, `{"sealed":"not base64!"}`,
		`{"sealed":"AAAA"}`, `{"sealed":"AAAAAAAAAAAAAAAAAAAAAAAA"} `,
		`{"name":"\"sealed\":\"AAAAAAAAAAAAAAAAAAAAAAAA"}`, `{"customFields":{"sealed":"AAAAAAAAAAAAAAAAAAAAAAAA"}}`,
		`{"unsealed":"AAAAAAAAAAAAAAAAAAAAAAAA"}`,
		`{"name":"sealed"}`,
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

// Data that is no compact JSON object is sealed as a whole, byte for byte. Data that is no JSON is rejected.
func TestSeal_RoundTrip(t *testing.T) {
	t.Parallel()
	k := testKey()
	for _, data := range []string{
		`{}`, `{"name":"x"}`, `{"source":"s"}`, `[]`, `"text"`, `1`, `null`, ` {"name":"x"}`, `{"name":"x"} `,
		`{"name" : "x"}`, `{"na\"me":{"a":["}",{"b":"]\\"}]},"source":"s"}`,
		`{"name":"é\u00e9\\","source":"api","changed":["name"]}`, `{"name":12345678901234567890.10}`,
	} {
		given := eventstore.Event{ID: ulid.Make(), Type: event.LeadCreated{}.EventType(), Data: []byte(data)}
		stored, _, err := seal(k, "lead-1", 0, given)
		require.NoError(t, err)
		read := eventstore.Recorded{Event: stored, Stream: "lead-1"}
		v, _, ok := openEnvelope(read.Data, nil)
		require.True(t, ok)
		_, _, err = v.open(&opener{key: k}, &read)
		require.NoError(t, err)
		if string(read.Data) != data {
			require.JSONEq(t, data, string(read.Data))
		}
	}
	for _, data := range []string{
		`{"name":"x",}`, `{`, `{"`, `{"name"`, `{"name":`, `{"name":"`, `not JSON`, `{"name":"x","name":"y"}`,
	} {
		given := eventstore.Event{ID: ulid.Make(), Type: event.LeadCreated{}.EventType(), Data: []byte(data)}
		_, _, err := seal(k, "lead-1", 0, given)
		require.ErrorIs(t, err, eventstore.ErrInvalid, data)
	}
}

func FuzzSealedData(f *testing.F) {
	for _, data := range []string{`{"name":"x","source":"api"}`, `{"a":[1,{"b":"}"}],"status":"\\\""}`, `[`, `"`} {
		f.Add([]byte(data))
	}
	k := key{id: 1}
	f.Fuzz(func(t *testing.T, data []byte) {
		given := eventstore.Event{ID: ulid.Make(), Type: event.LeadCreated{}.EventType(), Data: data}
		stored, _, err := seal(k, "lead-1", 0, given)
		canonical := jsontext.Value(data).Clone()
		if invalid := event.Canonicalize(&canonical); invalid != nil {
			require.ErrorIs(t, err, eventstore.ErrInvalid)
			return
		}
		require.NoError(t, err)
		read := eventstore.Recorded{Event: stored, Stream: "lead-1"}
		v, _, ok := openEnvelope(read.Data, nil)
		require.True(t, ok)
		_, _, err = v.open(&opener{key: k}, &read)
		require.NoError(t, err)
		shown := jsontext.Value(read.Data).Clone()
		require.NoError(t, event.Canonicalize(&shown))
		require.Equal(t, string(canonical), string(shown))
	})
}
