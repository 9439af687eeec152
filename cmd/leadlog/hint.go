package main

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/deploy/pgdev"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/logcopy"
	"github.com/leadlog/leadlog/eventstore/migration"
	"github.com/leadlog/leadlog/eventstore/postgres"
	"github.com/leadlog/leadlog/eventstore/sealbox"
	"github.com/leadlog/leadlog/eventstore/sealed"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/move"
	"github.com/leadlog/leadlog/query"
)

// hint returns a remedy for an error, or "".
func hint(err error) string {
	switch {
	case errors.Is(err, command.ErrFeatureDisabled):
		return "leadlog account set ID --feature crm_api"
	case errors.Is(err, move.ErrSameLog):
		return "--from with the address of the present log, --to with another server or database"
	case errors.Is(err, pgdev.ErrNone):
		return "the LEADLOG_DATABASE_URL or LEADLOG_DATA_DIR of the service, or another directory; leadlog dev and " +
			"leadlog migrate make a database"
	case errors.Is(err, migration.ErrOld):
		return "leadlog migrate; or, if the data are elsewhere, the LEADLOG_DATABASE_URL or LEADLOG_DATA_DIR of " +
			"the service"
	case errors.Is(err, migration.ErrNew):
		return "a newer leadlog: this one is older than the database's schema"
	case errors.Is(err, migration.ErrEncoding):
		return "another database, made by CREATE DATABASE NAME TEMPLATE template0 ENCODING 'UTF8' LOCALE " +
			"'C.UTF-8' in psql"
	case errors.Is(err, projection.ErrForeignLog):
		return "LEADLOG_EVENTSTORE_URL with the address of the log that the views were moved to; or, if the log was " +
			"replaced on purpose, leadlog replay all"
	case errors.Is(err, move.ErrServiceRuns):
		return "again, once every leadlog serve and dev has stopped: what was copied is kept, and little remains"
	case errors.Is(err, move.ErrGrown):
		return "again, while the source takes no writes"
	case errors.Is(err, move.ErrOtherLog):
		return "LEADLOG_DATABASE_URL of the views of this log, or leadlog replay all where they are stale"
	case errors.Is(err, logcopy.ErrOther):
		return "an empty database or server as --to, or the log that this one was moved from"
	case errors.Is(err, projection.ErrSchemaExists):
		return "another name as --into; or, if it is an old copy of views, DROP SCHEMA NAME CASCADE in psql, and again"
	case errors.Is(err, projection.ErrHasDependents):
		return "DROP VIEW in psql, again, and CREATE VIEW as it was: the copy is ready"
	case errors.Is(err, projection.ErrReplayRuns):
		return "again, once the other has ended"
	case errors.Is(err, query.ErrBehind):
		return "leadlog replay all first, if a line above says so; or again while the service runs, because it " +
			"updates the views"
	case errors.Is(err, sealbox.ErrNoKey), errors.Is(err, sealbox.ErrUnknownKey), errors.Is(err, sealed.ErrOtherKeys):
		return "the LEADLOG_SEAL_KEY of the service, or keys/seal_key in the data directory"
	case errors.Is(err, command.ErrOtherClaimKey):
		return "the LEADLOG_CLAIM_KEY, or keys/claim_key in the data directory, that was backed up with the database"
	case errors.Is(err, eventstore.ErrDiverged):
		return "again: the log has lost events that were seen on it, as when a standby that lagged behind takes over"
	case refused(err, "42501"): // insufficient_privilege
		return "deploy/roles.sql in psql as a superuser, before the first leadlog migrate and after each; or an " +
			"address with another role"
	case misses(err):
		return "a complete backup (deploy/docs/runbook.md): the database has only a part of what leadlog migrate makes"
	case refused(err, "25006"): // read_only_sql_transaction
		return "again, when this server is the primary, or on the primary: this one is a standby, or being restored, " +
			"and takes no writes"
	case refused(err, "53100"): // disk_full
		return "again, when the disk of PostgreSQL has free space: what was acknowledged is stored"
	case errors.Is(err, postgres.ErrNotReplicated):
		return "again, when the standby that synchronous_standby_names of the database names is in pg_stat_replication"
	case errors.Is(err, eventstore.ErrUnavailable), errors.As(err, new(*pgconn.ConnectError)):
		return "again, when the server (LEADLOG_DATABASE_URL, LEADLOG_EVENTSTORE_URL, --from or --to) can be reached " +
			"from here and accepts this user"
	}
	return ""
}

// refused reports whether PostgreSQL refused something with this code.
func refused(err error, code string) bool {
	answer, ok := errors.AsType[*pgconn.PgError](err)
	return ok && answer.Code == code
}

// misses reports whether PostgreSQL refused something for lack of a right, a schema or a table. Waiting does not help.
func misses(err error) bool {
	return refused(err, "42501") || refused(err, "3F000") || refused(err, "42P01")
}
