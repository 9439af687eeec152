package view

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/projection/schema"
)

// A lock simulates a server that does not answer.
func TestRows_InsertTimeout(t *testing.T) {
	t.Parallel()
	config, err := pgx.ParseConfig(pgtest.Database(t))
	require.NoError(t, err)
	other, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = other.Close(context.Background()) })
	pgtest.Exec(t, other, `CREATE TABLE held (name text)`)
	pgtest.Exec(t, other, `BEGIN`)
	pgtest.Exec(t, other, `LOCK TABLE held`)

	schema.BoundBy(config, 500*time.Millisecond)
	conn, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		var r rows
		r.row(1)
		r.text("late")
		return r.insert(ctx, tx, "held", "name")
	})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, ctx.Err(), "it is not the caller's context that ended")
}
