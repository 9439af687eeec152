package esdb

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/esdbtest"
)

func TestConnection_ClientPanics(t *testing.T) {
	t.Parallel()
	store, err := Open(t.Context(), Options{URL: esdbtest.Start(t).URL(), Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	for _, text := range []string{"send on closed channel", "unreachable code"} {
		_, err = ask(t.Context(), store.conn, func(context.Context, *link) (int, error) { panic(text) })
		require.ErrorIs(t, err, errLost)
		require.ErrorContains(t, err, text)
		require.ErrorIs(t, safely(func() message { panic(text) }).err, errLost)
	}
	head, err := store.Head(t.Context()) // by a new client
	require.NoError(t, err)
	require.Zero(t, head)
}

// A subscription keeps using a client that was replaced. When the client is closed, the library panics in the
// subscription or blocks it.
func TestConnection_ClosesReplacedClient(t *testing.T) {
	t.Parallel()
	server := esdbtest.Start(t)
	store, err := Open(t.Context(), Options{
		URL: server.URL(), Timeout: time.Minute, Poll: 20 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	store.conn.lingering = 50 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	const rounds = 10
	append := func(n int) {
		e := eventstore.Event{
			ID: ulid.Make(), Type: "test.v1", At: time.Now().UTC().Truncate(time.Millisecond), Data: []byte(`{}`),
		}
		_, err := store.Append(ctx, eventstore.Write{
			Stream: fmt.Sprintf("s-%d", n), Expect: eventstore.NoStream, Events: []eventstore.Event{e},
		})
		require.NoError(t, err)
	}
	append(0)
	seen := 0
	for page, err := range store.Subscribe(ctx, 0, eventstore.Filter{}) {
		require.NoError(t, err)
		if len(page.Events) == 0 {
			continue
		}
		require.Len(t, page.Events, 1)
		require.Equal(t, fmt.Sprintf("s-%d", seen), page.Events[0].Stream)
		if seen++; seen == rounds {
			break
		}
		store.conn.mu.Lock()
		replaced := store.conn.current
		store.conn.replace(replaced, errLost)
		store.conn.mu.Unlock()
		require.Eventually(t, func() bool {
			store.conn.mu.Lock()
			defer store.conn.mu.Unlock()
			return replaced.users == 0
		}, time.Minute, time.Millisecond, "closing the client ends its use by the subscription")
		append(seen)
	}
	require.Equal(t, rounds, seen)
}
