package command_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/eventstore"
)

// tracedStore records the calls of a process.
type tracedStore struct {
	eventstore.Store
	mu    sync.Mutex
	calls []string
}

func (s *tracedStore) record(call string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, call)
}

func (s *tracedStore) Append(ctx context.Context, writes ...eventstore.Write) (eventstore.Position, error) {
	position, err := s.Store.Append(ctx, writes...)
	if eventstore.Conflict(err) != nil {
		s.record("conflicting append")
	} else {
		s.record("append")
	}
	return position, err
}

func (s *tracedStore) Read(
	ctx context.Context, stream string, from eventstore.Revision,
) iter.Seq2[eventstore.Recorded, error] {
	kind, _, _ := strings.Cut(stream, "-")
	s.record(kind)
	return s.Store.Read(ctx, stream, from)
}

// callsDuring returns the calls during do.
func (s *tracedStore) callsDuring(do func()) []string {
	s.mu.Lock()
	s.calls = nil
	s.mu.Unlock()
	do()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

func TestHolderCache_SavesReads(t *testing.T) {
	t.Parallel()
	on := inMemory()
	var log *tracedStore
	p := startOn(t, on, func(below eventstore.Store) eventstore.Store {
		log = &tracedStore{Store: below}
		return log
	})
	p.provision(t)
	arrive := func(p process, body string) {
		captured := p.captured(t, body)
		require.True(t, captured.Merged, body)
	}
	p.captured(t, `{"phone":"9876543210","email":"asha@example.com","metadata":{"source":"website"}}`)
	for _, body := range []string{
		`{"phone":"9876543210","email":"asha@example.com","metadata":{"source":"website"}}`,
		`{"phone":"9876543210","metadata":{"source":"chatbot"}}`,
		`{"email":"asha@example.com","metadata":{"source":"google_ad"}}`,
	} {
		require.Equal(t, []string{"lead", "append"}, log.callsDuring(func() { arrive(p, body) }), "a cached holder")
	}
	require.Equal(t, []string{"lead", "claim", "claim", "append"}, log.callsDuring(func() {
		arrive(p, `{"phone":"9876543210","email":"second@example.com","metadata":{"source":"website"}}`)
	}), "a cached holder and a new email")
	require.Equal(t, []string{"lead", "append"}, log.callsDuring(func() {
		arrive(p, `{"email":"second@example.com","metadata":{"source":"website"}}`)
	}))

	other := startOn(t, on, func(below eventstore.Store) eventstore.Store {
		log = &tracedStore{Store: below}
		return log
	})
	_, err := other.directory.Admit(t.Context(), owner)
	require.NoError(t, err)
	both := `{"phone":"9876543210","email":"asha@example.com","metadata":{"source":"website"}}`
	require.Equal(t, []string{"conflicting append", "claim", "lead", "append"},
		log.callsDuring(func() { arrive(other, both) }), "no cached holder")
	require.Equal(t, []string{"lead", "append"}, log.callsDuring(func() { arrive(other, both) }),
		"cached by the first capture")
}

// The cache of holders may be stale. After any change by another process, the outcome equals that of a process with an
// empty cache.
func TestHolderCache_StaleEntries(t *testing.T) {
	t.Parallel()
	const both = `{"phone":"9876543210","email":"asha@example.com","metadata":{"source":"website"}}`
	capture := func(t *testing.T, p process, body string) command.LeadCaptured {
		t.Helper()
		captured := p.captured(t, body)
		return captured
	}
	release := func(t *testing.T, p process, id, body string) {
		t.Helper()
		_, err := p.ReleaseContact(t.Context(), command.ReleaseContact{Caller: owner, LeadID: id, Body: members(body)})
		require.NoError(t, err)
	}
	for name, change := range map[string]func(t *testing.T, p process, id string) (want string){
		"nothing happened": func(_ *testing.T, _ process, id string) string { return id },
		"the phone was released": func(t *testing.T, p process, id string) string {
			release(t, p, id, `{"phone":"9876543210"}`)
			return id
		},
		"the phone is another lead's": func(t *testing.T, p process, id string) string {
			release(t, p, id, `{"phone":"9876543210"}`)
			return capture(t, p, `{"phone":"9876543210","metadata":{"source":"website"}}`).Lead.ID
		},
		"the email is another lead's": func(t *testing.T, p process, id string) string {
			release(t, p, id, `{"email":"asha@example.com"}`)
			capture(t, p, `{"email":"asha@example.com","metadata":{"source":"website"}}`)
			return id
		},
		"the lead was joined into another": func(t *testing.T, p process, id string) string {
			into := capture(t, p, `{"phone":"9876500000","metadata":{"source":"website"}}`).Lead.ID
			_, err := p.JoinLeads(t.Context(), command.JoinLeads{
				Caller: owner, LeadID: into, Body: members(fmt.Sprintf(`{"from":%q}`, id)),
			})
			require.NoError(t, err)
			return into
		},
		"the lead was erased": func(t *testing.T, p process, id string) string {
			_, err := newEraser(p.store, withoutFaults(&externalData{})).eraseLead(t.Context(), owner, id)
			require.NoError(t, err)
			return "" // a new lead
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			on := inMemory()
			cached, other := start(t, on), start(t, on)
			cached.provision(t)
			first := capture(t, cached, both).Lead.ID
			want := change(t, other, first)
			admission, err := other.directory.Admit(t.Context(), owner)
			require.NoError(t, err)
			dryRun, err := start(t, on).CaptureLead(t.Context(), command.CaptureLead{
				Admission: admission, Body: members(both), DryRun: true,
			})
			require.NoError(t, err)

			captured := capture(t, cached, both)
			require.Equal(t, dryRun.Merged, captured.Merged)
			require.Equal(t, dryRun.Lead.Emails, captured.Lead.Emails)
			if want == "" {
				require.False(t, captured.Merged)
				require.NotEqual(t, first, captured.Lead.ID)
				return
			}
			require.Equal(t, want, captured.Lead.ID)
			require.Equal(t, dryRun.Lead.ID, captured.Lead.ID)
			require.Equal(t, dryRun.Lead.Revision, captured.Lead.Revision)
			again := capture(t, cached, both) // the cache is current
			require.Equal(t, want, again.Lead.ID)
		})
	}
}

func TestFixClaimKey_RefusesOtherKey(t *testing.T) {
	t.Parallel()
	on := inMemory()
	one, same := start(t, on), start(t, on)
	for _, err := range concurrently(8, func(i int) error {
		return []process{one, same}[i%2].FixClaimKey(t.Context())
	}) {
		require.NoError(t, err)
	}
	other := command.NewHandlers(command.Options{
		Store: one.store, Claims: claim.NewNames([]byte("another")), Log: quiet(),
	})
	require.ErrorIs(t, other.FixClaimKey(t.Context()), command.ErrOtherClaimKey)
}
