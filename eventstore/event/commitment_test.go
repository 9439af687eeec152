package event_test

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore/event"
)

// Saved evidence has commitments of this form.
func TestCommitment_Golden(t *testing.T) {
	t.Parallel()
	nonce := []byte("0123456789abcdef")
	shown := event.Shown{
		ID: ulid.MustParse("01KAHQ5V8M3N6R9T2W4Y7Z0B1C"), Stream: "lead-1", Revision: 3, Type: "lead.merged.v1",
		At: time.UnixMilli(1_790_000_000_000).UTC(), Actor: "user:ada",
		Data: []byte(`{"name":"Zo\u00eb","budget":12345678901234567890.10,"a":{"\ud83d\ude00":1,"\ufb33":-0.0}}`),
	}
	canonical := `{"actor":"user:ada","at":"2026-09-21T14:13:20.000Z","data":{"a":{"😀":1,"` + "\ufb33" +
		`":-0.0},"budget":12345678901234567890.10,"name":"Zoë"},` +
		`"id":"01KAHQ5V8M3N6R9T2W4Y7Z0B1C","revision":3,"stream":"lead-1","type":"lead.merged"}`
	sum := sha256.Sum256(append(nonce, canonical...))
	commitment, err := event.Commitment(nonce, shown)
	require.NoError(t, err)
	require.Equal(t, hex.EncodeToString(sum[:]), commitment)
	require.Equal(t, commitment, event.CommitmentOf(nonce, []byte(canonical)))

	whole := jsontext.Value(strings.ReplaceAll(canonical, ",", " , "))
	require.NoError(t, event.Canonicalize(&whole))
	require.Equal(t, canonical, string(whole))

	for _, data := range []string{``, `{`, `{"a":1,"a":1}`, `{} {}`} {
		shown.Data = []byte(data)
		_, err := event.Commitment(nonce, shown)
		require.Error(t, err, data)
	}
}

func BenchmarkCommitment(b *testing.B) {
	shown := event.Shown{
		ID: ulid.Make(), Stream: event.LeadStream(ulid.Make().String()), Type: "lead.created.v1", At: time.Now().UTC(),
		Actor: "token:01KAHQ5V8M3N6R9T2W4Y7Z0B1C",
		Data: []byte(`{"contactUID":"01KAHQ5V8M3N6R9T2W4Y7Z0B1C","name":"Asha Rao","phone":"+919876543210",` +
			`"email":"asha@example.com",` +
			`"status":"new","leadTemperature":"warm","customFields":{"city":"Pune","course":"Data science",` +
			`"budget":120000},"source":"website",` +
			`"metadata":{"source":"website","utm_source":"google","utm_campaign":"spring"},"ip":"203.0.113.7",` +
			`"userAgent":"Mozilla/5.0 (X11; Linux)",` +
			`"changed":["name","phone","email","customFields"],"utmSource":"google","utmCampaign":"spring"}`),
	}
	nonce := make([]byte, event.NonceSize)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := event.Commitment(nonce, shown); err != nil {
			b.Fatal(err)
		}
	}
}
