package service

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore/postgres"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// Every view reads keys to decrypt events. A server that does not respond must not block a view forever.
func TestSealedLog_KeyQueriesAreBounded(t *testing.T) {
	t.Parallel()
	views := pgtest.Pool(t, pgtest.Database(t))
	log, err := openSealedLog(t.Context(), pgtest.DatabaseFrom(t, "log", postgres.Migrate), views, nil,
		slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(log.Close)
	config := log.keys.Config()
	require.NotNil(t, config.ConnConfig.Tracer, "the tracer bounds the duration of statements")
	require.NotZero(t, config.PingTimeout)
}
