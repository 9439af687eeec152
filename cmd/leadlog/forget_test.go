package main

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestForgetConfirmed_Answers(t *testing.T) {
	t.Parallel()
	require.NoError(t, confirmed(t.Context(), strings.NewReader("yes\n")))
	for _, answer := range []string{"", "yes", "no\n", "y\n", "\n"} { // without a line end, it was not typed to its end
		require.ErrorIs(t, confirmed(t.Context(), strings.NewReader(answer)), errNotConfirmed, "%q", answer)
	}
}

// The first Ctrl-C at the question once had no effect, and the second killed the process.
func TestForgetConfirmed_Interrupted(t *testing.T) {
	t.Parallel()
	terminal, typing := io.Pipe()
	defer typing.Close()
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	err := confirmed(ctx, terminal)
	require.ErrorIs(t, err, errNotConfirmed)
	require.ErrorIs(t, err, context.Canceled)
}
