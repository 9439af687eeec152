package service

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore/postgres"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// Every view waits for the keys of what it reads. A server that vanished must not block it for ever.
func TestSealedLog_KeyQueriesAreBounded(t *testing.T) {
	t.Parallel()
	views := pgtest.Pool(t, pgtest.Database(t))
	log, err := openSealedLog(t.Context(), pgtest.DatabaseFrom(t, "log", postgres.Migrate), views, nil, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(log.Close)
	config := log.keys.Config()
	require.NotNil(t, config.ConnConfig.Tracer, "it bounds statements")
	require.NotZero(t, config.PingTimeout)
}
