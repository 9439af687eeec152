package eventstore_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
)

func TestBackground_PausesAndLogs(t *testing.T) {
	t.Parallel()
	away, full := errors.New("away"), errors.New("full")
	runs := []struct {
		more  bool
		err   error
		pause time.Duration // after it
		log   string
	}{
		{true, nil, 0, ""},
		{false, nil, time.Minute, ""},
		{false, away, time.Second, "WARN background work failed, retrying (away)"},
		{false, away, time.Second, ""},
		{true, away, time.Minute, ""}, // a part has failed
		{false, full, time.Second, "WARN background work failed, retrying (full)"},
		{true, nil, 0, "INFO background work succeeds again"},
		{false, nil, time.Minute, ""},
		{false, full, time.Second, "WARN background work failed, retrying (full)"},
	}
	synctest.Test(t, func(t *testing.T) {
		var written bytes.Buffer
		ctx, cancel := context.WithCancel(t.Context())
		n, last := 0, time.Now()
		b := eventstore.Background{
			Work: "sweep", Interval: time.Minute, Retry: time.Second, Log: slog.New(slog.NewTextHandler(&written, nil)),
		}
		b.Run(ctx, func(context.Context) (bool, error) {
			if n > 0 {
				require.Equal(t, runs[n-1].pause, time.Since(last), "after run %d", n-1)
			}
			if n == len(runs) {
				cancel()
				return false, errors.New("the service stops")
			}
			last = time.Now()
			n++
			return runs[n-1].more, runs[n-1].err
		})
		var want []string
		for _, run := range runs {
			if run.log != "" {
				want = append(want, run.log)
			}
		}
		var got []string
		for line := range strings.Lines(written.String()) {
			_, line, _ = strings.Cut(strings.TrimSpace(line), "level=")
			level, line, _ := strings.Cut(line, ` msg="`)
			message, rest, _ := strings.Cut(line, `" work=sweep`)
			if cause, failed := strings.CutPrefix(rest, " error="); failed {
				message += " (" + cause + ")"
			}
			got = append(got, level+" "+message)
		}
		require.Equal(t, want, got)
	})
}
