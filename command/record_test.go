package command_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/storetest"
)

// gatedStore fails appends while down is set, and otherwise blocks them until pass is closed.
type gatedStore struct {
	eventstore.Store
	down atomic.Bool
	pass chan struct{}
}

func (s *gatedStore) Append(ctx context.Context, writes ...eventstore.Write) (eventstore.Position, error) {
	if s.down.Load() {
		return 0, eventstore.ErrUnavailable
	}
	select {
	case <-s.pass:
		return s.Store.Append(ctx, writes...)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func TestReading_RecordedOncePerMinute(t *testing.T) {
	t.Parallel()
	on := inMemory()
	now := noon
	var processes []*command.Handlers
	for range 2 {
		store := start(t, on).store
		processes = append(processes, command.NewHandlers(command.Options{
			Store: store, Log: quiet(), Now: func() time.Time { return now },
		}))
	}
	lead, other := ulid.Make().String(), ulid.Make().String()
	read := func(actor, id string) {
		t.Helper()
		for _, err := range concurrently(20, func(i int) error {
			caller := command.Caller{Account: "acme", Actor: actor, RequestID: "r"}
			return processes[i%2].Reveal(t.Context(), command.Reveal{
				Caller: caller, What: command.RevealOne, LeadID: id,
			})
		}) {
			require.NoError(t, err)
		}
	}
	recorded := func() int {
		return len(storetest.Events(t, on.log, eventstore.Filter{Types: []string{"data.revealed.v1"}}))
	}
	read("user:ann", lead)
	require.Equal(t, 1, recorded())
	read("user:bob", lead)
	read("user:ann", other)
	require.Equal(t, 3, recorded())
	now = now.Add(time.Minute)
	read("user:ann", lead)
	require.Equal(t, 4, recorded())
}

// Leads of a list are recorded in one append, except those that were recorded in this minute, here or by another
// process.
func TestReading_OfList(t *testing.T) {
	t.Parallel()
	on := inMemory()
	var processes []*command.Handlers
	for range 2 {
		processes = append(processes, command.NewHandlers(command.Options{
			Store: start(t, on).store, Log: quiet(), Now: func() time.Time { return noon },
		}))
	}
	a, b, c := ulid.Make().String(), ulid.Make().String(), ulid.Make().String()
	caller := command.Caller{Account: "acme", Actor: "user:ann", RequestID: "r"}
	recorded := func() (leads []string) {
		for _, e := range storetest.Events(t, on.log, eventstore.Filter{Types: []string{"data.revealed.v1"}}) {
			fact, err := e.Fact()
			require.NoError(t, err)
			leads = append(leads, fact.Data.(event.DataRevealed).LeadID)
		}
		return leads
	}
	require.NoError(t, processes[0].RevealLeads(t.Context(), caller))
	require.Empty(t, recorded())
	require.NoError(t, processes[0].RevealLeads(t.Context(), caller, a, b))
	require.NoError(t, processes[0].RevealLeads(t.Context(), caller, a, b))
	require.NoError(t, processes[1].RevealLeads(t.Context(), caller, a, c, b))
	require.Equal(t, []string{a, b, c}, recorded())
}

// A search is answered while the log is down, and recorded later. A reveal or an export fails.
func TestReading_WhileLogIsDown(t *testing.T) {
	t.Parallel()
	log := storetest.Memory()
	store := &gatedStore{Store: log, pass: make(chan struct{})}
	recorded := func(kind string) int {
		return len(storetest.Events(t, log, eventstore.Filter{Types: []string{kind}}))
	}
	handlers := command.NewHandlers(command.Options{Store: store, Log: quiet(), Now: func() time.Time { return noon }})
	caller := command.Caller{Account: "acme", Actor: "user:ann", RequestID: "r"}
	handlers.Search(t.Context(), caller, "leads", "phone") // returns
	close(store.pass)
	require.Eventually(t, func() bool { return recorded("data.searched.v1") == 1 }, time.Minute, time.Millisecond)

	store.down.Store(true)
	handlers.Search(t.Context(), caller, "leads", "email")
	handlers.Read(t.Context(), command.Reveal{Caller: caller, What: command.RevealOne, LeadID: "L"})
	require.ErrorIs(t,
		handlers.Reveal(t.Context(), command.Reveal{Caller: caller, What: command.RevealOne, LeadID: "L"}),
		eventstore.ErrUnavailable)
	_, err := handlers.BeginExport(t.Context(), caller, "leads", "csv", nil)
	require.ErrorIs(t, err, eventstore.ErrUnavailable)
	store.down.Store(false)
	require.NoError(t,
		handlers.Reveal(t.Context(), command.Reveal{Caller: caller, What: command.RevealOne, LeadID: "L"}),
		"a failed record is retried")
	require.Equal(t, 1, recorded("data.revealed.v1"))
}

// A read that must be recorded first fails with ErrNotRecorded while the log is down.
func TestReading_NotRecorded(t *testing.T) {
	t.Parallel()
	store := &gatedStore{Store: storetest.Memory(), pass: make(chan struct{})}
	store.down.Store(true)
	handlers := command.NewHandlers(command.Options{Store: store, Log: quiet()})
	caller := command.Caller{Account: "acme", Actor: "user:ann", RequestID: "r"}
	_, err := handlers.BeginExport(t.Context(), caller, "leads", "csv", nil)
	for _, err := range []error{err, handlers.Reveal(t.Context(), command.Reveal{
		Caller: caller, What: command.RevealOne, LeadID: ulid.Make().String(),
	})} {
		require.ErrorIs(t, err, command.ErrNotRecorded)
		require.ErrorIs(t, err, eventstore.ErrUnavailable)
	}
}
