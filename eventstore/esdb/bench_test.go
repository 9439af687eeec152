package esdb_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/esdb"
	"github.com/leadlog/leadlog/eventstore/esdbtest"
)

const leadData = `{"contactUID":"01J000000000000000000000CU","name":"Asha Rao","phone":"+919876543210","email":"asha@example.com",` +
	`"status":"new","leadTemperature":"warm","source":"api","metadata":{"campaign":"spring","source":"api"}}`

// BenchmarkAppend appends as a capture of a new lead does: two claims and the lead, under checks of a token and an
// account. The server keeps its log in memory, so this measures the adapter, the client and the wire.
func BenchmarkAppend(b *testing.B) {
	for _, callers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			store := open(b, esdb.Options{URL: esdbtest.Start(b).URL()})
			if _, err := store.Append(context.Background(), start("token-1", fact(`{}`)), start("account-1", fact(`{}`))); err != nil {
				b.Fatal(err)
			}
			var left atomic.Int64
			left.Store(int64(b.N))
			failed := make(chan error, callers)
			b.ResetTimer()
			for range callers {
				go func() { failed <- capture(store, &left) }()
			}
			for range callers {
				if err := <-failed; err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "appends/s")
		})
	}
}

func capture(store eventstore.Store, left *atomic.Int64) error {
	for left.Add(-1) >= 0 {
		l, p, e := fact(leadData), fact(`{"holder":"01J000000000000000000000CU"}`), fact(`{"holder":"01J000000000000000000000CU"}`)
		l.Metadata.Account, l.Metadata.RequestID, l.Metadata.Actor = "acme", "req-1", "token:1"
		p.Metadata, e.Metadata = l.Metadata, l.Metadata
		_, err := store.Append(context.Background(), eventstore.Check("token-1", 0), eventstore.Check("account-1", 0),
			start(fmt.Sprintf("claim-%x", p.ID.Entropy()), p), start(fmt.Sprintf("claim-%x", e.ID.Entropy()), e), start("lead-"+l.ID.String(), l))
		if err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkCatchUp reads a log of leads from its beginning.
func BenchmarkCatchUp(b *testing.B) {
	const total, size = 100_000, 500
	server := esdbtest.Start(b)
	store := open(b, esdb.Options{URL: server.URL()})
	for i := range total / size {
		events := make([]eventstore.Event, size)
		for j := range events {
			events[j] = fact(leadData)
			events[j].Metadata.Account = "acme"
		}
		if _, err := store.Append(context.Background(), start(fmt.Sprintf("lead-%d", i), events...)); err != nil {
			b.Fatal(err)
		}
	}
	for _, c := range []struct {
		name   string
		filter eventstore.Filter
		want   int
	}{
		{"all", eventstore.Filter{}, total},
		{"by stream", eventstore.Filter{StreamPrefixes: []string{"lead-"}}, total},
		{"one stream in 200", eventstore.Filter{StreamPrefixes: []string{"lead-199"}}, size},
	} {
		b.Run(c.name, func(b *testing.B) {
			for range b.N {
				seen := 0
				for item, err := range store.Subscribe(context.Background(), 0, c.filter) {
					if err != nil {
						b.Fatal(err)
					}
					if item.Event != nil {
						seen++
					}
					if item.Event != nil && item.Event.Stream == "lead-199" && item.Event.Revision == size-1 {
						break
					}
				}
				if seen != c.want {
					b.Fatalf("%d events, not %d", seen, c.want)
				}
			}
			b.ReportMetric(float64(b.N)*total/b.Elapsed().Seconds(), "log-events/s")
		})
	}
}
