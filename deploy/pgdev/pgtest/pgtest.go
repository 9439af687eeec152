// Package pgtest gives each test a PostgreSQL database of its own, on the server of LEADLOG_TEST_DATABASE_URL or, when
// that is not set, on a throwaway one started for the test binary.
package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leadlog/leadlog/deploy/pgdev"
)

// URLVariable names the environment variable with the address of a database on the server to use. Its role must be
// allowed to create databases.
const URLVariable = "LEADLOG_TEST_DATABASE_URL"

// templates are global because all tests of the process share them.
var templates = struct {
	sync.Mutex
	byName map[string]*template
}{byName: map[string]*template{}}

type template struct {
	once     sync.Once
	database string
	err      error
}

// Main runs the tests with a server and exits:
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
func Main(m *testing.M) {
	os.Exit(Run(m))
}

// Run is Main without the exit, for a package that has something to clean up. It returns the exit code. Tests are a
// *testing.M.
func Run(m interface{ Run() int }) int {
	if os.Getenv(URLVariable) == "" {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		server, err := pgdev.Start(ctx, pgdev.Options{Throwaway: true})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer stop(server)
		stopOnSignal(server)
		if err := os.Setenv(URLVariable, server.URL()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	code := m.Run()
	stopOrigin()
	dropTemplates()
	return code
}

func stop(server *pgdev.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := server.Stop(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// stopOnSignal stops the server when the tests are interrupted.
func stopOnSignal(server *pgdev.Server) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-signals
		stop(server)
		os.Exit(130)
	}()
}

// Database returns the address of a new empty database, which is dropped at the test's end even if it has sessions.
func Database(t testing.TB) string {
	t.Helper()
	return newDatabase(t, "template0")
}

// DatabaseFrom is Database for a database that is expensive to prepare: prepare runs once in the process for each
// template name, on an empty database, and every test gets a copy of the result. It must close its connections.
func DatabaseFrom(t testing.TB, name string, prepare func(ctx context.Context, url string) error) string {
	t.Helper()
	templates.Lock()
	made, ok := templates.byName[name]
	if !ok {
		made = &template{}
		templates.byName[name] = made
	}
	templates.Unlock()
	made.once.Do(func() {
		made.database, made.err = prepareTemplate(t.Context(), name, prepare)
	})
	if made.err != nil {
		t.Fatalf("preparing the template database %q: %v", name, made.err)
	}
	return newDatabase(t, made.database)
}

func newDatabase(t testing.TB, from string) string {
	t.Helper()
	if os.Getenv(URLVariable) == "" {
		t.Fatalf("no PostgreSQL: the package needs  func TestMain(m *testing.M) { pgtest.Main(m) }  or %s", URLVariable)
	}
	name := "leadlog_test_" + strings.ToLower(rand.Text())
	if err := create(t.Context(), name, from); err != nil {
		t.Fatalf("creating the test's database: %v", err)
	}
	t.Cleanup(func() {
		if err := drop(name); err != nil {
			t.Errorf("dropping the test's database: %v", err)
		}
	})
	return urlOf(t, name)
}

// create copies a database file by file. The default since PostgreSQL 15, page by page, takes twice the processor time,
// and is meant for databases that were changed since the last checkpoint. Earlier versions have no STRATEGY.
func create(ctx context.Context, name, from string) error {
	statement := "CREATE DATABASE " + quote(name) + " TEMPLATE " + quote(from)
	err := execute(ctx, statement+" STRATEGY file_copy")
	var answer *pgconn.PgError
	if errors.As(err, &answer) && answer.Code == "42601" { // syntax_error
		return execute(ctx, statement)
	}
	return err
}

func prepareTemplate(ctx context.Context, name string, prepare func(context.Context, string) error) (string, error) {
	// The process id separates the packages that run concurrently on one server, the random part those of
	// other machines.
	database := fmt.Sprintf("leadlog_template_%d_%s", os.Getpid(), strings.ToLower(rand.Text()[:12]))
	if err := create(ctx, database, "template0"); err != nil {
		return "", err
	}
	address, err := withDatabase(os.Getenv(URLVariable), database)
	if err == nil {
		err = prepare(ctx, address)
	}
	if err == nil {
		// A session in the template would make the copies fail.
		err = execute(ctx, "ALTER DATABASE "+quote(database)+" ALLOW_CONNECTIONS false")
	}
	if err != nil {
		if dropErr := drop(database); dropErr != nil {
			err = fmt.Errorf("%w (and %w)", err, dropErr)
		}
		return "", fmt.Errorf("template %q: %w", name, err)
	}
	return database, nil
}

func dropTemplates() {
	templates.Lock()
	defer templates.Unlock()
	for _, made := range templates.byName {
		if made.database == "" {
			continue
		}
		if err := drop(made.database); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

func drop(database string) error {
	// Not the test's context: it is over by the time of the cleanups.
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for {
		err := execute(ctx, "DROP DATABASE IF EXISTS "+quote(database)+" WITH (FORCE)")
		// An autovacuum worker in the database belongs to the superuser and cannot be terminated. It ends soon.
		var answer *pgconn.PgError
		if !errors.As(err, &answer) || answer.Code != "42501" {
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}

// sessions are global: a new session costs as much as the copy that it requests.
var sessions = sync.OnceValues(func() (*pgxpool.Pool, error) {
	return pgxpool.New(context.Background(), os.Getenv(URLVariable))
})

func execute(ctx context.Context, statement string) error {
	pool, err := sessions()
	if err != nil {
		return err
	}
	_, err = pool.Exec(ctx, statement, pgx.QueryExecModeSimpleProtocol)
	return err
}

func quote(identifier string) string { return pgx.Identifier{identifier}.Sanitize() }

func urlOf(t testing.TB, database string) string {
	t.Helper()
	address, err := withDatabase(os.Getenv(URLVariable), database)
	if err != nil {
		t.Fatal(err)
	}
	return address
}

func withDatabase(address, database string) (string, error) {
	u, err := url.Parse(address)
	if err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
		// The address may contain a password: neither it nor the parser's error, which quotes it, is printed.
		return "", fmt.Errorf("%s is not a postgres:// address", URLVariable)
	}
	u.Path = "/" + database
	query := u.Query()
	if !query.Has("connect_timeout") {
		query.Set("connect_timeout", "60") // seconds: on a busy machine a new session may wait long for a processor
	}
	u.RawQuery = query.Encode()
	return u.String(), nil
}

// Disconnect makes a test's database unavailable: it refuses connections, and every session in it ends.
func Disconnect(t testing.TB, address string) {
	t.Helper()
	name := nameIn(t, address)
	outage(t, "ALTER DATABASE "+quote(name)+" ALLOW_CONNECTIONS false")
	outage(t,
		"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '"+strings.ReplaceAll(name, "'", "''")+
			"'")
}

// Reconnect ends Disconnect.
func Reconnect(t testing.TB, address string) {
	t.Helper()
	outage(t, "ALTER DATABASE "+quote(nameIn(t, address))+" ALLOW_CONNECTIONS true")
}

func outage(t testing.TB, statement string) {
	t.Helper()
	if err := execute(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

func nameIn(t testing.TB, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal("not the address of a test's database")
	}
	return strings.TrimPrefix(u.Path, "/")
}

// OtherDatabase is the address of another database on the server of a test's database.
func OtherDatabase(t testing.TB, address string) string {
	t.Helper()
	other, err := withDatabase(address, nameIn(t, os.Getenv(URLVariable)))
	if err != nil {
		t.Fatal(err)
	}
	return other
}
