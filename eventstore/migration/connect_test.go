package migration

import (
	"maps"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
)

func TestSetAfterConnect_StandardParametersOnly(t *testing.T) {
	t.Parallel()
	config, err := pgx.ParseConfig("postgres://u@127.0.0.1:1/db?search_path=log&TimeZone=UTC&work_mem=8MB")
	require.NoError(t, err)
	SetSession(config)
	setAfterConnect(config)
	require.Equal(t, []string{"TimeZone", "client_encoding", "standard_conforming_strings"},
		slices.Sorted(maps.Keys(config.RuntimeParams)))
}

func TestConnect_SetsParameters(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	SetSession(config.ConnConfig)
	config.ConnConfig.RuntimeParams["search_path"] = `"a, ""b"`
	config.ConnConfig.RuntimeParams["work_mem"] = "7MB"
	conn, err := Connect(t.Context(), config.ConnConfig)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	pool, err := NewPool(t.Context(), config)
	require.NoError(t, err)
	defer pool.Close()
	after := config.ConnConfig.Copy() // as behind a pooler
	setAfterConnect(after)
	set, err := pgx.ConnectConfig(t.Context(), after)
	require.NoError(t, err)
	defer set.Close(t.Context())
	for name, want := range map[string]string{"search_path": `"a, ""b"`, "work_mem": "7MB", "jit": "off"} {
		var alone, pooled, later string
		require.NoError(t, conn.QueryRow(t.Context(), `SELECT current_setting($1)`, name).Scan(&alone))
		require.NoError(t, pool.QueryRow(t.Context(), `SELECT current_setting($1)`, name).Scan(&pooled))
		require.NoError(t, set.QueryRow(t.Context(), `SELECT current_setting($1)`, name).Scan(&later))
		require.Equal(t, []string{want, want, want}, []string{alone, pooled, later}, name)
	}

	config.ConnConfig.RuntimeParams["no_such"] = "1"
	_, err = Connect(t.Context(), config.ConnConfig)
	require.ErrorContains(t, err, `unrecognized configuration parameter "no_such"`)
}
