package postgres

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// versionTable says which migrations the schema has seen.
const versionTable = "log.migration"

var (
	// ErrSchemaOld says that the database's log is older than this program, or not there. Migrate brings it up to date.
	ErrSchemaOld = errors.New("the log's schema is older than this program: run leadlog migrate")

	// ErrSchemaNew says that a newer program has migrated the log: this one does not know what it would break.
	ErrSchemaNew = errors.New("the log's schema is newer than this program: update leadlog")
)

// Migrate brings the log's schema up to date, creating it in an empty database. Processes that migrate at the same
// time wait for each other.
func Migrate(ctx context.Context, url string) error {
	config, err := pgxpool.ParseConfig(url) // knows the pool_ parameters, which the server does not
	if err != nil {
		return fmt.Errorf("database address: %w", err)
	}
	db := stdlib.OpenDB(*config.ConnConfig)
	defer db.Close()
	if err := createSchema(ctx, db); err != nil {
		return fmt.Errorf("create the log's schema: %w", err)
	}
	migrations, err := migrations(db)
	if err != nil {
		return err
	}
	if _, err := migrations.Up(ctx); err != nil {
		return fmt.Errorf("migrate the log: %w", err)
	}
	return nil
}

// createSchema makes the house of the version table. IF NOT EXISTS alone can fail when two sessions race.
func createSchema(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('leadlog create schema log', 0))`); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `CREATE SCHEMA IF NOT EXISTS log`); err != nil {
		return err
	}
	return tx.Commit()
}

func migrations(db *sql.DB) (*goose.Provider, error) {
	files, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		return nil, err
	}
	// Every second, for five minutes.
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 300))
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectPostgres, db, files,
		goose.WithTableName(versionTable), goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true))
}

// Current says, as ErrSchemaOld or ErrSchemaNew, that this program and the database's schema do not belong together.
func (s *Store) Current(ctx context.Context) error {
	want, err := newestMigration()
	if err != nil {
		return err
	}
	var have int64
	err = s.pool.QueryRow(ctx, `SELECT coalesce(max(version_id) FILTER (WHERE is_applied), 0) FROM `+versionTable).Scan(&have)
	if missing(err) {
		have, err = 0, nil
	}
	switch {
	case err != nil:
		return unavailable(ctx, err)
	case have < want:
		return fmt.Errorf("%w (it is at %d, needed is %d)", ErrSchemaOld, have, want)
	case have > want:
		return fmt.Errorf("%w (it is at %d, known is %d)", ErrSchemaNew, have, want)
	}
	return nil
}

func newestMigration() (int64, error) {
	files, err := fs.Glob(migrationFiles, "migrations/*.sql")
	if err != nil {
		return 0, err
	}
	return goose.NumericComponent(slices.Max(files))
}

// missing tells that a table or its schema is not there.
func missing(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "42P01" || pg.Code == "3F000")
}
