package query_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/query"
)

// Earlier states of a lead with many events are cached. They are valid until the lead is erased.
func TestLeadAsOf_LongLead(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	id := w.NewID()
	facts := []event.Data{event.LeadCreated{
		ContactUID: w.NewID(),
		LeadFields: event.LeadFields{Name: "Asha Rao", Phone: "+919876543210", Status: "new", Temperature: "warm"},
		Source:     "website",
	}}
	sources := []string{"website", "api", "whatsapp"}
	for i := range 299 {
		facts = append(facts, event.LeadMerged{
			Source: sources[i%3], LeadFields: event.LeadFields{Status: []string{"contacted", "qualified"}[i%2]},
			VisitorID: sources[i%3],
		})
	}
	w.Append(t, "acme", event.LeadStream(id), facts...)
	reader := query.New(w.Pool, w.Store)
	var stream []eventstore.Recorded
	for recorded, err := range w.Store.Read(t.Context(), event.LeadStream(id), 0) {
		require.NoError(t, err)
		stream = append(stream, recorded)
	}
	var states []lead.State
	for i, recorded := range stream {
		fact, err := recorded.Fact()
		require.NoError(t, err)
		var before lead.State
		if i > 0 {
			before = states[i-1]
		}
		states = append(states, lead.Evolve(before, fact))
	}
	for _, revision := range []int{10, 299, 10, 150, 151, 149, 31, 32, 33, 0, 298, 299} {
		shown, err := reader.LeadAsOf(t.Context(), "acme", id, stream[revision].At)
		require.NoError(t, err)
		want := query.NewListedLead(states[revision])
		want.Metadata, want.Contacts = states[revision].Metadata, query.NewContacts(states[revision])
		require.JSONEq(t, text(t, want), text(t, shown), "at revision %d", revision)
	}
	w.Append(t, "acme", event.LeadStream(id), event.LeadErased{})
	for _, revision := range []int{10, 150, 299} {
		_, err := reader.LeadAsOf(t.Context(), "acme", id, stream[revision].At)
		require.ErrorIs(t, err, query.ErrNotFound, "at revision %d", revision)
	}
}

// A time with milliseconds that end in zeros once had fewer decimals.
func TestLeadEvents_TimestampFormat(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	id := w.NewID()
	first := projectiontest.Start.Add(200 * time.Millisecond)
	w.Append(t, "acme", event.LeadStream(id), event.LeadCreated{
		LeadFields: event.LeadFields{Name: "Asha", Phone: "+911", Status: "new"}, Source: "api",
		ArrivalRef: event.ArrivalRef{ReceivedAt: first},
	})
	w.Append(t, "acme", event.LeadStream(id), event.LeadJoined{From: w.NewID(), Was: event.LeadSnapshot{
		CreatedAt: first,
		Sources:   []event.SourceSnapshot{{Source: "website", FirstSeenAt: first, LastSeenAt: first.Add(time.Second)}},
	}})
	events, err := query.New(w.Pool, w.Store).LeadEvents(t.Context(), "acme", id, firstPage)
	require.NoError(t, err)
	require.Contains(t, string(events.Items[0].Data), `"receivedAt":"2026-03-01T09:00:00.200Z"`)
	data := string(events.Items[1].Data)
	for _, field := range []string{
		`"createdAt":"2026-03-01T09:00:00.200Z"`, `"firstSeenAt":"2026-03-01T09:00:00.200Z"`,
		`"lastSeenAt":"2026-03-01T09:00:01.200Z"`,
	} {
		require.Contains(t, data, field)
	}
}
