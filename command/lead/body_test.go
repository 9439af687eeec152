package lead

import (
	stdjson "encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/eventstore/event"
)

func TestParseObject_CompactMembers(t *testing.T) {
	t.Parallel()
	members, err := ParseObject(
		[]byte("\xef\xbb\xbf { \"a\" : { \"b c\" : [ 1 , 2.50 , -0e1 ] } ,\n\"\\u0061b\":\"x  y\\n\\\\u0000\" }\r\n"),
	)
	require.NoError(t, err)
	require.Len(t, members, 2)
	require.Equal(t, `{"b c":[1,2.50,-0e1]}`, string(members["a"]))
	require.Equal(t, `"x  y\n\\u0000"`, string(members["ab"]), "an escaped backslash before u0000 is not NUL")
	for _, empty := range []string{"", " \n", "\xef\xbb\xbf", "{}"} {
		members, err := ParseObject([]byte(empty))
		require.NoError(t, err, "%q", empty)
		require.Empty(t, members)
	}
}

// The views receive a decision as Go values, and a rebuild reads its JSON from the log. A value with another spelling
// would make the rebuilt view differ.
func TestParseObject_DecisionRoundTrip(t *testing.T) {
	t.Parallel()
	rules := Rules{Region: "IN", Stages: []string{"new", "won"}}
	ids := NewIDs{Lead: "l", Contact: "c", Opportunity: "o"}
	for _, value := range []string{
		`"Pune"`, `"\u0041\/\n\u00e9"`, `"é\\"`, `"<b>&\u2028"`, `"\u007f"`, `1.50`, `1E2`, `-0`, `false`,
		`[ 1 , "\u0041" ]`, `{"b" : "\u0042", "a":[{}]}`, `{}`, `""`, `null`,
	} {
		for _, format := range []string{
			`"k":%s`, `"\u006b":%s`, `"customFields":{"k":%s}`, `"metadata":{"k":%s,"source":"shop","ip":"::1"}`,
			`"name":%s,"opportunityValue":7.50`,
		} {
			body, err := ParseObject(fmt.Appendf(nil, `{"phone":"+919876543210",`+format+`}`, value))
			require.NoError(t, err)
			arrival, err := ParseArrival(body, rules, Client{IP: "203.0.113.7", UserAgent: `"a\b"`})
			if err != nil { // a name that is not a string
				continue
			}
			for _, owner := range []*State{nil, {
				ID: "l", LeadFields: event.LeadFields{Phone: "+919876543210", Status: "new"},
			}} {
				decision, err := Decide(arrival, rules, owner, nil, ids)
				require.NoError(t, err)
				name, encoded, err := event.Encode(decision.Fact)
				require.NoError(t, err)
				read, err := event.Decode(name, encoded)
				require.NoError(t, err)
				require.Equal(t, decision.Fact, read, "%s", encoded)
			}
		}
	}
}

func TestParseObject_RejectsAmbiguousJSON(t *testing.T) {
	t.Parallel()
	deep := func(levels int) string {
		return `{"d":` + strings.Repeat("[", levels-1) + strings.Repeat("]", levels-1) + `}`
	}
	_, err := ParseObject([]byte(deep(32)))
	require.NoError(t, err)
	_, err = ParseObject([]byte(`{"n":[1e308,-1e-400,123456789012345678901234567890]}`))
	require.NoError(t, err)
	for body, at := range map[string]string{
		`[]`: "body", `"x"`: "body", `null`: "body", `1`: "body", `{`: "body", `{"a":1`: "body", `{"a":"`: "body",
		`{}x`: "body", `{}{}`: "body", `{} null`: "body", `{"a":1,}`: "body", `{a:1}`: "body", `// {}`: "body",
		`{}` + "\x00": "body", `{"a":1,"a":2}`: "a", `{"a":1,"\u0061":2}`: "a", `{"m":{"k":1,"k":2}}`: "m",
		`{"m":[{"k":1,"\u006b":2}]}`: "m", `{"a":"\u0000"}`: "a", `{"a":"x\u0000y"}`: "a", `{"a":{"\u0000":1}}`: "a",
		`{"\u0000":1}`:     "body",
		"{\"a\":\"\x00\"}": "a",
		`{"a":"\\\u0000"}`: "a",
		"{\"a\":\"\xff\"}": "a", "{\"\xff\":1}": "body", `{"a":"\ud800"}`: "a", `{"a":"\udc00\ud800"}`: "a",
		`{"\ud800":1}`: "body", `{"a":1e400}`: "a", `{"a":[-1e999]}`: "a", `{"a":1e10000000}`: "a",
		deep(33): "d", deep(100_000): "d",
		`{"a":NaN}`: "a", `{"a":Infinity}`: "a", `{"a":01}`: "body", `{"a":'x'}`: "a", `{"a":+1}`: "a",
		"\xff\xfe{\x00}\x00": "body",
	} {
		_, err := ParseObject([]byte(body))
		var wrong field.Errors
		require.ErrorAs(t, err, &wrong, "%.60q", body)
		require.Len(t, wrong, 1)
		require.Equal(t, at, wrong[0].Field, "%.60q", body)
	}
}

func TestParseObject_TruncatesLongKey(t *testing.T) {
	t.Parallel()
	_, err := ParseObject([]byte(`{"` + strings.Repeat("é", 1000) + `":1e400}`))
	var wrong field.Errors
	require.ErrorAs(t, err, &wrong)
	require.Equal(t, strings.Repeat("é", 50)+"…", wrong[0].Field)
}

// FuzzParseObject requires that an accepted object has the same value in encoding/json, no NUL, and members that parse
// to themselves.
func FuzzParseObject(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `{"a":[1,{"b":null}]}`, `{"a":"\u0000"}`, `{"a":1,"\u0061":2}`, "\xef\xbb\xbf{ }", `{"a":1e400}`,
		`{"\ud83d\ude00":"\\u0000"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		members, err := ParseObject(raw)
		if err != nil {
			var wrong field.Errors
			if !errors.As(err, &wrong) || len(wrong) != 1 || !utf8.ValidString(wrong[0].Field) {
				t.Fatalf("%q: %v", raw, err)
			}
			return
		}
		trimmed := []byte(strings.TrimPrefix(string(raw), "\xef\xbb\xbf"))
		if members == nil {
			require.Empty(t, strings.Trim(string(trimmed), " \t\r\n"))
			return
		}
		if len(members) > 0 {
			var decoded map[string]any
			if err := stdjson.Unmarshal(trimmed, &decoded); err != nil {
				t.Fatalf("%q is accepted, but %v", raw, err)
			}
			require.ElementsMatch(t, slices.Collect(maps.Keys(decoded)), slices.Collect(maps.Keys(members)))
			for key, value := range members {
				var member any
				require.NoError(t, stdjson.Unmarshal(value, &member))
				require.Equal(t, decoded[key], member)
				if strings.ContainsRune(key, 0) || holdsNUL(member) {
					t.Fatalf("%q contains NUL", raw)
				}
			}
		}
		object := []byte{'{'}
		for key, value := range members {
			if len(object) > 1 {
				object = append(object, ',')
			}
			object, err = jsontext.AppendQuote(object, key)
			require.NoError(t, err)
			object = append(append(object, ':'), value...)
		}
		again, err := ParseObject(append(object, '}'))
		require.NoError(t, err)
		require.Equal(t, members, again)
	})
}

func holdsNUL(v any) bool {
	switch v := v.(type) {
	case string:
		return strings.ContainsRune(v, 0)
	case []any:
		return slices.ContainsFunc(v, holdsNUL)
	case map[string]any:
		for key, value := range v {
			if strings.ContainsRune(key, 0) || holdsNUL(value) {
				return true
			}
		}
	}
	return false
}
