package delivery_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore/sealbox"
	"github.com/leadlog/leadlog/projection/delivery"
)

// Databases have secrets that were sealed like this one: every later version opens them.
func TestSecrets_Golden(t *testing.T) {
	t.Parallel()
	pool := pool(t)
	const id = "01KAHQ5V8M3N6R9T2W4Y7Z0B1C"
	_, err := pool.Exec(t.Context(), `INSERT INTO secret.webhook (webhook_id, key_id, sealed) VALUES ($1, '72cd6e84', decode(
		'5YVvcLsxK1CcmsD3tPpUi0khfxrFpFPRSV7s1neTHpKQJiugkybaCLMmldU2hBm2oQJU+q9IkOTpygv4CY/4Kpx8', 'base64'))`, id)
	require.NoError(t, err)
	kept, err := secrets(t, pool, key(1)).Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, []string{secret}, kept)
}

// Where the key is lost for good, an endpoint rotates its secret: deliveries waited on for what it was before, which nothing opens.
func TestSecrets_RotationDropsUnreadable(t *testing.T) {
	t.Parallel()
	pool := pool(t)
	before, after := secrets(t, pool, key(1)), secrets(t, pool, key(2))
	rotate := func(s *delivery.Secrets, secret string) {
		kept, err := s.Rotate(t.Context(), webhookID, secret, time.Now().Add(time.Hour))
		require.NoError(t, err)
		require.True(t, kept)
	}
	require.NoError(t, before.Put(t.Context(), webhookID, secret))
	rotate(before, "whsec_second")
	_, err := after.Get(t.Context(), webhookID)
	require.ErrorIs(t, err, sealbox.ErrUnknownKey)
	rotate(after, "whsec_third")
	rotate(after, "whsec_fourth")
	kept, err := after.Get(t.Context(), webhookID)
	require.NoError(t, err)
	require.Equal(t, []string{"whsec_fourth", "whsec_third"}, kept)
}

func TestSecrets_RotationOfOneEndpoint(t *testing.T) {
	t.Parallel()
	s := secrets(t, pool(t), key(1))
	require.NoError(t, s.Put(t.Context(), otherID, "0"))
	for n := 1; n <= 4; n++ {
		_, err := s.Rotate(t.Context(), otherID, fmt.Sprint(n), time.Now().Add(time.Duration(n)*time.Hour))
		require.NoError(t, err)
	}
	kept, err := s.Rotate(t.Context(), webhookID, second, time.Now().Add(time.Minute))
	require.NoError(t, err)
	require.False(t, kept, "it has none, although another has")
	require.NoError(t, s.Put(t.Context(), webhookID, secret))
	rotate(t, s, second, time.Now().Add(time.Minute)) // of which an endpoint has a later one
	got, err := s.Get(t.Context(), webhookID)
	require.NoError(t, err)
	require.Equal(t, []string{second, secret}, got)
	got, err = s.Get(t.Context(), otherID)
	require.NoError(t, err)
	require.Equal(t, []string{"4", "3", "2", "1", "0"}, got)
}
