package esdb_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/esdb"
	"github.com/leadlog/leadlog/eventstore/esdbtest"
)

// Calls of the server and events that it sends, for each capture of 64 callers beside a subscription. Without what the
// subscription has received, there are 2 reads for each by locks, and one for each group.
func TestAppend_CallsPerCapture(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		upgraded      bool
		appends, sent float64
	}{"by locks": {false, 3, 7}, "by AppendRecords": {true, 0, 5}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := esdbtest.Start(t)
			if test.upgraded {
				server.Upgrade()
			}
			store := open(t, esdb.Options{URL: server.URL(), Poll: testTimeout})
			store.AwaitSubscription(testTimeout)
			begin := mustAppend(t, store, start("token-1", fact(`{}`)), start("account-1", fact(`{}`)))
			stop := subscribe(t, store, begin)
			const callers, each = 64, 30
			ctx := within(t)
			calls, appends, records, sent := server.Calls(), server.Appends(), server.RecordCalls(), server.Sent()
			var capturing errgroup.Group
			for i := range callers {
				capturing.Go(func() error {
					for n := range each {
						if _, err := store.Append(ctx, capture(i*each+n)...); err != nil {
							return err
						}
					}
					return nil
				})
			}
			require.NoError(t, capturing.Wait())
			of := func(n int) float64 { return float64(n) / (callers * each) }
			appended, together := of(server.Appends()-appends), of(server.RecordCalls()-records)
			read := of(server.Calls()-calls) - appended - together
			t.Logf("a capture: %.2f appends, %.2f calls of AppendRecords, %.3f reads, %.2f events sent",
				appended, together, read, of(server.Sent()-sent))
			require.InDelta(t, test.appends, appended, 0.1)
			require.LessOrEqual(t, together, 0.3)
			require.LessOrEqual(t, read, 0.5)
			require.LessOrEqual(t, of(server.Sent()-sent), test.sent)
			require.Zero(t, server.CutOff())
			stop()
		})
	}
}

// A read that is cut off counts on the server like one that is under way, and too many make it reset the connection.
func TestStore_ReadsEndByThemselves(t *testing.T) {
	t.Parallel()
	server := esdbtest.Start(t)
	store := open(t, esdb.Options{URL: server.URL()})
	again := start("s", fact(`{}`))
	position := mustAppend(t, store, again)
	for range 20 {
		many := make([]eventstore.Event, 500)
		for i := range many {
			many[i] = fact(`{}`)
		}
		mustAppend(t, store, eventstore.Write{Stream: "s", Expect: eventstore.Any, Events: many})
	}
	require.Equal(t, position, mustAppend(t, store, again), "the append is found by a read")
	server.Noise(5000)
	_, err := store.Head(within(t))
	require.NoError(t, err)
	_, err = store.Last(within(t), "s")
	require.NoError(t, err)
	require.Zero(t, server.CutOff())
}
