package postgres

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func TestABatchTellsUnlessOneWasToldOfJustBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var owing tidings
		require.False(t, owing.with(0), "there is nothing new")
		require.True(t, owing.with(2))
		owing.told()
		require.False(t, owing.with(0))
		require.False(t, owing.with(1))
		require.True(t, owing.owed)
		time.Sleep(tellRest)
		require.True(t, owing.with(0), "of the one before")
		require.True(t, owing.with(0), "once more: nobody knows whether that one came through")
		owing.told()
		time.Sleep(tellRest)
		require.False(t, owing.with(0), "all is told")
	})
}

func TestWhatCouldNotBeToldIsToldLater(t *testing.T) {
	t.Parallel()
	config, err := pgx.ParseConfig("postgres://127.0.0.1:1/nobody")
	require.NoError(t, err)
	w := newWriter(config, 1, time.Minute, slog.New(slog.DiscardHandler))
	w.tidings.with(1)
	began := time.Now()
	w.tell()
	require.True(t, w.tidings.owed)
	require.False(t, w.tidings.next.Before(began.Add(tellAgain)))
}
