package pgtest

import (
	"context"
	"errors"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/deploy/pgdev"
)

// Pair is a primary with a synchronous standby, on servers of their own.
type Pair struct {
	Primary, Standby *pgdev.Server
}

// ofPair are settings with the durability of production. A copy needs the write-ahead log since it began, which the
// checkpoint of another copy would remove.
var ofPair = map[string]string{
	"synchronous_commit": "on", "shared_buffers": "16MB", "max_connections": "60", "wal_keep_size": "512MB",
}

// origin is a server that all primaries are copies of, since a copy takes a fraction of the processor time of a new
// cluster. It is stopped by Run.
var origin struct {
	sync.Mutex
	*pgdev.Server
}

// NewPair starts a pair, which ends with the test.
func NewPair(t testing.TB) *Pair {
	t.Helper()
	origin.Lock()
	if origin.Server == nil {
		origin.Server = startServer(t, nil)
	}
	origin.Unlock()
	p := &Pair{Primary: startServer(t, origin.Server)}
	t.Cleanup(func() { stop(p.Primary) })
	must(t, p.Primary.Promote(t.Context()))
	p.Standby = startServer(t, p.Primary)
	t.Cleanup(func() { stop(p.Standby) })
	p.Admin(t, `ALTER SYSTEM SET synchronous_standby_names = '`+pgdev.StandbyName+`'`, `SELECT pg_reload_conf()`)
	p.AwaitStandby(t)
	return p
}

func startServer(t testing.TB, standbyOf *pgdev.Server) *pgdev.Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	server, err := pgdev.Start(ctx, pgdev.Options{Throwaway: true, Settings: ofPair, StandbyOf: standbyOf})
	if err != nil {
		t.Fatal(err)
	}
	return server
}

func stopOrigin() {
	if origin.Server != nil {
		stop(origin.Server)
	}
}

// URL is the database's address at the current primary.
func (p *Pair) URL(t testing.TB) string {
	t.Helper()
	one, err := url.Parse(p.Primary.URL())
	other, otherErr := url.Parse(p.Standby.URL())
	if err := errors.Join(err, otherErr); err != nil {
		t.Fatal(err)
	}
	query := url.Values{"target_session_attrs": {"primary"}}
	for _, parameter := range []string{"host", "port"} {
		query.Set(parameter, one.Query().Get(parameter)+","+other.Query().Get(parameter))
	}
	one.RawQuery = query.Encode()
	return one.String()
}

// Admin executes statements at the primary as the superuser.
func (p *Pair) Admin(t testing.TB, statements ...string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), p.Primary.AdminURL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	for _, statement := range statements {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
}

// AwaitStandby returns when the standby is synchronous.
func (p *Pair) AwaitStandby(t testing.TB) {
	t.Helper()
	p.await(t, `SELECT EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync' AND state = 'streaming')`)
}

// AwaitWait returns when a session at the primary waits for the standby.
func (p *Pair) AwaitWait(t testing.TB) {
	t.Helper()
	p.await(t, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep')`)
}

func (p *Pair) await(t testing.TB, query string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), p.Primary.AdminURL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	for deadline := time.Now().Add(time.Minute); !Value[bool](t, conn, query); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", query)
		}
	}
}

// StopStandby stops the standby. From then on a commit at the primary waits.
func (p *Pair) StopStandby(t testing.TB) {
	t.Helper()
	must(t, p.Standby.Crash(t.Context()))
}

// StartStandby starts it again.
func (p *Pair) StartStandby(t testing.TB) {
	t.Helper()
	must(t, p.Standby.Restart(t.Context(), ofPair))
}

// RestartPrimary shuts the primary down, or kills it, and starts it again.
func (p *Pair) RestartPrimary(t testing.TB, crash bool) {
	t.Helper()
	if crash {
		must(t, p.Primary.Crash(t.Context()))
	}
	must(t, p.Primary.Restart(t.Context(), ofPair))
}

// Failover stops the primary and promotes the standby, which may be stopped.
func (p *Pair) Failover(t testing.TB) {
	t.Helper()
	must(t, p.Primary.Crash(t.Context()))
	must(t, p.Standby.Restart(t.Context(), ofPair))
	must(t, p.Standby.Promote(t.Context()))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
