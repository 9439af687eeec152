package lead

import (
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestEmpty_Values(t *testing.T) {
	t.Parallel()
	for _, v := range []string{"", "null", `""`, `" "`, `"\t\u00a0\n"`, "{}", "[]", "{ }", "[\n\t]"} {
		require.True(t, empty(jsontext.Value(v)), "%q", v)
	}
	for _, v := range []string{
		"0", "-0", "0.0", "false", "true", `"0"`, `"null"`, `"\u200b"`, `{"":null}`, "[null]", "[[]]", "[{}]",
	} {
		require.False(t, empty(jsontext.Value(v)), "%q", v)
	}
	require.True(t, empty(nil), "absent")
}

func TestText_Content(t *testing.T) {
	t.Parallel()
	for v, want := range map[string]string{`""`: "", `"a\"b"`: `a"b`, `"\u00e9\ud83d\ude00"`: "é😀", `"\n"`: "\n"} {
		got, ok := text(jsontext.Value(v))
		require.True(t, ok, v)
		require.Equal(t, want, got, v)
	}
	for _, v := range []string{"", "null", "1", "true", "{}", `["a"]`, `"\ud800"`} {
		_, ok := text(jsontext.Value(v))
		require.False(t, ok, "%q", v)
	}
}

func TestQuote_RoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "text")
		got, ok := text(quote(s))
		require.True(t, ok)
		require.Equal(t, s, got)
	})
	require.Equal(t, `"a�b"`, string(quote("a\xffb")))
}

func TestMembers_Object(t *testing.T) {
	t.Parallel()
	got, err := Members(
		jsontext.Value(
			`{"a": 1.50, "b": {"x": [1, null]}, "": "\u0041\/", "n": null, "big": 12345678901234567890, "e": 1E2}`,
		),
	)
	require.NoError(t, err)
	require.Equal(t, map[string]string{
		"a": "1.50", "b": `{"x":[1,null]}`, "": `"A/"`, "n": "null", "big": "12345678901234567890", "e": "1E2",
	}, values(got), "compact, numbers unchanged")

	for name, v := range map[string]string{
		"nothing": "", "null": "null", "a list": `[]`, "a text": `"{}"`, "a number": "1", "truncated": `{"a":1`,
		"a duplicate name": `{"a":1,"a":2}`, "a duplicate plain name": `{"a":"b","a":"c"}`,
		"a trailing comma": `{"a":"b",}`, "a nested duplicate name": `{"a":{"b":1,"b":2}}`, "two objects": `{}{}`,
		"a lone surrogate": `{"a":"\ud800"}`,
		"no text":          "{\"a\":\"\xff\"}",
	} {
		_, err := Members(jsontext.Value(v))
		require.Error(t, err, name)
	}
}

func TestMembers_OwnMemory(t *testing.T) {
	t.Parallel()
	for _, before := range []string{`{"a":"\u0041 long enough","b":"B"}`, `{"a":"plain","b":"B"}`} {
		body := jsontext.Value(before)
		got, err := Members(body)
		require.NoError(t, err)
		got["a"][1] = 'x'
		require.Equal(t, before, string(body))
		require.Equal(t, `"B"`, string(got["b"]))
	}
}
