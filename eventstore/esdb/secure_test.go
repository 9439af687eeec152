package esdb_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/esdb"
	"github.com/leadlog/leadlog/eventstore/esdbtest"
)

func TestAUserIsKnownByPasswordOverTLS(t *testing.T) {
	t.Parallel()
	server := esdbtest.StartSecure(t, "admin", "changeit")
	store := open(t, esdb.Options{URL: strings.Replace(server.URL(), "esdb://", "kurrentdb://", 1)})
	position := mustAppend(t, store, eventstore.Check("a", eventstore.NoStream), start("s", fact(`{}`)))
	head, err := store.Head(within(t))
	require.NoError(t, err)
	require.Equal(t, position, head)
	seen, err := follow(within(t), store, eventstore.Filter{}, "s")
	require.NoError(t, err)
	require.Len(t, seen, 1)
}

func TestAStrangerIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	server := esdbtest.StartSecure(t, "admin", "changeit")
	for _, url := range []string{
		strings.Replace(server.URL(), "changeit", "guessed", 1),
		strings.Replace(server.URL(), "admin:changeit@", "", 1),
	} {
		// With the patience of a minute, this would not end if it were tried again.
		store := open(t, esdb.Options{URL: url + impatient})
		_, err := store.Append(within(t), start("s", fact(`{}`)))
		require.ErrorIs(t, err, eventstore.ErrUnavailable)
		require.NotContains(t, err.Error(), "guessed")
		for _, err := range store.Subscribe(within(t), 0, eventstore.Filter{}) {
			require.ErrorIs(t, err, eventstore.ErrUnavailable)
		}
	}
}
