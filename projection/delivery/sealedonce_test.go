package delivery_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Databases have secrets that were sealed like this one: every later version opens them.
func TestASecretThatWasSealedOnceOpensEverAfter(t *testing.T) {
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
