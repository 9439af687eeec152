// Package schema has the tables in PostgreSQL: those of the read models in the schema views, and beside them the sealed
// secrets and the deliveries to webhook endpoints. Projectors write them and queries read them; here is what both must
// agree on.
package schema

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// Views is the schema of the read models that are served.
const Views = "views"

// Deliveries is the schema of what is sent to webhook endpoints.
const Deliveries = "delivery"

// Names of projectors, by which their checkpoints go.
const (
	Lead            = "lead"
	SourceHistory   = "source_history"
	SourceDay       = "source_day"
	Token           = "token"
	TokenEvent      = "token_event"
	Account         = "account"
	Endpoint        = "endpoint"
	FanOut          = "fanout"
	VisitorActivity = "visitor_activity"
	Refused         = "refused"
	Reveal          = "reveal"
)

// LeadWithWins is the version of the projector Lead from which on it keeps won_day.
const LeadWithWins = 3

// LeadWithBlocks is the version of the projector Lead from which on it keeps lead_block.
const LeadWithBlocks = 4

// LeadWithLongGrams is the version of the projector Lead from which on blocks have grams of six bytes, and what is searched is
// in Unicode's normal form C.
const LeadWithLongGrams = 5

// versionTable says which migrations the schema has seen.
const versionTable = "views.migration"

var (
	// ErrSchemaOld says that the read models are older than this program, or not there. Migrate brings them up to date.
	ErrSchemaOld = errors.New("the read models' schema is older than this program: run leadlog migrate")

	// ErrSchemaNew says that a newer program has migrated the read models.
	ErrSchemaNew = errors.New("the read models' schema is newer than this program: update leadlog")
)

// Migrate brings the schema up to date, creating it in an empty database. Processes that migrate at the same time
// wait for each other.
func Migrate(ctx context.Context, url string) error {
	config, err := pgxpool.ParseConfig(url) // knows the pool_ parameters, which the server does not
	if err != nil {
		return fmt.Errorf("database address: %w", err)
	}
	db := stdlib.OpenDB(*config.ConnConfig)
	defer db.Close()
	if err := createSchema(ctx, db); err != nil {
		return fmt.Errorf("create the read models' schema: %w", Unavailable(err))
	}
	migrations, err := migrations(db)
	if err != nil {
		return err
	}
	if _, err := migrations.Up(ctx); err != nil {
		return fmt.Errorf("migrate the read models: %w", Unavailable(err))
	}
	return nil
}

// createSchema makes the schema of the version table. IF NOT EXISTS alone can fail when two sessions race.
func createSchema(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('leadlog create schema views', 0))`); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `CREATE SCHEMA IF NOT EXISTS views`); err != nil {
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

// Current says, as ErrSchemaOld or ErrSchemaNew, that this program and the database's read models do not belong
// together. The error is eventstore.ErrUnavailable when the database is out of reach.
func Current(ctx context.Context, pool *pgxpool.Pool) error {
	want, err := newestMigration()
	if err != nil {
		return err
	}
	var have int64
	err = pool.QueryRow(ctx, `SELECT coalesce(max(version_id) FILTER (WHERE is_applied), 0) FROM `+versionTable).Scan(&have)
	if missing(err) {
		have, err = 0, nil
	}
	switch {
	case err != nil:
		return Unavailable(err)
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
