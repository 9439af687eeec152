package query_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/query"
)

// unreachable returns a Reader whose database is unreachable.
func unreachable(t *testing.T) *query.Reader {
	t.Helper()
	pool := pgtest.Pool(t, "postgres://nobody@127.0.0.1:1/none")
	return query.New(pool, projectiontest.New(t).Store)
}

func TestReader_InvalidIDNotFound(t *testing.T) {
	t.Parallel()
	reader, ctx := unreachable(t), t.Context()
	for _, id := range []string{
		"", "x", "\x00", "01KAJ8Q6ZJ000000000000000\x00", strings.Repeat("0", 64<<10), "01kaj8q6zj0000000000000001",
		"81KAJ8Q6ZJ0000000000000001", "01KAJ8Q6ZJ000000000000000U", "01KAJ8Q6ZJ000000000000000\xff",
		"' OR true --              ",
	} {
		for name, read := range map[string]func() error{
			"lead":         func() error { _, err := reader.Lead(ctx, "acme", id); return err },
			"lead sources": func() error { _, err := reader.LeadSources(ctx, "acme", id, firstPage); return err },
			"lead events":  func() error { _, err := reader.LeadEvents(ctx, "acme", id, firstPage); return err },
			"activity":     func() error { _, err := reader.LeadActivity(ctx, "acme", id, firstPage); return err },
			"token":        func() error { _, err := reader.Token(ctx, "acme", id); return err },
			"token events": func() error { _, err := reader.TokenEvents(ctx, "acme", id, firstPage); return err },
			"endpoint":     func() error { _, err := reader.Endpoint(ctx, "acme", id); return err },
		} {
			require.ErrorIs(t, read(), query.ErrNotFound, "%s %.40q", name, id)
		}
	}
	for _, id := range []string{"", "a b", "a\x00", strings.Repeat("a", 65), "é"} {
		_, err := reader.Account(ctx, id)
		require.ErrorIs(t, err, query.ErrNotFound)
	}
}

func TestReader_DatabaseUnavailable(t *testing.T) {
	t.Parallel()
	reader, ctx := unreachable(t), t.Context()
	const id = "01KAJ8Q6ZJ0000000000000001"
	for name, read := range map[string]func() error{
		"waiting":      func() error { return reader.WaitFor(ctx, 1, query.LeadView) },
		"leads":        func() error { _, err := reader.Leads(ctx, "acme", query.LeadFilter{}, firstPage); return err },
		"lead":         func() error { _, err := reader.Lead(ctx, "acme", id); return err },
		"lead sources": func() error { _, err := reader.LeadSources(ctx, "acme", id, firstPage); return err },
		"activity":     func() error { _, err := reader.LeadActivity(ctx, "acme", id, firstPage); return err },
		"refused": func() error {
			_, err := reader.Refused(ctx, "acme", query.RefusedFilter{}, firstPage)
			return err
		},
		"tokens":       func() error { _, err := reader.Tokens(ctx, "acme", firstPage); return err },
		"token":        func() error { _, err := reader.Token(ctx, "acme", id); return err },
		"token events": func() error { _, err := reader.TokenEvents(ctx, "acme", id, firstPage); return err },
		"endpoints":    func() error { _, err := reader.Endpoints(ctx, "acme", firstPage); return err },
		"account":      func() error { _, err := reader.Account(ctx, "acme"); return err },
		"position":     func() error { _, err := reader.Position(ctx, query.LeadView); return err },
		"to announce":  func() error { _, err := reader.TokensToAnnounce(ctx, time.Hour, 1); return err },
		"export": func() error {
			for _, err := range reader.AuditTokensAll(ctx, "acme", query.AuditFilter{}) {
				return err
			}
			return nil
		},
	} {
		require.ErrorIs(t, read(), eventstore.ErrUnavailable, name)
	}
}

func TestReader_WaitFor(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	reader := query.New(w.Pool, w.Store)
	position := w.Append(t, "acme", event.AccountStream("acme"), event.AccountConfigured{
		Stages: []string{"new"}, Region: "IN",
	})

	pgtest.Exec(t, w.Pool,
		`INSERT INTO views.checkpoint (projector, version, epoch, position, updated_at)
			VALUES ('another', 1, 'log', 1000, now())`)
	reader.Timeout(20 * time.Millisecond)
	require.ErrorIs(t, reader.WaitFor(t.Context(), position, query.AccountView), query.ErrBehind, "no checkpoint yet")

	reader.Timeout(projectiontest.Soon)
	projectiontest.Run(t, w.Runner(t))
	views := []string{
		query.LeadView, query.TouchView, query.TokenView, query.TokenEventView, query.AccountView, query.EndpointView,
	}
	require.NoError(t, reader.WaitFor(t.Context(), position, views...))
	got, err := reader.Account(t.Context(), "acme")
	require.NoError(t, err)
	require.Equal(t, []string{"new"}, got.Stages)

	require.ErrorIs(t, reader.WaitFor(t.Context(), position+1, query.AccountView), eventstore.ErrUnknownPosition)
	require.ErrorIs(t, reader.WaitFor(t.Context(), 1<<64-1, query.AccountView), eventstore.ErrUnknownPosition)
}

func TestReader_RunningWithRunner(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	reader := query.New(w.Pool, w.Store)
	running := func() bool {
		is, err := reader.Running(t.Context(), query.LeadView)
		require.NoError(t, err)
		return is
	}
	require.False(t, running())
	stop := projectiontest.Run(t, w.Runner(t))
	require.Eventually(t, running, projectiontest.Soon, 10*time.Millisecond)
	stop()
	require.Eventually(t, func() bool { return !running() }, projectiontest.Soon, 10*time.Millisecond)
}
