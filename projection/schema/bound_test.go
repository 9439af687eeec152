package schema_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore/migration"
	"github.com/leadlog/leadlog/projection/schema"
)

func TestSession_OverridesServerDefaults(t *testing.T) {
	config, err := pgx.ParseConfig(pgtest.Database(t))
	require.NoError(t, err)
	// overridden by parameters set by name
	config.RuntimeParams["options"] = "-c jit=on -c default_transaction_isolation=serializable -c " +
		"statement_timeout=1 -c idle_in_transaction_session_timeout=1"
	schema.Bound(config)
	conn, err := migration.Connect(t.Context(), config)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	for setting, want := range map[string]string{
		"jit": "off", "default_transaction_isolation": "read committed", "statement_timeout": "0",
		"idle_in_transaction_session_timeout": "0",
	} {
		var got string
		require.NoError(t, conn.QueryRow(t.Context(), `SELECT current_setting($1)`, setting).Scan(&got))
		require.Equal(t, want, got, setting)
	}
}
