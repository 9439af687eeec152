package schema_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/projection/schema"
)

func TestNoQueryIsCompiledWhateverTheServersDefaultIs(t *testing.T) {
	config, err := pgx.ParseConfig(pgtest.Database(t))
	require.NoError(t, err)
	config.RuntimeParams["options"] = "-c jit=on" // counts less than a setting by its name
	schema.Bound(config)
	conn, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	var jit string
	require.NoError(t, conn.QueryRow(t.Context(), `SHOW jit`).Scan(&jit))
	require.Equal(t, "off", jit)
}
