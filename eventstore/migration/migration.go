// Package migration migrates a schema in PostgreSQL to the current version, and checks whether it has the program's
// version.
package migration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
)

var (
	// ErrOld means that a schema is older than this program, or missing. Up migrates it.
	ErrOld = errors.New("older than this program: run leadlog migrate")

	// ErrNew means that a newer program has migrated the schema, so that this program must not use it.
	ErrNew = errors.New("newer than this program: update leadlog")

	// ErrEncoding means that the database cannot store every text.
	ErrEncoding = errors.New("the encoding of the database must be UTF8")
)

// Schema is a schema and its migrations, which are in the directory migrations of Files. The applied ones are recorded
// in the table migration of the schema.
type Schema struct {
	Name  string
	Holds string // its name in errors
	Files fs.FS
}

// lockTime is how long a process waits for another migration.
const lockTime = 5 * time.Minute

// Up migrates the schema to the current version, and creates it in an empty database. Concurrent migrations wait for
// each other.
func (s Schema) Up(ctx context.Context, url string) error {
	config, err := pgxpool.ParseConfig(url) // parses the pool_ parameters, which the server rejects
	if err != nil {
		return fmt.Errorf("database address: %w", err)
	}
	SetSession(config.ConnConfig)
	config.ConnConfig.RuntimeParams["statement_timeout"] = "0"
	// the transaction that holds the lock is idle while goose runs
	config.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = "0"
	config.MaxConns = 4 // one holds the lock while goose uses others
	pool, err := NewPool(ctx, config)
	if err != nil {
		return fmt.Errorf("database pool: %w", err)
	}
	defer pool.Close()
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	var encoding string
	if err := db.QueryRowContext(ctx, `SHOW server_encoding`).Scan(&encoding); err != nil {
		return fmt.Errorf("encoding of the database: %w", err)
	}
	if err := checkEncoding(encoding); err != nil {
		return err
	}
	err = s.create(ctx, db)
	if errors.Is(err, errRace) {
		err = s.create(ctx, db)
	}
	if err != nil {
		return fmt.Errorf("create the schema of %s: %w", s.Holds, err)
	}
	provider, err := s.provider(db)
	if err != nil {
		return err
	}
	release, err := s.lock(ctx, db)
	if err != nil {
		return fmt.Errorf("lock the schema of %s: %w", s.Holds, err)
	}
	defer release()
	have, err := provider.GetDBVersion(ctx)
	if err != nil {
		return fmt.Errorf("version of the schema of %s: %w", s.Holds, err)
	}
	want, err := s.version()
	if err != nil {
		return err
	}
	if have > want { // goose would report success
		return s.isNew(have, want)
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("migrate %s: %w", s.Holds, err)
	}
	return nil
}

// errRace means that another session created the schema concurrently, which IF NOT EXISTS does not prevent.
var errRace = errors.New("created by another session at the same time")

// create creates the schema with the table that lock locks.
func (s Schema) create(ctx context.Context, db *sql.DB) (err error) {
	defer func() {
		const uniqueViolation, duplicateTable, duplicateSchema = "23505", "42P07", "42P06"
		if answer, ok := errors.AsType[*pgconn.PgError](err); ok &&
			slices.Contains([]string{uniqueViolation, duplicateTable, duplicateSchema}, answer.Code) {
			err = fmt.Errorf("%w: %w", errRace, err)
		}
	}()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var made bool
	if err := tx.QueryRowContext(ctx, `SELECT to_regclass($1) IS NOT NULL`,
		s.Name+".migration_lock").Scan(&made); err != nil || made {
		return err
	}
	for _, statement := range []string{
		`CREATE SCHEMA IF NOT EXISTS ` + s.Name, `CREATE TABLE IF NOT EXISTS ` + s.Name + `.migration_lock ()`,
	} {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// lock excludes other migrations of the schema until release is called. It locks a table instead of taking an advisory
// lock, because any role that may connect can take those.
func (s Schema) lock(ctx context.Context, db *sql.DB) (release func(), err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	release = func() { _ = tx.Rollback() }
	for _, statement := range []string{
		fmt.Sprintf(`SET LOCAL lock_timeout = %d`, lockTime.Milliseconds()),
		`LOCK TABLE ` + s.Name + `.migration_lock IN SHARE UPDATE EXCLUSIVE MODE`,
	} {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			release()
			return nil, err
		}
	}
	return release, nil
}

func (s Schema) provider(db *sql.DB) (*goose.Provider, error) {
	files, err := fs.Sub(s.Files, "migrations")
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectPostgres, db, files, goose.WithTableName(s.Name+".migration"),
		goose.WithDisableGlobalRegistry(true))
}

// Current returns ErrOld or ErrNew if the versions of the program and the schema differ, and ErrEncoding. Other errors
// are the database's.
func (s Schema) Current(ctx context.Context, pool *pgxpool.Pool) error {
	want, err := s.version()
	if err != nil {
		return err
	}
	var have int64
	var encoding string
	err = pool.QueryRow(ctx,
		`SELECT coalesce(max(version_id) FILTER (WHERE is_applied), 0), current_setting('server_encoding')
			FROM `+s.Name+`.migration`).
		Scan(&have, &encoding)
	const undefinedTable, undefinedSchema = "42P01", "3F000"
	if answer, ok := errors.AsType[*pgconn.PgError](err); ok &&
		(answer.Code == undefinedTable || answer.Code == undefinedSchema) {
		err = nil
	}
	switch {
	case err != nil:
		return err
	case have < want:
		return fmt.Errorf("the schema of %s is %w (it is at %d, needed is %d)", s.Holds, ErrOld, have, want)
	case have > want:
		return s.isNew(have, want)
	}
	return checkEncoding(encoding)
}

// version returns the version that the program needs.
func (s Schema) version() (int64, error) {
	files, err := fs.Glob(s.Files, "migrations/*.sql")
	if err != nil {
		return 0, err
	}
	return goose.NumericComponent(slices.Max(files))
}

func (s Schema) isNew(have, want int64) error {
	return fmt.Errorf("the schema of %s is %w (it is at %d, known is %d)", s.Holds, ErrNew, have, want)
}

func checkEncoding(encoding string) error {
	if encoding != "UTF8" {
		return fmt.Errorf("%w, and is %s", ErrEncoding, encoding)
	}
	return nil
}
