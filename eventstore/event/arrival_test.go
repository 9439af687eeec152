package event

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestArrivalRaw_BodyRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		body := rapid.SliceOfN(rapid.Byte(), 0, 64).Draw(t, "body")
		if rapid.Bool().Draw(t, "large") {
			body = bytes.Repeat(append(body, 'x'), 200)
		}
		raw := ArrivalRaw{ContentType: "text/plain"}.WithBody(body)
		read, err := raw.Bytes()
		require.NoError(t, err)
		require.Equal(t, string(body), string(read))
		_, encoded, err := Encode(ArrivalFetched{Raw: raw})
		require.NoError(t, err)
		decoded, err := Decode(ArrivalFetched{}.EventType(), encoded)
		require.NoError(t, err)
		read, err = decoded.(ArrivalFetched).Raw.Bytes()
		require.NoError(t, err)
		require.Equal(t, string(body), string(read))
	})
}

func TestArrivalRaw_CompressesLargeBodies(t *testing.T) {
	t.Parallel()
	large := ArrivalRaw{}.WithBody([]byte(strings.Repeat(`{"a":"b"}`, 10_000)))
	require.Empty(t, large.Body)
	require.Less(t, len(large.Compressed), 4<<10)
	require.Equal(t, "small", ArrivalRaw{}.WithBody([]byte("small")).Body)
	_, err := ArrivalRaw{Compressed: []byte("not gzip")}.Bytes()
	require.Error(t, err)
}
