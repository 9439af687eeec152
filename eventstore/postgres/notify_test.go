package postgres

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func TestABatchNotifiesUnlessOneDidJustBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var pending notification
		require.False(t, pending.due(0), "there is nothing new")
		require.True(t, pending.due(2))
		pending.sent()
		require.False(t, pending.due(0))
		require.False(t, pending.due(1))
		require.True(t, pending.owed)
		time.Sleep(notifyRest)
		require.True(t, pending.due(0), "of the one before")
		require.True(t, pending.due(0), "once more: nobody knows whether that one came through")
		pending.sent()
		time.Sleep(notifyRest)
		require.False(t, pending.due(0), "nothing is owed")
	})
}

func TestANotificationThatFailedIsSentLater(t *testing.T) {
	t.Parallel()
	config, err := pgx.ParseConfig("postgres://127.0.0.1:1/nobody")
	require.NoError(t, err)
	w := newWriter(config, 1, time.Minute, slog.New(slog.DiscardHandler))
	w.notification.due(1)
	began := time.Now()
	w.notify()
	require.True(t, w.notification.owed)
	require.False(t, w.notification.next.Before(began.Add(notifyRetry)))
}
