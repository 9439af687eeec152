package event

import (
	"regexp"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestDecode_UnknownType(t *testing.T) {
	t.Parallel()
	for _, eventType := range []string{"", "lead.created", "lead.created.v2", "lead.created.v1 ", "LEAD.CREATED.V1"} {
		data, err := Decode(eventType, []byte(`{}`))
		require.ErrorIs(t, err, ErrUnknownType)
		require.Nil(t, data)
	}
}

func TestDecode_InvalidData(t *testing.T) {
	t.Parallel()
	for name, data := range map[string]string{
		"nothing":            ``,
		"cut off":            `{"kind":"phone"`,
		"followed by more":   `{"kind":"phone"} {}`,
		"another JSON value": `["phone"]`,
		"another field type": `{"kind":7}`,
		"a field twice":      `{"kind":"phone","kind":"email"}`,
		"text not UTF-8":     "{\"kind\":\"\xff\"}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			decoded, err := Decode(ClaimTaken{}.EventType(), []byte(data))
			require.ErrorContains(t, err, "decode claim.taken.v1")
			require.NotErrorIs(t, err, ErrUnknownType)
			require.Nil(t, decoded)
		})
	}
}

// A newer program may have added fields to a type without a new version. An older program ignores them.
func TestDecode_UnknownFields(t *testing.T) {
	t.Parallel()
	for _, sample := range samples() {
		more := strings.Replace(string(golden(t, sample.EventType())), "{", `{"addedLater":{"deep":[1]},`, 1)
		more = strings.Replace(more, ",}", "}", 1) // a fact without fields
		decoded, err := Decode(sample.EventType(), []byte(more))
		require.NoError(t, err, sample.EventType())
		require.Equal(t, sample, decoded)
	}
}

func TestEncode_Deterministic(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOfNDistinct(rapid.StringOf(rapid.Rune().Filter(func(r rune) bool { return r != 0 })), 2, 20,
			rapid.ID[string]).Draw(t, "keys")
		facts := [2]LeadCreated{{LeadFields: LeadFields{Name: "n"}}, {LeadFields: LeadFields{Name: "n"}}}
		for i := range facts {
			facts[i].CustomFields = make(map[string]jsontext.Value)
			for _, k := range rapid.Permutation(keys).Draw(t, "order") {
				facts[i].CustomFields[k] = jsontext.Value(`1`)
			}
		}
		_, first, err := Encode(facts[0])
		require.NoError(t, err)
		for range 5 { // map iteration order is random
			_, again, err := Encode(facts[1])
			require.NoError(t, err)
			require.Equal(t, string(first), string(again))
		}
	})
}

func TestEncode_Invalid(t *testing.T) {
	t.Parallel()
	for name, fact := range map[string]Data{
		"text not UTF-8": ClaimTaken{Kind: "\xff"},
		"NUL":            TokenCreated{Name: "a\x00"},
		"NUL in a list":  LeadMerged{Changed: []string{`\`, "\\\x00"}},
		"NUL in a value": LeadCreated{
			LeadFields: LeadFields{CustomFields: map[string]jsontext.Value{"a": jsontext.Value(`["\u0000"]`)}},
		},
		"NUL in a name": VisitorActed{Properties: map[string]jsontext.Value{"\x00": jsontext.Value(`1`)}},
		"a value not JSON": LeadCreated{
			LeadFields: LeadFields{CustomFields: map[string]jsontext.Value{"a": jsontext.Value(`{`)}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := Encode(fact)
			require.ErrorContains(t, err, "encode "+fact.EventType())
		})
	}
}

func TestEncode_EscapedBackslashIsNoNUL(t *testing.T) {
	t.Parallel()
	_, encoded, err := Encode(TokenCreated{Name: `a\u0000`})
	require.NoError(t, err)
	require.Contains(t, string(encoded), `a\\u0000`)
}

func TestTypes_NameForm(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^[a-z]+\.[a-z_]+\.v[1-9][0-9]*$`)
	for name := range catalogue {
		require.Regexp(t, form, name)
	}
}

func TestTypes_KeepOrder(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"token.deleted.v1", "lead.created.v1"}, Types(TokenDeleted{}, LeadCreated{}))
	require.Empty(t, Types())
}

func TestPublicName_NoVersion(t *testing.T) {
	t.Parallel()
	for eventType, public := range map[string]string{
		"lead.created.v1":   "lead.created",
		"lead.created.v12":  "lead.created",
		"lead.v2.merged.v3": "lead.v2.merged",
		"lead.created":      "lead.created",
		"lead.created.v":    "lead.created.v",
		"*":                 "*",
	} {
		require.Equal(t, public, PublicName(eventType))
	}
}

func TestStream_RoundTrip(t *testing.T) {
	t.Parallel()
	const id = "01JQKXZ8V4W9H6M3T2R5N7P0AB"
	for _, c := range []struct {
		want   string
		stream func(string) string
		id     func(string) string
	}{
		{"lead-" + id, LeadStream, LeadID},
		{"token-" + id, TokenStream, TokenID},
		{"webhook-" + id, WebhookStream, WebhookID},
		{"arrival-" + id, ArrivalStream, ArrivalID},
		{"account-" + id, AccountStream, AccountID},
	} {
		require.Equal(t, c.want, c.stream(id))
		require.Equal(t, id, c.id(c.want))
	}
	require.Equal(t, "refused-"+id, RefusedStream(id))
	require.Equal(t, "visitor-acme-0a1b", VisitorStream("acme", "0a1b"))
	require.Equal(t, "account-lead-account-7", AccountStream("lead-account-7"))
	require.Equal(t, "lead-account-7", AccountID("account-lead-account-7"))
}

// Prefixes select kinds of streams, so none may be a prefix of another.
func TestPrefixes_Distinct(t *testing.T) {
	t.Parallel()
	prefixes := []string{
		LeadPrefix, TokenPrefix, WebhookPrefix, AccountPrefix, RefusedPrefix, ArrivalPrefix, VisitorPrefix, ClaimPrefix, SpendPrefix,
	}
	for i, a := range prefixes {
		for j, b := range prefixes {
			require.True(t, i == j || !strings.HasPrefix(a, b), "%s begins with %s", a, b)
		}
	}
}
