package query_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/sealed"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/query"
)

// BenchmarkLeadAsOf is what it costs to tell what a lead that came a thousand times was, sealed as every lead is: the
// first time, and when it was asked for before.
func BenchmarkLeadAsOf(b *testing.B) {
	w := projectiontest.New(b)
	vault, err := sealed.NewVault(w.Pool, make([]byte, sealed.KeySize))
	require.NoError(b, err)
	store := sealed.Wrap(w.Store, vault, true, slog.New(slog.DiscardHandler))
	given := map[string]jsontext.Value{"source": jsontext.Value(`"website"`), "utm_campaign": jsontext.Value(`"diwali"`)}
	facts := []event.Data{event.LeadCreated{
		ContactUID: w.NewID(), Name: "Asha Rao", Phone: "+919876543210", Email: "asha@example.com", Status: "new", Temperature: "warm",
		Source: "website", Metadata: given, IP: "198.51.100.7", UserAgent: "Mozilla/5.0", Changed: []string{"name", "phone", "email", "metadata"},
	}}
	sources := []string{"website", "api", "facebook_ad", "whatsapp", "chatbot"}
	for len(facts) < 1000 {
		facts = append(facts, event.LeadMerged{
			Source: sources[len(facts)%len(sources)], Metadata: given, IP: "198.51.100.7", UserAgent: "Mozilla/5.0", Changed: []string{"metadata"},
		})
	}
	lead := w.NewID()
	write := eventstore.Write{Stream: event.LeadStream(lead), Expect: eventstore.NoStream}
	for _, fact := range facts {
		e := w.NewEvent()
		e.Metadata.Account = "acme"
		e.Type, e.Data, err = event.Encode(fact)
		require.NoError(b, err)
		write.Events = append(write.Events, e)
	}
	_, err = store.Append(b.Context(), write)
	require.NoError(b, err)
	ask := func(b *testing.B, reader *query.Reader) {
		_, err := reader.LeadAsOf(b.Context(), "acme", lead, time.Now())
		require.NoError(b, err)
	}
	b.Run("anew", func(b *testing.B) {
		for b.Loop() {
			ask(b, query.New(w.Pool, store))
		}
	})
	b.Run("again", func(b *testing.B) {
		reader := query.New(w.Pool, store)
		for b.Loop() {
			ask(b, reader)
		}
	})
}
