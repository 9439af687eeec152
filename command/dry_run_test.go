package command_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
)

func TestDryRun_ForeseesTheCapture(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", "key"} {
		for _, body := range []string{
			`{"phone":"+919876500001"}`,
			`{"email":"one@example.com","phone":"+919876500009"}`,
			`{"phone":"+919876500009","email":"new@example.com"}`,
			`{"phone":"+919876500001","email":"three@example.com","metadata":{"source":"api"}}`,
			`{"phone":"+919876500002","metadata":{"source":"website"}}`,
		} {
			p, log := startCounted(t)
			for _, before := range []string{
				`{"phone":"+919876500001","email":"one@example.com"}`,
				`{"phone":"+919876500002","metadata":{"source":"website"}}`,
				`{"email":"three@example.com"}`,
			} {
				p.captured(t, before)
			}
			admission, err := p.directory.Admit(t.Context(), owner)
			require.NoError(t, err)
			before, err := log.Head(t.Context())
			require.NoError(t, err)
			cmd := command.CaptureLead{Admission: admission, Body: members(body), IdempotencyKey: key, DryRun: true}
			foreseen, foreseenErr := p.CaptureLead(t.Context(), cmd)
			after, err := log.Head(t.Context())
			require.NoError(t, err)
			require.Equal(t, before, after, "it writes nothing")
			cmd.DryRun = false
			came, cameErr := p.CaptureLead(t.Context(), cmd)
			requireForeseen(t, body, came, cameErr, foreseen, foreseenErr)
		}
	}
}

func requireForeseen(t *testing.T, body string, came command.LeadCaptured, cameErr error, foreseen command.LeadCaptured, err error) {
	t.Helper()
	var refusedThen, refusedNow *command.LeadRefused
	if errors.As(err, &refusedThen) {
		require.ErrorAs(t, cameErr, &refusedNow, body)
		require.Equal(t, refusedNow.Fact, refusedThen.Fact)
		return
	}
	require.Equal(t, cameErr, err, body)
	require.Equal(t, came.Merged, foreseen.Merged, body)
	if foreseen.Lead.ID == "" {
		require.False(t, came.Merged)
		return
	}
	require.Equal(t, came.Lead.ID, foreseen.Lead.ID, body)
}
