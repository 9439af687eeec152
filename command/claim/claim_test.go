package claim

import (
	"bytes"
	"encoding/hex"
	"regexp"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leadlog/leadlog/eventstore/event"
)

func key(b byte) []byte { return bytes.Repeat([]byte{b}, 32) }

func TestStream_KeyedHash(t *testing.T) {
	t.Parallel()
	name := NewNames(key(1)).Stream("acme", Phone, "+919876543210")
	require.Equal(t, name, NewNames(key(1)).Stream("acme", Phone, "+919876543210"))
	require.Regexp(t, regexp.MustCompile(`^claim-[0-9a-f]{32}$`), name)
	require.NotContains(t, name, "9876543210")
}

// The names of claims are stored on the log. Another derivation would lose the owner of every stored claim.
func TestStream_Stable(t *testing.T) {
	t.Parallel()
	names := NewNames(key(1))
	require.Equal(t, "claim-d77989779b1bf377a25151aa9d58a3dc", names.Stream("acme", Phone, "+919876543210"))
	require.Equal(t, "claim-32744a316aef15ab5b184ef78d68c6fb", names.Slot("acme", TokenSlot, 5))
	require.Equal(t, "visitor-acme-25f24b9da2cdab695c5d32cf3836d77c", names.Visitor("acme", "v-1"))
	require.Equal(t, "ffcfb7ef771e563f5d10e12ae2f62a7c", hex.EncodeToString(names.Fingerprint()),
		"another fingerprint would be rejected as another key")
	require.Equal(t, "84eade8aa0deea05a3d05e00edb7ac32b6b82505cb1cc1308c02d474651f0de9",
		hex.EncodeToString(names.Digest("acme",
			map[string]jsontext.Value{
				"phone": jsontext.Value(`"98765 43210"`), "customFields": jsontext.Value(`{"b": 1, "a":2}`),
			})),
		"another digest would turn a repeat into a conflict")
}

func TestVisitor_KeyedHash(t *testing.T) {
	t.Parallel()
	name := NewNames(key(1)).Visitor("acme", "ann@example.com")
	require.Regexp(t, `^visitor-acme-[0-9a-f]{32}$`, name)
	for what, other := range map[string]string{
		"another key":     NewNames(key(2)).Visitor("acme", "ann@example.com"),
		"another account": NewNames(key(1)).Visitor("acme2", "ann@example.com"),
		"another visitor": NewNames(key(1)).Visitor("acme", "Ann@example.com"),
	} {
		require.NotEqual(t, name, other, what)
	}
	claimed := NewNames(key(1)).Stream("acme", Email, "ann@example.com")
	require.NotContains(t, name, claimed[len(event.ClaimPrefix):],
		"the name does not contain the hash of the email's claim")
}

func TestStream_DiffersByPart(t *testing.T) {
	t.Parallel()
	names := NewNames(key(1))
	same := names.Stream("acme", Phone, "+919876543210")
	for what, other := range map[string]string{
		"another key":     NewNames(key(2)).Stream("acme", Phone, "+919876543210"),
		"another account": names.Stream("acme2", Phone, "+919876543210"),
		"account by case": names.Stream("Acme", Phone, "+919876543210"),
		"another kind":    names.Stream("acme", Email, "+919876543210"),
		"another value":   names.Stream("acme", Phone, "+919876543211"),
		"an empty value":  names.Stream("acme", Phone, ""),
	} {
		require.NotEqual(t, same, other, what)
	}
}

func TestStream_NoConcatenationCollision(t *testing.T) {
	t.Parallel()
	names := NewNames(key(1))
	for _, c := range [][2][3]string{
		{{"acme", "phone", "1"}, {"acmephone", "", "1"}},
		{{"acme", "phone", "1"}, {"acme", "phone1", ""}},
		{{"a", "bc", "d"}, {"ab", "c", "d"}},
		{{"a", "b", "cd"}, {"a", "bc", "d"}},
		{{"", "a", "b"}, {"a", "", "b"}},
		{{"a", "b", ""}, {"a", "", "b"}},
	} {
		one, other := c[0], c[1]
		require.NotEqual(t, names.Stream(one[0], Kind(one[1]), one[2]),
			names.Stream(other[0], Kind(other[1]), other[2]),
			"%q and %q", one, other)
	}
}

func TestStream_Injective(t *testing.T) {
	t.Parallel()
	names := NewNames(key(1))
	part := rapid.StringMatching(`[a-c+@.]{0,3}`)
	kind := rapid.SampledFrom([]Kind{Phone, Email, TokenSlot, WebhookSlot})
	rapid.Check(t, func(t *rapid.T) {
		a1, k1, v1 := part.Draw(t, "account 1"), kind.Draw(t, "kind 1"), part.Draw(t, "value 1")
		a2, k2, v2 := part.Draw(t, "account 2"), kind.Draw(t, "kind 2"), part.Draw(t, "value 2")
		same := a1 == a2 && k1 == k2 && v1 == v2
		require.Equal(t, same, names.Stream(a1, k1, v1) == names.Stream(a2, k2, v2))
	})
}

func TestSlot_Distinct(t *testing.T) {
	t.Parallel()
	names := NewNames(key(1))
	seen := map[string]bool{}
	for _, account := range []string{"acme", "acme1", "globex"} {
		for _, kind := range []Kind{TokenSlot, WebhookSlot} {
			for slot := 1; slot <= 50; slot++ {
				name := names.Slot(account, kind, slot)
				require.False(t, seen[name], "%s %s %d", account, kind, slot)
				seen[name] = true
			}
		}
	}
}

func TestEvolve_LatestHolder(t *testing.T) {
	t.Parallel()
	taken := func(holder string) event.Data { return event.ClaimTaken{Kind: string(Phone), Holder: holder} }
	released := event.ClaimReleased{Kind: string(Phone), Holder: "one"}
	for _, c := range []struct {
		name  string
		facts []event.Data
		want  string
	}{
		{"no arrival", nil, ""},
		{"one arrival", []event.Data{taken("one")}, "one"},
		{"released", []event.Data{taken("one"), released}, ""},
		{"taken again", []event.Data{taken("one"), released, taken("two")}, "two"},
		{"moved to another holder", []event.Data{taken("one"), taken("two")}, "two"},
		{"a fact about something else", []event.Data{taken("one"), event.TokenDeleted{}}, "one"},
	} {
		var s State
		for _, data := range c.facts {
			s = Evolve(s, event.Fact{At: time.Unix(0, 0), Data: data})
		}
		require.Equal(t, c.want, s.Holder, c.name)
	}
}
