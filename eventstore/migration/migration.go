// Package migration brings a schema in PostgreSQL up to date, and checks whether it is the one that the program knows.
package migration

import (
	"context"
	"database/sql"
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

var (
	// ErrOld says that a schema is older than this program, or not there. Up brings it up to date.
	ErrOld = errors.New("older than this program: run leadlog migrate")

	// ErrNew says that a newer program has migrated the schema, so that this one must not use it.
	ErrNew = errors.New("newer than this program: update leadlog")
)

// Schema is a schema and its migrations, which are in the directory migrations of Files. The table migration in the schema records
// which of them have been applied.
type Schema struct {
	Name  string
	Holds string // as errors call it
	Files fs.FS
}

// Up brings the schema up to date, creating it in an empty database. Processes that do so at the same time wait for each
// other.
func (s Schema) Up(ctx context.Context, url string) error {
	config, err := pgxpool.ParseConfig(url) // knows the pool_ parameters, which the server does not
	if err != nil {
		return fmt.Errorf("database address: %w", err)
	}
	db := stdlib.OpenDB(*config.ConnConfig)
	defer db.Close()
	if err := s.create(ctx, db); err != nil {
		return fmt.Errorf("create the schema of %s: %w", s.Holds, err)
	}
	provider, err := s.provider(db)
	if err != nil {
		return err
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("migrate %s: %w", s.Holds, err)
	}
	return nil
}

// create makes the schema, for its table of migrations. IF NOT EXISTS alone can fail when two sessions race.
func (s Schema) create(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('leadlog create schema ' || $1, 0))`, s.Name); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `CREATE SCHEMA IF NOT EXISTS `+s.Name); err != nil {
		return err
	}
	return tx.Commit()
}

func (s Schema) provider(db *sql.DB) (*goose.Provider, error) {
	files, err := fs.Sub(s.Files, "migrations")
	if err != nil {
		return nil, err
	}
	// Every second, for five minutes.
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 300))
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectPostgres, db, files,
		goose.WithTableName(s.Name+".migration"), goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true))
}

// Current says, as ErrOld or ErrNew, that the program and the schema do not belong together. Other errors are the database's.
func (s Schema) Current(ctx context.Context, pool *pgxpool.Pool) error {
	files, err := fs.Glob(s.Files, "migrations/*.sql")
	if err != nil {
		return err
	}
	want, err := goose.NumericComponent(slices.Max(files))
	if err != nil {
		return err
	}
	var have int64
	err = pool.QueryRow(ctx, `SELECT coalesce(max(version_id) FILTER (WHERE is_applied), 0) FROM `+s.Name+`.migration`).Scan(&have)
	const undefinedTable, undefinedSchema = "42P01", "3F000"
	if answer, ok := errors.AsType[*pgconn.PgError](err); ok && (answer.Code == undefinedTable || answer.Code == undefinedSchema) {
		err = nil
	}
	switch {
	case err != nil:
		return err
	case have < want:
		return fmt.Errorf("the schema of %s is %w (it is at %d, needed is %d)", s.Holds, ErrOld, have, want)
	case have > want:
		return fmt.Errorf("the schema of %s is %w (it is at %d, known is %d)", s.Holds, ErrNew, have, want)
	}
	return nil
}
