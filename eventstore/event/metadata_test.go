package event

import (
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestMetadataIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	text := rapid.OneOf(rapid.StringMatching(`[ -~]{0,12}`), rapid.String())
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.SliceOfN(text, 10, 10)
		draw := func(label string) Metadata {
			v := texts.Draw(t, label)
			return Metadata{v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9]}
		}
		written, before := draw("written"), draw("before")
		encoded, err := written.Encode()
		require.NoError(t, err)
		requireWrittenAlike(t, written, written.Encode)
		read, err := DecodeMetadata(encoded, &before)
		require.NoError(t, err)
		require.Equal(t, written, read)
	})
}

func TestMetadataThatIsNotPlainIsReadAllTheSame(t *testing.T) {
	t.Parallel()
	for says, encoded := range map[string]string{
		"nothing":              ``,
		"null":                 `null`,
		"no members":           `{}`,
		"space":                `{ "account": "acme" , "ip":"192.0.2.1"}`,
		"an escape":            `{"account":"ac\u006de","userAgent":"\"quoted\" \\"}`,
		"an escaped name":      `{"acc\u006funt":"acme"}`,
		"text beyond ASCII":    `{"account":"acme","userAgent":"Käfer"}`,
		"a later member":       `{"account":"acme","addedLater":{"deep":"{\"account\":\"x\"}"}}`,
		"a member twice":       `{"account":"acme","account":"other"}`,
		"an empty one twice":   `{"account":"","account":"other"}`,
		"another type":         `{"account":7}`,
		"null for a text":      `{"account":null,"ip":"192.0.2.1"}`,
		"cut off":              `{"account":"acme`,
		"cut off behind text":  `{"account":"acme"`,
		"a comma at the end":   `{"account":"acme",}`,
		"followed by more":     `{"account":"acme"}{}`,
		"ended too early":      `{"account":"acme"}"ip":"192.0.2.1"}`,
		"not UTF-8":            "{\"account\":\"\xff\"}",
		"a control character":  "{\"account\":\"a\nb\"}",
		"another letter case":  `{"Account":"acme"}`,
		"a quote in the wrong": `{"account":"acme":"x"}`,
	} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			want, wrong := anyMetadata([]byte(encoded))
			got, err := DecodeMetadata([]byte(encoded), &Metadata{Account: "acme"})
			require.Equal(t, wrong == nil, err == nil, "%v, %v", wrong, err)
			if err == nil {
				require.Equal(t, want, got)
			}
		})
	}
}

func TestMetadataSharesWhatAnEventBeforeHas(t *testing.T) { // not in parallel, for it counts allocations
	before := Metadata{Account: "acme", Actor: "token:1", UserAgent: "Mozilla/5.0"}
	encoded, err := json.Marshal(before)
	require.NoError(t, err)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if m, err := DecodeMetadata(encoded, &before); err != nil || m != before {
			t.Error(m, err)
		}
	}))
}

func FuzzDecodeMetadata(f *testing.F) {
	f.Add([]byte(`{"account":"acme","requestId":"01J","ip":"192.0.2.1"}`))
	f.Add([]byte(`{"account":"","account":"\u0000"}`))
	f.Fuzz(func(t *testing.T, encoded []byte) {
		want, wrong := anyMetadata(encoded)
		got, err := DecodeMetadata(encoded, &Metadata{})
		require.Equal(t, wrong == nil, err == nil)
		if err == nil {
			require.Equal(t, want, got)
		}
	})
}
