package esdb

import (
	"context"
	"log/slog"
	"testing"

	client "github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore/esdbtest"
)

func TestAPanicOfTheClientIsALostConnection(t *testing.T) {
	t.Parallel()
	store, err := Open(t.Context(), Options{URL: esdbtest.Start(t).URL(), Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	for _, broken := range []string{"send on closed channel", "unreachable code"} {
		_, err = ask(t.Context(), store.conn, func(context.Context, *client.Client) (int, error) { panic(broken) })
		require.ErrorIs(t, err, errLost)
		require.ErrorContains(t, err, broken)
		require.ErrorIs(t, safely(func() message { panic(broken) }).err, errLost)
	}
	head, err := store.Head(t.Context()) // another client takes its place
	require.NoError(t, err)
	require.Zero(t, head)
}
