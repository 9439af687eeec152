package event

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzDecode requires that decoding returns a fact or an error for any input, and that encoding a decoded fact is
// idempotent.
func FuzzDecode(f *testing.F) {
	for _, sample := range samples() {
		f.Add(sample.EventType(), golden(f, sample.EventType()))
		f.Add(sample.EventType(), []byte(`{}`))
	}
	f.Add("lead.created.v1", []byte(`{"customFields":{"a":{"b":[1e400,-0,"\u0000\ud83d\ude00"]}},"changed":null}`))
	f.Add("token.created.v1", []byte(`{"hash":"","expiresAt":"0000-01-01T00:00:00.000000001+23:59","days":-1}`))
	f.Add("account.configured.v1", []byte(`{"rateLimit":-0,"rateBurst":null,"features":null}`))
	f.Add("lead.unknown.v9", []byte(`null`))
	f.Fuzz(func(t *testing.T, eventType string, encoded []byte) {
		fact, err := Decode(eventType, encoded)
		if err != nil {
			require.Nil(t, fact)
			return
		}
		require.Equal(t, eventType, fact.EventType())
		_, stored, err := Encode(fact)
		if errors.Is(err, errNUL) {
			return
		}
		require.NoError(t, err)
		again, err := Decode(eventType, stored)
		require.NoError(t, err)
		_, storedAgain, err := Encode(again)
		require.NoError(t, err)
		require.Equal(t, string(stored), string(storedAgain))
	})
}
