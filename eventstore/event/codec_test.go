package event

import (
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
)

// Stored events of leads are returned unchanged in responses, whose times have three decimals.
func TestEncode_TimesHaveThreeDecimals(t *testing.T) {
	t.Parallel()
	at := time.Date(2025, 3, 30, 1, 2, 3, 450e6, time.UTC)
	for _, fact := range []Data{
		LeadCreated{ArrivalRef: ArrivalRef{ReceivedAt: at}}, LeadJoined{Was: LeadSnapshot{CreatedAt: at}},
		IntakeResumed{ArrivedAt: at},
	} {
		_, encoded, err := Encode(fact)
		require.NoError(t, err)
		require.Contains(t, string(encoded), `"2025-03-30T01:02:03.450Z"`)
	}
}

func TestAppendJSON(t *testing.T) {
	t.Parallel()
	precise := time.Date(2025, 3, 30, 1, 2, 3, 450_000_001, time.FixedZone("", 3600))
	for want, value := range map[string]any{
		`before["a","\"<é"]`: []string{"a", "\"<é"},
		`before[]`:           []string(nil),
		`before{}`:           map[string]jsontext.Value(nil),
		`before{"a":null,"b":{"d":1,"c":2}}`: map[string]jsontext.Value{
			"b": jsontext.Value(`{ "d" : 1, "c": 2 }`), "a": nil,
		},
		`before"2025-03-30T01:02:03.450000001+01:00"`: precise,
	} {
		encoded, err := AppendJSON([]byte("before"), value)
		require.NoError(t, err)
		require.Equal(t, want, string(encoded))
	}
	for _, invalid := range []any{
		"a\xff", map[string]jsontext.Value{"a": jsontext.Value(`"cut`)},
		map[string]jsontext.Value{"a": jsontext.Value(`{"b":1,"b":2}`)},
	} {
		_, err := AppendJSON(nil, invalid)
		require.Error(t, err)
	}
}

func TestDecode_AcceptsAddedMembers(t *testing.T) {
	t.Parallel()
	m, err := DecodeMetadata([]byte(`{ "ip" : "192.0.2.1", "addedLater": {"account":"x"}, "acc\u006funt":"acme"}`))
	require.NoError(t, err)
	require.Equal(t, Metadata{Account: "acme", IP: "192.0.2.1"}, m)
}

func BenchmarkCodec(b *testing.B) {
	created := LeadCreated{
		ContactUID: "01M7YGZVZWE6S8RYN49QGMF6BH", LeadFields: LeadFields{
			Name: "Asha Rao", Phone: "+919876543210", Email: "asha@example.com",
			Status: "new", Temperature: "warm",
			CustomFields: map[string]jsontext.Value{"city": jsontext.Value(`"Pune"`)},
		}, Source: "website",
		Metadata: map[string]jsontext.Value{
			"source": jsontext.Value(`"website"`), "utm_campaign": jsontext.Value(`"diwali"`),
		},
		IP: "127.0.0.1", UserAgent: "curl/7.88.1",
		Changed: []string{"name", "phone", "email", "customFields", "metadata"},
	}
	name, encoded, err := Encode(created)
	require.NoError(b, err)
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _, _ = Encode(created)
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = Decode(name, encoded)
		}
	})
}
