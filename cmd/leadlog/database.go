package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/deploy/pgdev"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/esdb"
	"github.com/leadlog/leadlog/eventstore/logcopy"
	"github.com/leadlog/leadlog/eventstore/migration"
	"github.com/leadlog/leadlog/eventstore/postgres"
	"github.com/leadlog/leadlog/eventstore/sealbox"
	"github.com/leadlog/leadlog/eventstore/sealed"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/move"
	"github.com/leadlog/leadlog/projection/schema"
	"github.com/leadlog/leadlog/query"
)

// open returns the URLs of the views' database and of the log. Without LEADLOG_DATABASE_URL it starts the private PostgreSQL
// of the data directory, or joins the one that is running; the caller leaves it with stopPrivate.
func (d database) open(ctx context.Context, log *slog.Logger) (views, events string, private *pgdev.Server, err error) {
	views = d.DatabaseURL
	if views == "" {
		if private, err = pgdev.Start(ctx, pgdev.Options{Dir: d.DataDir, Log: log}); err != nil {
			return "", "", nil, err
		}
		views = private.URL()
	}
	views = withConnectDefaults(views)
	events = cmp.Or(logAddress(d.EventstoreURL), views)
	return views, events, private, nil
}

// logAddress returns the address of a log with its defaults filled in. An empty one stays empty.
func logAddress(address string) string {
	if address == "" || esdb.Understands(address) {
		return address
	}
	return withConnectDefaults(address)
}

// connectSeconds bounds how long connecting may take, over all hosts of an address, which are tried one after the other. An
// append waits as long, so that it finds a database that has moved to the next host.
const connectSeconds = 5

// withConnectDefaults adds two parameters to an address of PostgreSQL, unless it or the environment has them. connect_timeout:
// otherwise nothing ends the wait for a server that accepts connections and is silent, or that has vanished. And of several
// hosts, the primary: the former primary may come back after a failover as a standby, which answers and takes no write.
func withConnectDefaults(address string) string {
	config, err := pgconn.ParseConfig(address)
	if err != nil { // it was checked before
		return address
	}
	hosts := map[string]bool{net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port))): true}
	for _, other := range config.Fallbacks {
		hosts[net.JoinHostPort(other.Host, strconv.Itoa(int(other.Port)))] = true
	}
	place, given := splitPostgres(address)
	var parameters []string // before those of the address: when a parameter comes twice, the last one counts
	unlessSet := func(variable, parameter, value string) {
		if os.Getenv(variable) == "" {
			parameters = append(parameters, parameter+"="+value)
		}
	}
	unlessSet("PGCONNECT_TIMEOUT", "connect_timeout", strconv.Itoa(max(1, connectSeconds/len(hosts))))
	if len(hosts) > 1 {
		unlessSet("PGTARGETSESSIONATTRS", "target_session_attrs", "primary")
	}
	if given != "" {
		parameters = append(parameters, given)
	}
	if parameters == nil {
		return address
	}
	return place + "?" + strings.Join(parameters, "&")
}

// splitPostgres splits an address of PostgreSQL before its parameters. It reads the address as PostgreSQL's own programs do and
// not as net/url does: a password may contain ? and #, and a + in a parameter is not a space.
func splitPostgres(address string) (place, parameters string) {
	user, rest := splitUser(address)
	rest, parameters, _ = strings.Cut(rest, "?")
	return user + rest, parameters
}

// splitUser splits an address of PostgreSQL after the @ that ends the user's name and password, if it has them.
func splitUser(address string) (user, rest string) {
	scheme, rest, _ := strings.Cut(address, "://")
	end := 0
	if i := strings.IndexAny(rest, "@/"); i >= 0 && rest[i] == '@' {
		end = i + 1
	}
	return scheme + "://" + rest[:end], rest[end:]
}

// stopPrivate leaves the private PostgreSQL, and stops it if this process was its last user. A nil server is none.
func stopPrivate(private *pgdev.Server, log *slog.Logger) {
	if private == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	if err := private.Stop(ctx); err != nil {
		log.Error("private PostgreSQL did not stop", "error", err)
	}
}

// migrate brings both schemas up to date. A log in EventStoreDB has none.
func migrate(ctx context.Context, views, events string) error {
	if !esdb.Understands(events) {
		if err := postgres.Migrate(ctx, events); err != nil {
			return fmt.Errorf("schema of the log: %w", err)
		}
	}
	if err := schema.Migrate(ctx, views); err != nil {
		return fmt.Errorf("schema of the read models: %w", err)
	}
	return nil
}

type migrateCommand struct {
	database `embed:""`
}

// Run is leadlog migrate.
func (m *migrateCommand) Run(ctx context.Context, c cli.Output) error {
	var check checker
	if m.database.check(&check); check.Err() != nil {
		return check.Err()
	}
	log := plainLogger(c)
	views, events, private, err := m.database.open(ctx, log)
	if err != nil {
		return err
	}
	defer stopPrivate(private, log)
	began := time.Now()
	if err := migrate(ctx, views, events); err != nil {
		return err
	}
	fmt.Fprintf(c.Err, "schema is up to date (%s)\n", time.Since(began).Round(time.Millisecond))
	return nil
}

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
