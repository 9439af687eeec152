package sealed

import (
	"bytes"
	"encoding/base64"
	"reflect"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/sealbox"
)

func TestSeal_AuthenticatesPlainData(t *testing.T) {
	t.Parallel()
	k := testKey()
	given := eventstore.Event{
		ID: ulid.Make(), Type: event.LeadMerged{}.EventType(), At: time.UnixMilli(1_790_000_000_000).UTC(),
		Data: []byte(`{"name":"Asha","source":"website"}`),
	}
	metadata := reflect.TypeFor[event.Metadata]()
	for i := range metadata.NumField() {
		reflect.ValueOf(&given.Metadata).Elem().Field(i).SetString("given")
	}
	stored, _, err := seal(k, "lead-1", 0, given)
	require.NoError(t, err)
	opens := func(change func(*eventstore.Recorded)) error {
		r := eventstore.Recorded{Event: stored, Stream: "lead-1"}
		change(&r)
		v, _, ok := openEnvelope(r.Data, nil)
		require.True(t, ok)
		_, _, err := v.open(&opener{key: k}, &r)
		return err
	}
	require.NoError(t, opens(func(*eventstore.Recorded) {}))
	for i := range metadata.NumField() {
		// these are sealed
		if name := metadata.Field(i).Name; name != "IP" && name != "UserAgent" && name != "RequestID" {
			require.ErrorIs(t, opens(func(r *eventstore.Recorded) {
				reflect.ValueOf(&r.Metadata).Elem().Field(i).SetString("another")
			}), ErrDamaged, name)
		}
	}
	for what, change := range map[string]func(*eventstore.Recorded){
		"stream": func(r *eventstore.Recorded) { r.Stream = "lead-2" },
		"id":     func(r *eventstore.Recorded) { r.ID = ulid.Make() },
		"type":   func(r *eventstore.Recorded) { r.Type = event.LeadCreated{}.EventType() },
		"time":   func(r *eventstore.Recorded) { r.At = r.At.Add(-time.Microsecond) },
		"member": func(r *eventstore.Recorded) {
			r.Data = bytes.Replace(r.Data, []byte("website"), []byte("webside"), 1)
		},
		"added member": func(r *eventstore.Recorded) {
			r.Data = bytes.Replace(r.Data, []byte("{"), []byte(`{"status":"won",`), 1)
		},
		"removed member": func(r *eventstore.Recorded) {
			r.Data = append([]byte("{"), r.Data[bytes.Index(r.Data, []byte(`"sealed"`)):]...)
		},
		"a byte moved between fields": func(r *eventstore.Recorded) {
			r.Metadata.Account, r.Metadata.Actor = r.Metadata.Account+"g", r.Metadata.Actor[1:]
		},
	} {
		require.ErrorIs(t, opens(change), ErrDamaged, what)
	}
}

// Every later version must open this event and its key, because logs have events and keys of this form.
func TestSeal_GoldenEvent(t *testing.T) {
	t.Parallel()
	box, err := sealbox.New(bytes.Repeat([]byte("k"), sealbox.KeySize))
	require.NoError(t, err)
	vault := NewVault(nil, box)
	sealed, err := base64.StdEncoding.DecodeString(
		"g2j6pIcbmdxrTe06pM4hFYr2WPSW52mrAvepBrLJgJmISnjFB8CZpXg4FYTpWKCIvJ8mwkzFHsszoIIS",
	)
	require.NoError(t, err)
	k, err := vault.unseal(eventstore.Key{Stream: "lead-1", ID: -7, SealedBy: "5e318f8c", Sealed: sealed})
	require.NoError(t, err)
	require.Equal(t, testKey(), k)

	r := eventstore.Recorded{Stream: "lead-1", Event: eventstore.Event{
		ID: ulid.MustParse("01KAHQ5V8M3N6R9T2W4Y7Z0B1C"), Type: "lead.merged.v1",
		At: time.UnixMilli(1_790_000_000_000).UTC(),
		Metadata: event.Metadata{
			Account: "acme", Actor: "user:ada", Credential: "jwt:ada", Causation: "c", Correlation: "o",
			TraceParent: "t", Line: "7",
			Commitment: "4644687593af192a40a49b752684beee108cc9950c89b73adda6604dad5edb20",
		},
		Data: []byte(
			`{"source":"website",` +
				`"sealed":"//////////mtaRo4RsvAbHsZD2oGPy4oRI4rK4ARliLyCSQA12V0UlC1g1cyWkvE9dRwGqGfgiDrc0inrmad5IFghGqx4E5CqgOyUzutO4xdD5A"}`,
		),
	}}
	v, _, ok := openEnvelope(r.Data, nil)
	require.True(t, ok)
	require.Equal(t, k.id, v.keyID)
	nonce, content, err := v.open(&opener{key: k}, &r)
	require.NoError(t, err)
	commitment, err := event.Commitment(nonce, event.Shown{
		ID: r.ID, Stream: r.Stream, Type: r.Type, At: r.At, Actor: "user:ada", Data: r.Data,
	})
	require.NoError(t, err)
	require.Equal(t, r.Metadata.Commitment, commitment)
	require.Nil(t, content)
	require.Equal(t, `{"source":"website","name":"Asha"}`, string(r.Data))
	require.Equal(t, []string{"192.0.2.1", "curl", "r"}, []string{
		r.Metadata.IP, r.Metadata.UserAgent, r.Metadata.RequestID,
	})
}
