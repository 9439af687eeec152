package main

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leadlog/leadlog/command"
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

// hint says what to try after an error; "" when there is no advice.
func hint(err error) string {
	switch {
	case errors.Is(err, command.ErrFeatureDisabled):
		return "leadlog account set ID --feature crm_api"
	case errors.Is(err, move.ErrSameLog):
		return "--from with the address of the log as it is, --to with that of another server or database"
	case errors.Is(err, migration.ErrOld):
		return "leadlog migrate; or, if the data are elsewhere, LEADLOG_DATABASE_URL or LEADLOG_DATA_DIR as the service has it"
	case errors.Is(err, migration.ErrNew):
		return "a newer leadlog: this one is older than the database's schema"
	case errors.Is(err, projection.ErrForeignLog):
		return "LEADLOG_EVENTSTORE_URL with the address of the log that the views were moved to; or, if the log was replaced on purpose, leadlog replay all"
	case errors.Is(err, move.ErrServiceRuns):
		return "again, when every leadlog serve and dev has stopped: what was copied stays, and little remains"
	case errors.Is(err, move.ErrGrown):
		return "again, when nobody writes to the source"
	case errors.Is(err, move.ErrThird):
		return "LEADLOG_DATABASE_URL of the views of this log, or leadlog replay all where they are stale"
	case errors.Is(err, logcopy.ErrOther):
		return "an empty database or server as --to, or the log that this one was moved from"
	case errors.Is(err, projection.ErrSchemaTaken):
		return "another name as --into; or, if what is there is a copy of views that nobody needs, DROP SCHEMA NAME CASCADE in psql, and again"
	case errors.Is(err, projection.ErrBuiltUpon):
		return "DROP VIEW in psql, again, and CREATE VIEW as it was: the copy is there already"
	case errors.Is(err, projection.ErrReplayRuns):
		return "again, when the other has ended"
	case errors.Is(err, query.ErrBehind):
		return "leadlog replay all first, if a line above says so; or again, where the service runs that keeps the views"
	case errors.Is(err, sealbox.ErrNoKey), errors.Is(err, sealbox.ErrUnknownKey), errors.Is(err, sealed.ErrOtherKeys):
		return "LEADLOG_SEAL_KEY as the service has it, or keys/seal_key in the data directory"
	case errors.Is(err, command.ErrOtherClaimKey):
		return "LEADLOG_CLAIM_KEY, or keys/claim_key in the data directory, as it was backed up with the database"
	case errors.Is(err, eventstore.ErrDiverged):
		return "again: the log is of before some of what was seen on it, as when a standby takes over that had not received all of it"
	case refused(err, "42501"): // for want of a right
		return "deploy/roles.sql in psql as a superuser, before the first leadlog migrate and after each; or an address with another role"
	case refused(err, "25006"):
		return "again, when this server is the primary, or at the one that is: it takes no writes, as a standby, or while it comes back from a backup"
	case refused(err, "53100"):
		return "again, when the disk of PostgreSQL has room: what was acknowledged is there"
	case errors.Is(err, postgres.ErrNotReplicated):
		return "again, when the synchronous standby that synchronous_standby_names of the database names is in pg_stat_replication"
	case errors.Is(err, eventstore.ErrUnavailable), errors.As(err, new(*pgconn.ConnectError)):
		return "again, when the server of LEADLOG_DATABASE_URL, LEADLOG_EVENTSTORE_URL, --from or --to, whichever this is, can be reached from here and lets this user in"
	}
	return ""
}

// refused reports whether PostgreSQL refused something with this code.
func refused(err error, code string) bool {
	answer, ok := errors.AsType[*pgconn.PgError](err)
	return ok && answer.Code == code
}
