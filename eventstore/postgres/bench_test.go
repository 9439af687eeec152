package postgres_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/postgres"
)

// BenchmarkAppend appends as a capture of a new lead does: the lead and two claims, under checks of a token and an
// account. LEADLOG_TEST_DATABASE_URL names the server to measure.
func BenchmarkAppend(b *testing.B) {
	for _, callers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			store := open(b, postgres.Options{URL: database(b)})
			if _, err := store.Append(context.Background(), start("token-1", fact(`{}`)), start("account-1", fact(`{}`))); err != nil {
				b.Fatal(err)
			}
			lead := `{"contactUID":"01J000000000000000000000CU","name":"Asha Rao","phone":"+919876543210","email":"asha@example.com",` +
				`"status":"new","leadTemperature":"warm","source":"api","metadata":{"campaign":"spring","source":"api"}}`
			var left atomic.Int64
			left.Store(int64(b.N))
			failed := make(chan error, callers)
			b.ResetTimer()
			for range callers {
				go func() {
					for left.Add(-1) >= 0 {
						l, p, e := fact(lead), fact(`{"holder":"01J000000000000000000000CU"}`), fact(`{"holder":"01J000000000000000000000CU"}`)
						l.Metadata.Account, l.Metadata.RequestID, l.Metadata.Actor = "acme", "req-1", "token:1"
						p.Metadata, e.Metadata = l.Metadata, l.Metadata
						_, err := store.Append(context.Background(),
							start("claim-"+scramble(p), p), start("claim-"+scramble(e), e), start("lead-"+l.ID.String(), l),
							eventstore.Check("token-1", 0), eventstore.Check("account-1", 0))
						if err != nil {
							failed <- err
							return
						}
					}
					failed <- nil
				}()
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

// scramble names a claim as a keyed hash would: at random.
func scramble(e eventstore.Event) string {
	return fmt.Sprintf("%x", e.ID.Entropy())
}
