package command_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
)

// Whatever a killed process left on a store without transactions, a dry run leaves as it is, and foresees the very capture
// that then finishes it.
func TestADryRunForeseesWhatFollowsAKilledArrivalAndWritesNothing(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", "key"} {
		for _, stopped := range captures(key) {
			t.Run(stopped.name+" "+key, func(t *testing.T) {
				t.Parallel()
				for _, next := range shapes {
					everyPrefix(t, stopped, func(w *world, _ func(process) error) {
						p := w.process(nil)
						before := len(w.events())
						admission, err := p.directory.Admit(w.t.Context(), owner)
						require.NoError(w.t, err)
						foreseen, foreseenErr := p.CaptureLead(w.t.Context(), command.CaptureLead{
							Admission: admission, Body: members(next.body), IdempotencyKey: key, DryRun: true,
						})
						require.Len(w.t, w.events(), before)
						came := w.capture(p, next.body, key)
						requireForeseen(w.t, came, foreseen, foreseenErr)
					})
				}
			})
		}
	}
}

func requireForeseen(t *testing.T, came *arrival, foreseen command.LeadCaptured, err error) {
	t.Helper()
	var refusedThen, refusedNow *command.LeadRefused
	if errors.As(err, &refusedThen) {
		require.ErrorAs(t, came.err, &refusedNow, "%s", came.body)
		require.Equal(t, refusedNow.Fact, refusedThen.Fact)
		return
	}
	require.Equal(t, came.err, err, "%s", came.body)
	require.Equal(t, came.answer.Merged, foreseen.Merged, "%s", came.body)
	require.Equal(t, came.answer.Replayed, foreseen.Replayed, "%s", came.body)
	if foreseen.Lead.ID == "" {
		require.False(t, came.answer.Merged)
		return
	}
	require.Equal(t, came.answer.Lead.ID, foreseen.Lead.ID, "%s", came.body)
}
