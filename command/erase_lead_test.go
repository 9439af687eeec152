package command_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/forget"
)

func (e eraser) deleteVisitor(ctx context.Context, caller command.Caller, id string) (forget.VisitorForgotten, error) {
	return e.DeleteVisitor(ctx, e.Erasure(caller), id)
}

// oblivion is what an erasure does away with, for a test: keys by stream, visitors that are shown, and copies.
type oblivion struct {
	mu     sync.Mutex
	keys   map[string]bool
	shown  map[string]bool
	linked map[string]bool               // of visitors, with another lead too
	copied map[string]bool               // by lead, or by the stream of a visitor
	posted func(leads []string) []string // arrivals of leads that are shown as kept; nil: none
}

// forgetting is an oblivion as one process sees it: step is asked before each thing that it does, and stops the process.
type forgetting struct {
	*oblivion
	step func() error
	forget.Keys
	forget.Views
}

// unstopped is the oblivion of a process that nothing stops.
func unstopped(of *oblivion) forgetting {
	return forgetting{oblivion: of, step: func() error { return nil }}
}

// eraser appends to a log, and erases outside of it.
type eraser struct {
	*command.Handlers
	forget.Eraser
}

// erased is where an eraser erases outside of the log.
type erased interface {
	forget.Keys
	forget.Views
}

func newEraser(store eventstore.Store, outside erased) eraser {
	return eraser{
		command.NewHandlers(command.Options{Store: store, Claims: claim.NewNames(claimKey()), Log: quiet()}),
		forget.Eraser{Keys: outside, Views: outside},
	}
}

func (e eraser) eraseLead(ctx context.Context, caller command.Caller, id string) (forget.LeadErased, error) {
	return e.EraseLead(ctx, e.Erasure(caller), id)
}

func (f forgetting) do(change func()) error {
	if err := f.step(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	return nil
}

func (f forgetting) Destroy(_ context.Context, streams ...string) error {
	return f.do(func() {
		for _, stream := range streams {
			delete(f.keys, stream)
		}
	})
}

func (f forgetting) Commitments(_ context.Context, streams ...string) (map[string][]string, error) {
	found := map[string][]string{}
	return found, f.do(func() {
		for _, stream := range streams {
			if f.keys[stream] {
				found[stream] = []string{"hash of the key of " + stream}
			}
		}
	})
}

func (f forgetting) Expel(context.Context, ...string) error { return f.do(func() {}) }

func (f forgetting) Await(context.Context, eventstore.Position) error { return f.do(func() {}) }

func (f forgetting) Linked(_ context.Context, _ string, streams []string, _ eventstore.Position) (map[string]bool, error) {
	linked := map[string]bool{}
	return linked, f.do(func() {
		for _, stream := range streams {
			if f.shown[stream] {
				linked[stream] = f.linked[stream]
			}
		}
	})
}

func (f forgetting) Arrivals(_ context.Context, _ string, leads []string) (ids []string, err error) {
	return ids, f.do(func() {
		if f.posted != nil {
			ids = f.posted(leads)
		}
	})
}

func (f forgetting) Sweep(_ context.Context, gone forget.Forgotten) error {
	return f.do(func() {
		for _, id := range slices.AppendSeq(slices.Clone(gone.Leads), maps.Keys(gone.Visitors)) {
			delete(f.copied, id)
		}
	})
}

func (forgetting) Withdraw(context.Context, string, []eventstore.Position) error {
	return errors.New("no visitor is forgotten in part with a lead")
}

// A process is stopped before each single step of an erasure in turn. Repeating it finishes it; and the person
// may come again at any point, as the lead that was there or as a new one.
func TestEraseLead_ResumesAfterStop(t *testing.T) {
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
		posted, err := w.process().ReceiveArrival(t.Context(), arriving(`{"phone":"+919876500077"}`))
		require.NoError(t, err)
		gone := &oblivion{
			posted: func(leads []string) []string {
				if state := w.arrival(posted.ID); slices.Contains(leads, state.LeadID) && !state.Deleted {
					return []string{posted.ID}
				}
				return nil
			},
			keys:  map[string]bool{event.LeadStream(id): true, event.ArrivalStream(posted.ID): true, visitors[0]: true, visitors[1]: true},
			shown: map[string]bool{visitors[0]: true, visitors[1]: true}, copied: map[string]bool{id: true, visitors[0]: true, visitors[1]: true},
		}
		erase := func(step func() error) (forget.LeadErased, error) {
			store := stoppable{w.log, step}
			done, err := newEraser(store, forgetting{oblivion: gone, step: step}).eraseLead(t.Context(), owner, id)
			// The views follow the log: a visitor that was forgotten is not shown any more.
			for _, r := range w.events() {
				if r.Type == (event.VisitorForgotten{}).EventType() {
					delete(gone.shown, r.Stream)
				}
			}
			return done, err
		}
		left := stops
		_, err = erase(func() error {
			if left--; left < 0 {
				return errKilled
			}
			return nil
		})
		if err == nil {
			break
		}
		require.ErrorIs(t, err, errKilled)

		again := w.capture(w.process(), body, "")
		if again.err != nil { // the lead is there still, and has this source
			require.ErrorAs(t, again.err, new(*command.LeadRefused))
		} else {
			require.NotEqual(t, id, again.answer.Lead.ID, "stop %d", stops)
		}
		_, err = erase(func() error { return nil })
		require.NoError(t, err, "stop %d", stops)
		require.Empty(t, gone.keys, "stop %d", stops)
		require.Empty(t, gone.shown, "stop %d", stops)
		require.Empty(t, gone.copied, "stop %d", stops)
		require.Equal(t, event.DiscardedErased, w.arrival(posted.ID).Discarded)
		log := w.events()
		at := slices.IndexFunc(log, func(r eventstore.Recorded) bool { return r.Type == event.LeadErased{}.EventType() })
		fact, err := log[at].Fact()
		require.NoError(t, err)
		require.Equal(t, []event.KeyCommitment{{LeadID: id, Commitment: "hash of the key of " + event.LeadStream(id)}},
			fact.Data.(event.LeadErased).KeyCommitments, "the fact was appended while there was a key")
		require.Empty(t, w.arrival(posted.ID).LeadID)
		done, err := erase(func() error { return nil })
		require.NoError(t, err)
		require.True(t, done.Again)
		for stream, c := range w.held() {
			require.NotEqual(t, id, c.Holder, "stop %d: %s", stops, stream)
		}
	}
	require.Greater(t, stops, 8)
}

// A lead that was joined into an erased lead, directly or not, is erased with it.
func TestEraseLead_WithItsParts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.process()
	var ids []string
	w.gone.keys = map[string]bool{}
	for _, c := range w.arrived {
		ids = append(ids, c.answer.Lead.ID)
		w.gone.keys[event.LeadStream(c.answer.Lead.ID)] = true
	}
	for i, into := range ids[1:] {
		_, err := p.JoinLeads(t.Context(), command.JoinLeads{Caller: owner, LeadID: into, Body: members(`{"from":"` + ids[i] + `"}`)})
		require.NoError(t, err)
	}
	_, err := p.eraseLead(t.Context(), ids[2])
	require.NoError(t, err)
	for stream, there := range w.gone.keys {
		require.False(t, there, stream)
	}
}

// What a visitor did stays, in copies too, while another lead is linked with it.
func TestEraseLead_KeepsSharedVisitors(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	names := claim.NewNames(claimKey())
	shared := names.Visitor("acme", "v-1")
	first := w.capture(w.process(), `{"phone":"+919876500077","visitorId":"v-1"}`, "")
	require.NoError(t, first.err)
	kept := &oblivion{
		keys: map[string]bool{shared: true}, shown: map[string]bool{shared: true}, linked: map[string]bool{shared: true},
		copied: map[string]bool{first.answer.Lead.ID: true, shared: true},
	}
	_, err := newEraser(w.log, unstopped(kept)).eraseLead(t.Context(), owner, first.answer.Lead.ID)
	require.NoError(t, err)
	require.Equal(t, map[string]bool{shared: true}, kept.copied)
	require.Equal(t, map[string]bool{shared: true}, kept.keys)
}

func TestEraseLead_EndsStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.process()
	first := w.capture(p, `{"phone":"+919876500077","name":"Asha","metadata":{"source":"website"}}`, "key")
	require.NoError(t, first.err)
	id := first.answer.Lead.ID
	handlers := newEraser(w.log, unstopped(&oblivion{}))
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
	_, err = p.ReleaseContact(t.Context(), command.ReleaseContact{Caller: owner, LeadID: id, Body: members(`{"phone":"+919876500077"}`)})
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
			require.False(t, r.Type == (event.LeadErased{}).EventType() && r.Metadata.IP != "", "nothing of where from")
		}
	}
	require.Equal(t, []string{"lead.created.v1", "lead.erased.v1"}, types)
}

// Readers look for an erasure at the end of a stream alone.
func TestEraseLead_EndsItsStream(t *testing.T) {
	t.Parallel()
	p, log := startCounted(t)
	const body = `{"phone":"+919876500001","email":"asha@example.com","visitorId":"v","metadata":{"source":"website"}}`
	erased, other := p.captured(t, body).Lead.ID, p.captured(t, `{"phone":"+919876500002"}`).Lead.ID
	_, err := p.eraseLead(t.Context(), erased)
	require.NoError(t, err)
	p.captured(t, body)
	for _, id := range []string{erased, other} {
		_, err = p.UpdateLead(t.Context(), command.UpdateLead{Caller: owner, LeadID: erased, Body: members(`{"name":"A"}`)})
		require.ErrorIs(t, err, lead.ErrNotFound)
		_, err = p.ReleaseContact(t.Context(), command.ReleaseContact{Caller: owner, LeadID: erased, Body: members(`{"phone":"+919876500001"}`)})
		require.ErrorIs(t, err, lead.ErrNotFound)
		_, err = p.JoinLeads(t.Context(), command.JoinLeads{Caller: owner, LeadID: id, Body: members(`{"from":"` + erased + `"}`)})
		require.Error(t, err)
		_, err = p.eraseLead(t.Context(), erased)
		require.NoError(t, err)
	}
	last, err := log.Last(t.Context(), event.LeadStream(erased))
	require.NoError(t, err)
	require.Equal(t, event.LeadErased{}.EventType(), last.Type)
}
