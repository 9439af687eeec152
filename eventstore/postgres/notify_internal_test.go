package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
)

func TestNotifier_RetriesAfterFailure(t *testing.T) {
	t.Parallel()
	config, err := pgx.ParseConfig("postgres://127.0.0.1:1/none")
	require.NoError(t, err)
	var attempts atomic.Int64
	config.DialFunc = func(context.Context, string, string) (net.Conn, error) {
		attempts.Add(1)
		return nil, errors.New("no server")
	}
	n := newNotifier(config)
	n.notify()
	n.notify() // coalesced with the first
	require.Error(t, n.send(time.Minute))
	first := attempts.Load()
	ended, done := make(chan struct{}), make(chan struct{})
	go func() { defer close(done); n.run(ended) }()
	require.Eventually(t, func() bool {
		return attempts.Load() >= 3*first
	}, time.Minute, time.Millisecond, "a failed notification is retried")
	close(ended)
	<-done
}

// Any role of the database may send any number of notifications.
func TestListening_CoalescesNotifications(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	config, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	began, done, last := make(chan time.Time, 1), make(chan struct{}), make(chan struct{})
	notified := 0
	go func() {
		defer close(done)
		Listener{
			Config: config, Channel: "junk",
			Ignore:   func(uint32) bool { return false },
			OnListen: func() { began <- time.Now() },
			OnNotified: func() {
				if notified++; notified == 3 {
					close(last)
				}
			},
			OnLost: func(err error) { t.Error(err) },
		}.Run(ctx)
	}()
	start := <-began
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	for round, done := 0, false; !done; round++ { // each in one transaction
		pgtest.Exec(t, conn,
			fmt.Sprintf(`SELECT pg_notify('junk', repeat('x', 7000) || '%d ' || n) FROM generate_series(1, 1000) AS n`,
				round))
		select {
		case <-last:
			done = true
		default:
		}
	}
	stop()
	<-done
	require.LessOrEqual(t, notified, int(time.Since(start)/notifyInterval)+1)
}
