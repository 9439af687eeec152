package command_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/field"
)

func codes(warnings field.Warnings) (codes []string) {
	for _, one := range warnings {
		codes = append(codes, one.Field+" "+one.Code)
	}
	return codes
}

// A junk value on a thousand persons makes ten of them one lead, and none of them is refused.
func TestCaptureLeads_JunkEmailOfManyPersons(t *testing.T) {
	t.Parallel()
	const persons = 1003
	w := newWorld(t)
	p := w.process()
	var bodies []string
	for i := range persons {
		bodies = append(bodies,
			fmt.Sprintf(`{"phone":"+9198765%05d","email":"test@test.com","metadata":{"source":"website"}}`, i+10))
	}
	leads, warned := map[string]int{}, 0
	for _, outcome := range p.captureAll(t, t.Context(), owner, bodies) {
		require.NoError(t, outcome.Err)
		leads[outcome.Lead.ID]++
		require.Equal(t, "test@test.com", outcome.Lead.Email, "a lead shows what it came with")
		if slices.Equal(codes(outcome.Warnings), []string{"email SHARED_CONTACT"}) {
			warned++
		}
	}
	require.Len(t, leads, persons-9)
	require.Equal(t, persons-10, warned)
	again := w.capture(p, bodies[persons-1], "")
	require.NoError(t, again.err)
	require.True(t, again.answer.Merged)
	require.Equal(t, 1, leads[again.answer.Lead.ID], "a person who comes again is found by the phone")
	alone := w.capture(p, `{"email":"test@test.com","metadata":{"source":"website"}}`, "")
	require.Equal(t, 10, leads[alone.answer.Lead.ID], "the email alone finds the lead that has it")
}

// A change of the settings counts from its answer on, whatever a process has cached.
func TestCaptureLead_IgnoredAndSharedSettings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p, other := w.process(), w.process()
	const junk = `{"phone":"+9198765001%02d","email":"test@test.com","metadata":{"source":"website"}}`
	first := w.capture(p, fmt.Sprintf(junk, 1), "")
	require.NoError(t, first.err)
	other.configure(t, account.Settings{Features: []string{account.FeatureAPI}, SharedAfter: new(1)})
	second := w.capture(p, fmt.Sprintf(junk, 2), "key")
	require.NoError(t, second.err)
	require.False(t, second.answer.Merged)
	require.Equal(t, []string{"email SHARED_CONTACT"}, codes(second.answer.Warnings))
	require.Equal(t, "test@test.com", second.answer.Lead.Email)

	replayed := w.capture(other, fmt.Sprintf(junk, 2), "key")
	require.True(t, replayed.answer.Replayed)
	require.Equal(t, second.answer.Warnings, replayed.answer.Warnings)

	other.configure(t, account.Settings{
		Features: []string{account.FeatureAPI}, IgnoredContacts: []string{"Test@Test.com"},
	})
	third := w.capture(p, fmt.Sprintf(junk, 3), "")
	require.NoError(t, third.err)
	require.Equal(t, []string{"email IGNORED_CONTACT"}, codes(third.answer.Warnings))
	require.Empty(t, third.answer.Lead.Email)
	only := w.capture(p, `{"email":"test@test.com"}`, "")
	require.Equal(t, field.Errors{{Field: "email", Message: "is on the account's list of ignored contacts"}}, only.err)

	admission, err := p.directory.Admit(t.Context(), owner)
	require.NoError(t, err)
	dry, err := p.CaptureLead(t.Context(), command.CaptureLead{
		Admission: admission, Body: members(fmt.Sprintf(junk, 4)), DryRun: true,
	})
	require.NoError(t, err)
	require.Equal(t, []string{"email IGNORED_CONTACT"}, codes(dry.Warnings))
}
