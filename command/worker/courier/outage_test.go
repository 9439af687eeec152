package courier_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/worker/courier"
	"github.com/leadlog/leadlog/projection/projectiontest"
)

// A courier reconnects up to five times a second. It once logged every attempt.
func TestCourier_LogsOutageOnce(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig("postgres://nobody@127.0.0.1:1/none?sslmode=disable")
	require.NoError(t, err)
	var dials atomic.Int32
	config.ConnConfig.DialFunc = func(context.Context, string, string) (net.Conn, error) {
		dials.Add(1)
		return nil, errors.New("no server")
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	var log projectiontest.Output
	courier := courier.New(courier.Options{Pool: pool, Log: slog.New(slog.NewTextHandler(&log, nil))})
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { courier.Run(ctx) })
	require.Eventually(t, func() bool { return dials.Load() >= 3 }, projectiontest.Soon, time.Millisecond)
	stop()
	running.Wait()
	require.Equal(t, 1, strings.Count(log.String(), "courier: database session lost, reconnecting"))
}
