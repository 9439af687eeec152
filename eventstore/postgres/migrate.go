package postgres

import (
	"context"
	"embed"
	"errors"

	"github.com/leadlog/leadlog/eventstore/migration"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

var logSchema = migration.Schema{Name: "log", Holds: "the log", Files: migrationFiles}

// Migrate brings the log's schema up to date, creating it in an empty database. Processes that migrate at the same
// time wait for each other.
func Migrate(ctx context.Context, url string) error { return logSchema.Up(ctx, url) }

// Current says, as migration.ErrOld or ErrNew, that this program and the database's log do not belong together.
func (s *Store) Current(ctx context.Context) error {
	err := logSchema.Current(ctx, s.pool)
	if err == nil || errors.Is(err, migration.ErrOld) || errors.Is(err, migration.ErrNew) {
		return err
	}
	return unavailable(ctx, err)
}
