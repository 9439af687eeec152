package command_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/command/worker/forget"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/storetest"
)

// countingStore counts the events of leads and endpoints that are read.
type countingStore struct {
	eventstore.Store
	events   atomic.Int64
	external countingViews
}

func (s *countingStore) Read(
	ctx context.Context, stream string, from eventstore.Revision,
) iter.Seq2[eventstore.Recorded, error] {
	return func(yield func(eventstore.Recorded, error) bool) {
		for recorded, err := range s.Store.Read(ctx, stream, from) {
			if strings.HasPrefix(stream, event.LeadPrefix) || strings.HasPrefix(stream, event.WebhookPrefix) {
				s.events.Add(1)
			}
			if !yield(recorded, err) {
				return
			}
		}
	}
}

// countingViews counts queries for other leads that are linked with visitors. Each query reads all leads of an account.
type countingViews struct {
	fakeKeysAndViews
	queries *atomic.Int64
}

func (v countingViews) Linked(
	ctx context.Context, account string, streams []string, erased eventstore.Position,
) (map[string]bool, error) {
	v.queries.Add(1)
	return v.fakeKeysAndViews.Linked(ctx, account, streams, erased)
}

// startCounted starts a process on an in-memory log.
func startCounted(t *testing.T) (process, *countingStore) {
	t.Helper()
	return startCountedOn(t, storetest.Memory())
}

func startCountedOn(t *testing.T, log eventstore.Store) (process, *countingStore) {
	t.Helper()
	store := &countingStore{Store: log}
	store.external = countingViews{withoutFaults(&externalData{shown: map[string]bool{}}), new(atomic.Int64)}
	directory := command.NewDirectory(store, time.Now)
	p := process{store: store, directory: directory, Handlers: command.NewHandlers(command.Options{
		Store: store, Claims: claim.NewNames(claimKey()), Directory: directory, Secrets: &secrets{}, Log: quiet(),
	}), eraser: forget.Eraser{Keys: store.external, Views: store.external}}
	p.provision(t)
	return p, store
}

// manyEvents is the length of a long stream, which must not be read again for each command.
const manyEvents = 300

// A CRM that writes back its fields on every change makes a lead's stream long.
func TestUpdateLead_LongLead(t *testing.T) {
	t.Parallel()
	p, log := startCounted(t)
	captured := p.captured(t, `{"phone":"+919876500001"}`)
	change := func(i int) {
		_, err := p.UpdateLead(t.Context(), command.UpdateLead{
			Caller: owner, LeadID: captured.Lead.ID, Body: members(fmt.Sprintf(`{"opportunityValue":%d}`, i)),
		})
		require.NoError(t, err)
	}
	for i := range manyEvents {
		change(i)
	}
	log.events.Store(0)
	change(manyEvents)
	require.LessOrEqual(t, log.events.Load(), int64(2))
}

// Reading a stream of half a million events exceeds the timeout of a decision. Such a lead must still be erased and
// joined.
func TestJoinLeads_LongLead(t *testing.T) {
	t.Parallel()
	p, log := startCounted(t)
	var ids []string
	for _, phone := range []string{"+919876500001", "+919876500002"} {
		for range manyEvents {
			captured := p.captured(t, `{"phone":"`+phone+`","metadata":{"source":"website"}}`)
			if !captured.Merged {
				ids = append(ids, captured.Lead.ID)
			}
		}
	}
	log.events.Store(0)
	joined, err := p.JoinLeads(t.Context(), command.JoinLeads{
		Caller: owner, LeadID: ids[0], Body: members(`{"from":"` + ids[1] + `"}`),
	})
	require.NoError(t, err)
	require.Equal(t, []string{ids[1]}, joined.Lead.Joined)
	erased, err := p.eraseLead(t.Context(), ids[0])
	require.NoError(t, err)
	require.Equal(t, 2, erased.Claims)
	require.Less(t, log.events.Load(), int64(20))
	again, err := p.eraseLead(t.Context(), ids[0])
	require.NoError(t, err)
	require.True(t, again.Again)
	require.Equal(t, erased.Position, again.Position)
}

// The erasure drops the lead from the cache of folded leads, so a read of its stream would start at the beginning.
func TestCapture_AfterErasureReadsNoErasedLead(t *testing.T) {
	t.Parallel()
	p, log := startCounted(t)
	const body = `{"phone":"+919876500001","email":"asha@example.com","metadata":{"source":"website"}}`
	first := p.captured(t, body)
	_, err := p.eraseLead(t.Context(), first.Lead.ID)
	require.NoError(t, err)
	log.events.Store(0)
	again := p.captured(t, body)
	require.False(t, again.Merged)
	require.Zero(t, log.events.Load())
	merged := p.captured(t, body)
	require.Equal(t, again.Lead.ID, merged.Lead.ID)
}

func TestEraseLead_LooksUpVisitorsOnce(t *testing.T) {
	t.Parallel()
	p, log := startCounted(t)
	var captured command.LeadCaptured
	for i := range 30 {
		visitor := fmt.Sprint("v-", i)
		captured = p.captured(t, `{"phone":"+919876500001","metadata":{"source":"website"},"visitorId":"`+visitor+`"}`)
		log.external.shown[claim.NewNames(claimKey()).Visitor("acme", visitor)] = true
	}
	erased, err := p.eraseLead(t.Context(), captured.Lead.ID)
	require.NoError(t, err)
	require.Equal(t, 30, erased.Visitors)
	require.EqualValues(t, 1, log.external.queries.Load())
}

func TestTestWebhook_LongEndpoint(t *testing.T) {
	t.Parallel()
	p, log := startCounted(t)
	registered, err := p.RegisterWebhookEndpoint(t.Context(), command.RegisterWebhookEndpoint{
		Caller: owner, Registration: webhook.Registration{URL: "https://hooks.example.com/"},
	})
	require.NoError(t, err)
	test := func() {
		_, err := p.TestWebhookEndpoint(t.Context(), command.TestWebhookEndpoint{
			Caller: owner, WebhookID: registered.ID,
		})
		require.NoError(t, err)
	}
	for range manyEvents {
		test()
	}
	log.events.Store(0)
	test()
	require.LessOrEqual(t, log.events.Load(), int64(2))
}
