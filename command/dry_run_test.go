package command_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
)

func TestDryRun_EqualsCapture(t *testing.T) {
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
			dryRun, dryRunErr := p.CaptureLead(t.Context(), cmd)
			after, err := log.Head(t.Context())
			require.NoError(t, err)
			require.Equal(t, before, after, "a dry run appends nothing")
			cmd.DryRun = false
			captured, capturedErr := p.CaptureLead(t.Context(), cmd)
			requireSameOutcome(t, body, captured, capturedErr, dryRun, dryRunErr)
		}
	}
}

func requireSameOutcome(
	t *testing.T, body string, captured command.LeadCaptured, capturedErr error, dryRun command.LeadCaptured, err error,
) {
	t.Helper()
	var dryRunRefused, captureRefused *command.LeadRefused
	if errors.As(err, &dryRunRefused) {
		require.ErrorAs(t, capturedErr, &captureRefused, body)
		require.Equal(t, captureRefused.Fact, dryRunRefused.Fact)
		return
	}
	require.Equal(t, capturedErr, err, body)
	require.Equal(t, captured.Merged, dryRun.Merged, body)
	if dryRun.Lead.ID == "" {
		require.False(t, captured.Merged)
		return
	}
	require.Equal(t, captured.Lead.ID, dryRun.Lead.ID, body)
}
