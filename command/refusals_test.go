package command_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore/event"
)

// Another process changes the owners of the phone and the email before each call of a capture in turn. The outcome is
// one of a moment: the phone and the email never belong to two leads at the same time.
func TestCapture_RefusalOfOneMoment(t *testing.T) {
	t.Parallel()
	const body = `{"phone":"+919876500001","email":"new@example.com"}`
	for at, reached := 0, true; reached; at++ {
		w := newWorld(t)
		first, other := w.results[0].answer.Lead.ID, w.process()
		passed := 0
		p := w.processOn(killableStore{w.log, func() error {
			if passed++; passed == at+1 {
				_, err := other.ReleaseContact(t.Context(), command.ReleaseContact{
					Caller: owner, LeadID: first, Body: members(`{"phone":"+919876500001"}`),
				})
				return errors.Join(err,
					w.capture(other, `{"email":"new@example.com","metadata":{"source":"website"}}`, "").err)
			}
			return nil
		}})
		outcome := w.capture(p, body, "key")
		reached = passed > at
		var refused *command.LeadRefused
		if errors.As(outcome.err, &refused) {
			require.Equal(t, lead.CodeDuplicateSource, refused.Fact.Code, "step %d: %v", at, refused)
			require.Equal(t, first, refused.Fact.LeadID)
		} else {
			require.NoError(t, outcome.err, "step %d", at)
		}
	}
}

// Another process releases the email of a second lead before each call of a capture in turn. Only a merge before the
// release leaves the email with that lead.
func TestCapture_ClashOfOneMoment(t *testing.T) {
	t.Parallel()
	const body = `{"phone":"+919876500002","email":"three@example.com","metadata":{"source":"website"}}`
	for at, reached := 0, true; reached; at++ {
		w := newWorld(t)
		third, other := w.results[2].answer.Lead.ID, w.process()
		require.NoError(t,
			w.capture(other, `{"phone":"+919876500003","email":"three@example.com","metadata":{"source":"website"}}`,
				"").err)
		passed := 0
		p := w.processOn(killableStore{w.log, func() error {
			if passed++; passed == at+1 {
				_, err := other.ReleaseContact(t.Context(), command.ReleaseContact{
					Caller: owner, LeadID: third, Body: members(`{"email":"three@example.com"}`),
				})
				return err
			}
			return nil
		}})
		require.NoError(t, w.capture(p, body, "").err, "step %d", at)
		reached = passed > at
		released := false
		for _, r := range w.events() {
			fact, err := r.Fact()
			require.NoError(t, err)
			switch data := fact.Data.(type) {
			case event.LeadReleased:
				released = true
			case event.LeadMerged:
				require.False(t, released && data.EmailHeldBy != "", fmt.Sprint("step ", at))
			}
		}
	}
}
