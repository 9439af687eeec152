package delivery_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore/sealbox"
)

// After a rotation of the sealing key the earlier one is kept for as long as something needs it.
func TestSecrets_Rewrap(t *testing.T) {
	t.Parallel()
	pool := pool(t)
	for _, id := range []string{webhookID, otherID} {
		require.NoError(t, secrets(t, pool, key(1)).Put(t.Context(), id, secret))
	}
	for n, replaced := range []string{second, third} {
		kept, err := secrets(t, pool, key(1)).Rotate(t.Context(), otherID, replaced, time.Now().Add(time.Duration(n+1)*time.Hour))
		require.NoError(t, err)
		require.True(t, kept)
	}
	const flip = `UPDATE secret.webhook SET sealed = set_byte(sealed, 0, get_byte(sealed, 0) # 1) WHERE webhook_id = $1`
	pgtest.Exec(t, pool, flip, webhookID)
	rotated := secrets(t, pool, key(2), key(1))
	err := rotated.Rewrap(t.Context())
	require.ErrorIs(t, err, sealbox.ErrDamaged)
	require.ErrorContains(t, err, webhookID)
	got, err := secrets(t, pool, key(2)).Get(t.Context(), otherID)
	require.NoError(t, err, "it needs the earlier key no more")
	require.Equal(t, []string{third, second, secret}, got, "nor do those that were replaced")

	pgtest.Exec(t, pool, flip, webhookID)
	require.NoError(t, rotated.Rewrap(t.Context()))
	got, err = secrets(t, pool, key(2)).Get(t.Context(), webhookID)
	require.NoError(t, err)
	require.Equal(t, []string{secret}, got)
}
