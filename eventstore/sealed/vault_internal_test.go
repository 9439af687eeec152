package sealed

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/postgres"
	"github.com/leadlog/leadlog/eventstore/sealbox"
)

// Keys and contents are stored again if the answer to their transaction was lost. A key that was resealed meanwhile is
// kept.
func TestVault_StoresAgain(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.DatabaseFrom(t, "log", postgres.Migrate))
	box, err := sealbox.New(make([]byte, sealbox.KeySize))
	require.NoError(t, err)
	v := NewVault(pool, box)
	k, stored, err := v.create("lead-1", math.MinInt64)
	require.NoError(t, err)
	content, err := sealContent(k, []byte(`"body":"a"`))
	require.NoError(t, err)
	again := []eventstore.Write{{Stream: "lead-1", Key: &stored, Contents: []eventstore.Content{*content}}}
	require.NoError(t, v.store(t.Context(), again))
	pgtest.Exec(t, pool, `UPDATE person.key SET sealed_by = 'newer'`)
	require.NoError(t, v.store(t.Context(), again))
	require.Equal(t, []string{"newer"}, pgtest.Rows[string](t, pool, `SELECT sealed_by FROM person.key`))
	require.Equal(t, 1, pgtest.Value[int](t, pool, `SELECT count(*) FROM person.content`))
}
