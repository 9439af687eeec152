package service

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leadlog/leadlog/deploy/pgdev"
	"github.com/leadlog/leadlog/eventstore/esdb"
	"github.com/leadlog/leadlog/eventstore/migration"
	"github.com/leadlog/leadlog/eventstore/postgres"
	"github.com/leadlog/leadlog/projection/schema"
)

// Open returns the URLs of the views' database and of the log. Without LEADLOG_DATABASE_URL it starts the private
// PostgreSQL of the data directory, or uses the running one; the caller releases it with StopPrivate.
func (d Database) Open(ctx context.Context, log *slog.Logger) (views, events string, private *pgdev.Server, err error) {
	return d.open(ctx, pgdev.Options{Log: log})
}

// OpenExisting is Open for commands that need data: it returns pgdev.ErrNone instead of making a database.
func (d Database) OpenExisting(ctx context.Context, log *slog.Logger) (
	views, events string, private *pgdev.Server, err error,
) {
	return d.open(ctx, pgdev.Options{Existing: true, Log: log})
}

func (d Database) open(ctx context.Context, options pgdev.Options) (
	views, events string, private *pgdev.Server, err error,
) {
	views = d.DatabaseURL
	if views == "" {
		options.Dir = d.DataDir
		if private, err = pgdev.Start(ctx, options); err != nil {
			return "", "", nil, err
		}
		views = private.URL()
	}
	views = withConnectDefaults(views)
	events = cmp.Or(LogAddress(d.EventstoreURL), views)
	if private != nil {
		return views, events, private, nil
	}
	if err := migration.CheckPooler(ctx, views); err != nil {
		return "", "", nil, fmt.Errorf("LEADLOG_DATABASE_URL: %w", err)
	}
	if events != views && !esdb.Understands(events) {
		if err := migration.CheckPooler(ctx, events); err != nil {
			return "", "", nil, fmt.Errorf("LEADLOG_EVENTSTORE_URL: %w", err)
		}
	}
	return views, events, private, nil
}

// LogAddress returns the address of a log with its defaults filled in. An empty one stays empty.
func LogAddress(address string) string {
	if address == "" || esdb.Understands(address) {
		return address
	}
	return withConnectDefaults(address)
}

// connectSeconds is the timeout of connecting to all hosts of an address, which are tried one after the other. An
// append waits as long, so that it survives a failover to the next host.
const connectSeconds = 5

// withConnectDefaults adds two parameters to an address of PostgreSQL, unless it or the environment has them.
// connect_timeout, because the wait for a server that does not answer would never end. And the primary of several
// hosts, because the former primary may return after a failover as a standby, which accepts no writes.
func withConnectDefaults(address string) string {
	config, err := pgconn.ParseConfig(address)
	if err != nil { // it was checked before
		return address
	}
	hosts := map[string]bool{net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port))): true}
	for _, other := range config.Fallbacks {
		hosts[net.JoinHostPort(other.Host, strconv.Itoa(int(other.Port)))] = true
	}
	server, given := splitPostgres(address)
	var parameters []string // before those of the address, because the last of two equal parameters takes effect
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
	return server + "?" + strings.Join(parameters, "&")
}

// splitPostgres splits an address of PostgreSQL before its parameters. It reads the address as PostgreSQL's own
// programs do and not as net/url does: a password may contain ? and #, and a + in a parameter is not a space.
func splitPostgres(address string) (server, parameters string) {
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

// StopPrivate leaves the private PostgreSQL, and stops it if this process was its last user. A nil server is none.
func StopPrivate(private *pgdev.Server, log *slog.Logger) {
	if private == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	if err := private.Stop(ctx); err != nil {
		log.Error("private PostgreSQL did not stop", "error", err)
	}
}

// Migrate brings both schemas up to date. A log in EventStoreDB has none.
func Migrate(ctx context.Context, views, events string) error {
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

// OpenViews opens the views' database, whose schema must be of this program's version.
func OpenViews(ctx context.Context, url string) (*pgxpool.Pool, error) {
	pool, err := OpenLong(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("LEADLOG_DATABASE_URL: %w", err)
	}
	if err := schema.Current(ctx, pool); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}
