package command_test

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/command/worker/forget"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
)

func (e eraser) deleteVisitor(ctx context.Context, caller command.Caller, id string) (forget.VisitorForgotten, error) {
	erasure := e.Erasure(caller)
	return e.DeleteVisitor(ctx, erasure, erasure.VisitorStream(id))
}

// externalData is the data outside of the log that an erasure removes.
type externalData struct {
	mu     sync.Mutex
	keys   map[string]bool               // by stream
	shown  map[string]bool               // visitors in the views
	linked map[string]bool               // visitors that another lead is linked with
	copied map[string]bool               // copies, by lead or by stream of a visitor
	posted func(leads []string) []string // ids of the stored arrivals of leads; nil: none
}

// fakeKeysAndViews gives one process access to externalData. It calls step before each operation, and fails with its
// error.
type fakeKeysAndViews struct {
	*externalData
	step func() error
	forget.Keys
	forget.Views
}

// withoutFaults returns fakeKeysAndViews whose operations succeed.
func withoutFaults(data *externalData) fakeKeysAndViews {
	return fakeKeysAndViews{externalData: data, step: func() error { return nil }}
}

// eraser erases on the log and outside of it.
type eraser struct {
	*command.Handlers
	forget.Eraser
}

// keysAndViews is the part of an erasure outside of the log.
type keysAndViews interface {
	forget.Keys
	forget.Views
}

func newEraser(store eventstore.Store, external keysAndViews) eraser {
	return eraser{
		command.NewHandlers(command.Options{Store: store, Claims: claim.NewNames(claimKey()), Log: quiet()}),
		forget.Eraser{Keys: external, Views: external},
	}
}

func (e eraser) eraseLead(ctx context.Context, caller command.Caller, id string) (forget.LeadErased, error) {
	return e.EraseLead(ctx, e.Erasure(caller), id)
}

func (f fakeKeysAndViews) do(change func()) error {
	if err := f.step(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	return nil
}

func (f fakeKeysAndViews) Destroy(_ context.Context, streams ...string) error {
	return f.do(func() {
		for _, stream := range streams {
			delete(f.keys, stream)
		}
	})
}

func (f fakeKeysAndViews) Commitments(_ context.Context, streams ...string) (map[string][]string, error) {
	found := map[string][]string{}
	return found, f.do(func() {
		for _, stream := range streams {
			if f.keys[stream] {
				found[stream] = []string{"hash of the key of " + stream}
			}
		}
	})
}

func (f fakeKeysAndViews) DestroyReturned(context.Context, ...string) error { return f.do(func() {}) }

func (f fakeKeysAndViews) Await(context.Context, eventstore.Position) error { return f.do(func() {}) }

func (f fakeKeysAndViews) Linked(
	_ context.Context, _ string, streams []string, _ eventstore.Position,
) (map[string]bool, error) {
	linked := map[string]bool{}
	return linked, f.do(func() {
		for _, stream := range streams {
			if f.shown[stream] {
				linked[stream] = f.linked[stream]
			}
		}
	})
}

func (f fakeKeysAndViews) Arrivals(_ context.Context, _ string, leads []string) (ids []string, err error) {
	return ids, f.do(func() {
		if f.posted != nil {
			ids = f.posted(leads)
		}
	})
}

func (f fakeKeysAndViews) DeleteFromCopies(_ context.Context, forgotten projection.Forgotten) error {
	return f.do(func() {
		for _, id := range slices.AppendSeq(slices.Clone(forgotten.Leads), maps.Keys(forgotten.Visitors)) {
			delete(f.copied, id)
		}
	})
}

// A process is killed before each step of an erasure in turn, and a repeat completes it. An arrival of the same person
// in between is a repeat of the lead or creates a new one.
func TestEraseLead_ResumesAfterKill(t *testing.T) {
	t.Parallel()
	names := claim.NewNames(claimKey())
	visitors := []string{names.Visitor("acme", "v-1"), names.Visitor("acme", "v-2")}
	stops := 0
	for ; ; stops++ {
		w := newWorld(t)
		body := `{"phone":"+919876500077","email":"seven@example.com","visitorId":"v-1"}`
		first := w.capture(w.process(), body, "")
		require.NoError(t, first.err)
		id := first.answer.Lead.ID
		w.capture(w.process(), `{"phone":"+919876500077","visitorId":"v-2","metadata":{"source":"website"}}`, "")
		posted, err := w.process().ReceiveArrival(t.Context(), receiveCommand(`{"phone":"+919876500077"}`))
		require.NoError(t, err)
		external := &externalData{
			posted: func(leads []string) []string {
				if state := w.arrival(posted.ID); slices.Contains(leads, state.LeadID) && !state.Deleted {
					return []string{posted.ID}
				}
				return nil
			},
			keys: map[string]bool{
				event.LeadStream(id): true, event.ArrivalStream(posted.ID): true, visitors[0]: true, visitors[1]: true,
			},
			shown: map[string]bool{
				visitors[0]: true, visitors[1]: true,
			}, copied: map[string]bool{id: true, visitors[0]: true, visitors[1]: true},
		}
		erase := func(step func() error) (forget.LeadErased, error) {
			store := killableStore{w.log, step}
			done, err := newEraser(store, fakeKeysAndViews{
				externalData: external, step: step,
			}).eraseLead(t.Context(), owner, id)
			// The views follow the log: they drop a visitor that was forgotten.
			for _, r := range w.events() {
				if r.Type == (event.VisitorForgotten{}).EventType() {
					delete(external.shown, r.Stream)
				}
			}
			return done, err
		}
		remaining := stops
		_, err = erase(func() error {
			if remaining--; remaining < 0 {
				return errKilled
			}
			return nil
		})
		if err == nil {
			break
		}
		require.ErrorIs(t, err, errKilled)

		again := w.capture(w.process(), body, "")
		if again.err != nil { // the lead still exists and has this source
			require.ErrorAs(t, again.err, new(*command.LeadRefused))
		} else {
			require.NotEqual(t, id, again.answer.Lead.ID, "stop %d", stops)
		}
		_, err = erase(func() error { return nil })
		require.NoError(t, err, "stop %d", stops)
		require.Empty(t, external.keys, "stop %d", stops)
		require.Empty(t, external.shown, "stop %d", stops)
		require.Empty(t, external.copied, "stop %d", stops)
		require.Equal(t, event.DiscardedErased, w.arrival(posted.ID).Discarded)
		log := w.events()
		at := slices.IndexFunc(log, func(r eventstore.Recorded) bool {
			return r.Type == event.LeadErased{}.EventType()
		})
		fact, err := log[at].Fact()
		require.NoError(t, err)
		require.Equal(t, []event.KeyCommitment{{LeadID: id, Commitment: "hash of the key of " + event.LeadStream(id)}},
			fact.Data.(event.LeadErased).KeyCommitments, "the fact was appended before the key was destroyed")
		require.Empty(t, w.arrival(posted.ID).LeadID)
		done, err := erase(func() error { return nil })
		require.NoError(t, err)
		require.True(t, done.Again)
		for stream, c := range w.claims() {
			require.NotEqual(t, id, c.Holder, "stop %d: %s", stops, stream)
		}
	}
	require.Greater(t, stops, 8)
}

// Leads that were joined into an erased lead, directly or not, are erased with it.
func TestEraseLead_ErasesJoinedLeads(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.process()
	var ids []string
	w.external.keys = map[string]bool{}
	for _, c := range w.results {
		ids = append(ids, c.answer.Lead.ID)
		w.external.keys[event.LeadStream(c.answer.Lead.ID)] = true
	}
	for i, into := range ids[1:] {
		_, err := p.JoinLeads(t.Context(), command.JoinLeads{
			Caller: owner, LeadID: into, Body: members(`{"from":"` + ids[i] + `"}`),
		})
		require.NoError(t, err)
	}
	_, err := p.eraseLead(t.Context(), ids[2])
	require.NoError(t, err)
	for stream, exists := range w.external.keys {
		require.False(t, exists, stream)
	}
}

// The activity of a visitor and its copies are kept while another lead is linked with the visitor.
func TestEraseLead_KeepsSharedVisitors(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	names := claim.NewNames(claimKey())
	shared := names.Visitor("acme", "v-1")
	first := w.capture(w.process(), `{"phone":"+919876500077","visitorId":"v-1"}`, "")
	require.NoError(t, first.err)
	kept := &externalData{
		keys: map[string]bool{shared: true}, shown: map[string]bool{shared: true},
		linked: map[string]bool{shared: true},
		copied: map[string]bool{first.answer.Lead.ID: true, shared: true},
	}
	_, err := newEraser(w.log, withoutFaults(kept)).eraseLead(t.Context(), owner, first.answer.Lead.ID)
	require.NoError(t, err)
	require.Equal(t, map[string]bool{shared: true}, kept.copied)
	require.Equal(t, map[string]bool{shared: true}, kept.keys)
}

func TestEraseLead_LeadNotFoundAfterwards(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.process()
	first := w.capture(p, `{"phone":"+919876500077","name":"Asha","metadata":{"source":"website"}}`, "key")
	require.NoError(t, first.err)
	id := first.answer.Lead.ID
	handlers := newEraser(w.log, withoutFaults(&externalData{}))
	_, err := handlers.eraseLead(t.Context(), command.Caller{Account: "globex"}, id)
	require.ErrorIs(t, err, lead.ErrNotFound)
	_, err = handlers.eraseLead(t.Context(), owner, "no id")
	require.ErrorIs(t, err, lead.ErrNotFound)
	done, err := handlers.eraseLead(t.Context(), owner, id)
	require.NoError(t, err)
	require.False(t, done.Again)
	require.Equal(t, 1, done.Claims)
	_, err = p.UpdateLead(t.Context(), command.UpdateLead{Caller: owner, LeadID: id, Body: members(`{"name":"B"}`)})
	require.ErrorIs(t, err, lead.ErrNotFound)
	_, err = p.ReleaseContact(t.Context(), command.ReleaseContact{
		Caller: owner, LeadID: id, Body: members(`{"phone":"+919876500077"}`),
	})
	require.ErrorIs(t, err, lead.ErrNotFound)
	repeated := w.capture(p, `{"phone":"+919876500077","name":"Asha","metadata":{"source":"website"}}`, "key")
	require.ErrorIs(t, repeated.err, command.ErrErased)
	again := w.capture(p, `{"phone":"+919876500077","name":"Asha","metadata":{"source":"website"}}`, "")
	require.NoError(t, again.err)
	require.NotEqual(t, id, again.answer.Lead.ID)
	var types []string
	for _, r := range w.events() {
		if r.Stream == event.LeadStream(id) {
			types = append(types, r.Type)
			require.False(t, r.Type == (event.LeadErased{}).EventType() && r.Metadata.IP != "",
				"the erasure has no IP address")
		}
	}
	require.Equal(t, []string{"lead.created.v1", "lead.erased.v1"}, types)
}

// An erasure must be the last event of a stream, because readers look for it there only.
func TestEraseLead_EndsItsStream(t *testing.T) {
	t.Parallel()
	p, log := startCounted(t)
	const body = `{"phone":"+919876500001","email":"asha@example.com","visitorId":"v","metadata":{"source":"website"}}`
	erased, other := p.captured(t, body).Lead.ID, p.captured(t, `{"phone":"+919876500002"}`).Lead.ID
	_, err := p.eraseLead(t.Context(), erased)
	require.NoError(t, err)
	p.captured(t, body)
	for _, id := range []string{erased, other} {
		_, err = p.UpdateLead(t.Context(), command.UpdateLead{
			Caller: owner, LeadID: erased, Body: members(`{"name":"A"}`),
		})
		require.ErrorIs(t, err, lead.ErrNotFound)
		_, err = p.ReleaseContact(t.Context(), command.ReleaseContact{
			Caller: owner, LeadID: erased, Body: members(`{"phone":"+919876500001"}`),
		})
		require.ErrorIs(t, err, lead.ErrNotFound)
		_, err = p.JoinLeads(t.Context(), command.JoinLeads{
			Caller: owner, LeadID: id, Body: members(`{"from":"` + erased + `"}`),
		})
		require.Error(t, err)
		_, err = p.eraseLead(t.Context(), erased)
		require.NoError(t, err)
	}
	last, err := log.Last(t.Context(), event.LeadStream(erased))
	require.NoError(t, err)
	require.Equal(t, event.LeadErased{}.EventType(), last.Type)
}
