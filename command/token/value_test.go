package token

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/go-json-experiment/json"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const someID = "01KAHQ5V8M3N6R9T2W4Y7Z0B1C"

func newValue(t *testing.T) Value {
	t.Helper()
	value, err := NewValue(someID, rand.Reader)
	require.NoError(t, err)
	return value
}

func TestValue_Format(t *testing.T) {
	t.Parallel()
	value := newValue(t)
	require.Regexp(t, regexp.MustCompile(`^leadlog_`+someID+`[0-9A-Za-z]{32}[0-9A-Za-z]{6}$`), value.Reveal())
	require.Equal(t, someID, value.TokenID())
	require.Equal(t, sha256.Sum256([]byte(value.Reveal())), value.Hash())
	require.True(t, LooksLikeValue(value.Reveal()))

	parsed, err := ParseValue(value.Reveal())
	require.NoError(t, err)
	require.Equal(t, value.Reveal(), parsed.Reveal())
	require.Equal(t, value.Hash(), parsed.Hash())
}

// Callers keep values of this form, and logs their hashes.
func TestValue_Golden(t *testing.T) {
	t.Parallel()
	const golden = "leadlog_01KAHQ5V8M3N6R9T2W4Y7Z0B1Cabcdefghijklmnopqrstuvwxyz0123450oGWGH"
	parsed, err := ParseValue(golden)
	require.NoError(t, err)
	require.Equal(t, someID, parsed.TokenID())
	hash := parsed.Hash()
	require.Equal(t, "26662176cf3c0d32f968b5a293d49ed8fee9669cb2b2ffa38980e22883bb79a2", hex.EncodeToString(hash[:]))
}

func TestValue_Checksum(t *testing.T) {
	t.Parallel()
	text := newValue(t).Reveal()
	var sum uint64
	for _, c := range []byte(text[len(text)-6:]) {
		sum = sum*62 + uint64(strings.IndexByte("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", c))
	}
	require.Equal(t, uint64(crc32.ChecksumIEEE([]byte(text[:len(text)-6]))), sum)
}

func TestValue_Prefix(t *testing.T) {
	t.Parallel()
	value := newValue(t)
	require.True(t, strings.HasPrefix(value.Reveal(), value.Prefix()))
	require.Contains(t, value.Prefix(), someID)
	hidden := len("leadlog_") + 26 + 32 - len(value.Prefix())
	require.Greater(t, hidden*5, 130, "bits of the secret that are not in the prefix")
	require.NotEqual(t, value.Prefix(), newValue(t).Prefix(), "prefixes of two values differ")
}

func TestNewValue_Base62Even(t *testing.T) {
	t.Parallel()
	// 248 is the largest multiple of 62 below 256. Bytes from 248 on are rejected, because they would favour the first
	// characters.
	var random []byte
	for i := range 62 {
		random = append(random, byte(248+i%8))
	}
	for i := range 248 {
		random = append(random, byte(i))
	}
	text, err := randomBase62(bytes.NewReader(random), 62)
	require.NoError(t, err)
	require.Equal(t, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", text)
}

func TestNewValue_NoRandomness(t *testing.T) {
	t.Parallel()
	for name, random := range map[string]io.Reader{
		"a failing source":   iotest.ErrReader(errors.New("no entropy")),
		"a source that ends": strings.NewReader("short"),
	} {
		_, err := NewValue(someID, random)
		require.Error(t, err, name)
	}
}

func TestParseValue_SingleTypos(t *testing.T) {
	t.Parallel()
	text := newValue(t).Reveal()
	for i := range len(text) {
		for _, c := range []byte(base62 + "-_. \x00\xff") {
			if c == text[i] {
				continue
			}
			_, err := ParseValue(text[:i] + string([]byte{c}) + text[i+1:])
			require.ErrorIs(t, err, ErrMalformed, "character %d replaced", i)
		}
		_, err := ParseValue(text[:i] + text[i+1:])
		require.ErrorIs(t, err, ErrMalformed, "character %d removed", i)
		_, err = ParseValue(text[:i] + "a" + text[i:])
		require.ErrorIs(t, err, ErrMalformed, "a character inserted before %d", i)
	}
}

func TestParseValue_Transpositions(t *testing.T) {
	t.Parallel()
	text := newValue(t).Reveal()
	for i := range len(text) {
		for j := range i {
			if text[i] == text[j] {
				continue
			}
			swapped := []byte(text)
			swapped[i], swapped[j] = swapped[j], swapped[i]
			_, err := ParseValue(string(swapped))
			require.ErrorIs(t, err, ErrMalformed, "characters %d and %d swapped", j, i)
		}
	}
}

func TestParseValue_InvalidWithChecksum(t *testing.T) {
	t.Parallel()
	secret := strings.Repeat("s", 32)
	withChecksum := func(body string) string { return body + checksum(body) }
	_, err := ParseValue(withChecksum("leadlog_" + someID + secret))
	require.NoError(t, err, "the valid form")

	for name, text := range map[string]string{
		"nothing":                        "",
		"a JWT":                          "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln",
		"the prefix alone":               "leadlog_",
		"another prefix":                 withChecksum("leadlag_" + someID + secret),
		"the prefix in capitals":         withChecksum("LEADLOG_" + someID + secret),
		"an id in lower case":            withChecksum("leadlog_" + strings.ToLower(someID) + secret),
		"an id with a letter ULIDs lack": withChecksum("leadlog_01KAHQ5V8M3N6R9T2W4Y7Z0B1U" + secret),
		"an id beyond 128 bits":          withChecksum("leadlog_8ZZZZZZZZZZZZZZZZZZZZZZZZZ" + secret),
		"a secret with punctuation":      withChecksum("leadlog_" + someID + secret[:31] + "-"),
		"a secret in another script":     withChecksum("leadlog_" + someID + secret[:30] + "é"),
		"a secret one character short":   withChecksum("leadlog_" + someID + secret[:31]),
		"a secret one character long":    withChecksum("leadlog_" + someID + secret + "s"),
		"white space around":             " " + withChecksum("leadlog_"+someID+secret) + " ",
	} {
		_, err := ParseValue(text)
		require.ErrorIs(t, err, ErrMalformed, name)
	}
	require.NotContains(t, ErrMalformed.Error(), secret)
}

func TestValue_NeverPrinted(t *testing.T) {
	t.Parallel()
	value := newValue(t)
	type exported struct{ Value Value }
	type hidden struct{ value Value } // fmt cannot call methods here
	type deep struct{ inner *hidden }
	forms := map[string]any{
		"the value": value, "a pointer to it": &value, "an exported field": exported{value},
		"an unexported field": hidden{value}, "a pointer to a struct": &hidden{value}, "a slice": []Value{value},
		"a map": map[string]Value{"v": value}, "a map of structs": map[string]hidden{"v": {value}},
		"a nested pointer": deep{&hidden{value}},
	}
	secret := value.Reveal()[len(value.Prefix()):]
	for name, form := range forms {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%o", "%p", "%w"} {
			requireHidden(t, secret, fmt.Sprintf(verb, form), name+" by "+verb)
		}
		requireHidden(t, secret, fmt.Sprint(form), name+" by Sprint")
		requireHidden(t, secret, fmt.Errorf("refused: %v", form).Error(), name+" in an error")

		var out bytes.Buffer
		for _, handler := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
			slog.New(handler).With("with", form).Info("message", "value", form, slog.Group("group", "value", form))
		}
		requireHidden(t, secret, out.String(), name+" by slog")

		encoded, _ := json.Marshal(form)
		requireHidden(t, secret, string(encoded), name+" as JSON")
	}
}

func requireHidden(t *testing.T, secret, printed, name string) {
	t.Helper()
	for _, form := range []string{secret, fmt.Sprintf("%x", secret), fmt.Sprintf("%X", secret)} {
		require.False(t, strings.Contains(printed, form), "%s shows the secret", name)
	}
}

func TestNewValue_ParsesAndDiffers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		id := ulid.ULID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id")).String()
		one, err := NewValue(id, rand.Reader)
		require.NoError(t, err)
		other, err := NewValue(id, rand.Reader)
		require.NoError(t, err)
		require.NotEqual(t, one.Reveal(), other.Reveal())
		parsed, err := ParseValue(one.Reveal())
		require.NoError(t, err)
		require.Equal(t, id, parsed.TokenID())
	})
}

func FuzzParseValue(f *testing.F) {
	body := "leadlog_" + someID + strings.Repeat("s", 32)
	f.Add(body + checksum(body))
	f.Add("leadlog_")
	f.Add(body)
	f.Add(body + "000000")
	form := regexp.MustCompile(`^leadlog_[0-7][0-9A-HJKMNP-TV-Z]{25}[0-9A-Za-z]{38}$`)
	f.Fuzz(func(t *testing.T, text string) {
		value, err := ParseValue(text)
		if err != nil {
			require.ErrorIs(t, err, ErrMalformed)
			require.Equal(t, Value{}, value)
			return
		}
		require.Regexp(t, form, text)
		require.Equal(t, text, value.Reveal())
		require.Len(t, value.TokenID(), 26)
	})
}
