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
	"github.com/leadlog/leadlog/eventstore"
)

// watched notes what a process asks of its log.
type watched struct {
	eventstore.Store
	mu   sync.Mutex
	what []string
}

func (w *watched) note(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.what = append(w.what, what)
}

func (w *watched) Append(ctx context.Context, writes ...eventstore.Write) (eventstore.Position, error) {
	position, err := w.Store.Append(ctx, writes...)
	if eventstore.Conflict(err) != nil {
		w.note("refused append")
	} else {
		w.note("append")
	}
	return position, err
}

func (w *watched) Read(ctx context.Context, stream string, from eventstore.Revision) iter.Seq2[eventstore.Recorded, error] {
	kind, _, _ := strings.Cut(stream, "-")
	w.note(kind)
	return w.Store.Read(ctx, stream, from)
}

// of is what is asked for while something is done.
func (w *watched) of(do func()) []string {
	w.mu.Lock()
	w.what = nil
	w.mu.Unlock()
	do()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.what
}

func TestHolderCache_SavesReads(t *testing.T) {
	t.Parallel()
	url := database(t)
	var log *watched
	p := startOn(t, url, func(below eventstore.Store) eventstore.Store {
		log = &watched{Store: below}
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
		require.Equal(t, []string{"lead", "append"}, log.of(func() { arrive(p, body) }), "of one who was here lately")
	}
	require.Equal(t, []string{"lead", "claim", "claim", "append"}, log.of(func() {
		arrive(p, `{"phone":"9876543210","email":"second@example.com","metadata":{"source":"website"}}`)
	}), "of one who was here lately, and brings an email that is new")
	require.Equal(t, []string{"lead", "append"}, log.of(func() { arrive(p, `{"email":"second@example.com","metadata":{"source":"website"}}`) }))

	other := startOn(t, url, func(below eventstore.Store) eventstore.Store {
		log = &watched{Store: below}
		return log
	})
	_, err := other.directory.Admit(t.Context(), owner)
	require.NoError(t, err)
	both := `{"phone":"9876543210","email":"asha@example.com","metadata":{"source":"website"}}`
	require.Equal(t, []string{"refused append", "claim", "lead", "append"}, log.of(func() { arrive(other, both) }), "of one who was not here")
	require.Equal(t, []string{"lead", "append"}, log.of(func() { arrive(other, both) }), "and the next time")
}

// What a process remembers of persons is a guess. Whatever others did to the leads meanwhile, the outcome is that of a
// process which has an empty cache.
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
	for says, meanwhile := range map[string]func(t *testing.T, p process, id string) (want string){
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
		"the lead is part of another": func(t *testing.T, p process, id string) string {
			into := capture(t, p, `{"phone":"9876500000","metadata":{"source":"website"}}`).Lead.ID
			_, err := p.JoinLeads(t.Context(), command.JoinLeads{Caller: owner, LeadID: into, Body: members(fmt.Sprintf(`{"from":%q}`, id))})
			require.NoError(t, err)
			return into
		},
		"the person was forgotten": func(t *testing.T, p process, id string) string {
			_, err := newEraser(p.store, unstopped(&oblivion{})).eraseLead(t.Context(), owner, id)
			require.NoError(t, err)
			return "" // a new person
		},
	} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			url := database(t)
			remembers, other := start(t, url), start(t, url)
			remembers.provision(t)
			first := capture(t, remembers, both).Lead.ID
			want := meanwhile(t, other, first)
			admission, err := other.directory.Admit(t.Context(), owner)
			require.NoError(t, err)
			foreseen, err := start(t, url).CaptureLead(t.Context(), command.CaptureLead{Admission: admission, Body: members(both), DryRun: true})
			require.NoError(t, err)

			captured := capture(t, remembers, both)
			require.Equal(t, foreseen.Merged, captured.Merged)
			require.Equal(t, foreseen.Lead.Emails, captured.Lead.Emails)
			if want == "" {
				require.False(t, captured.Merged)
				require.NotEqual(t, first, captured.Lead.ID)
				return
			}
			require.Equal(t, want, captured.Lead.ID)
			require.Equal(t, foreseen.Lead.ID, captured.Lead.ID)
			require.Equal(t, foreseen.Lead.Revision, captured.Lead.Revision)
			again := capture(t, remembers, both) // the guess is a better one now
			require.Equal(t, want, again.Lead.ID)
		})
	}
}
