package systemtest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
)

// fault is something that goes wrong between a service and its database, or in it.
type fault struct {
	begin, end func(*testing.T)
	lost       bool // no write can be made while it lasts; else the service makes up for it
	leavesRoom bool // one or the other write is made all the same
}

// faults are those that a service is tried with, one after another; each kind with a service of its own.
func faults(t *testing.T, settings map[string]string, way *pgtest.Proxy) map[string]map[string]fault {
	direct := settings["LEADLOG_DATABASE_URL"]
	do := func(act func()) func(*testing.T) { return func(*testing.T) { act() } }
	nothing := do(func() {})
	shown := func(t *testing.T) {
		require.Eventually(t, func() bool { return way.Losing() == 0 }, 2*time.Minute, time.Millisecond)
	}
	// raise has the next so many statements on a table fail. It ends when one has.
	raise := func(table, sqlstate string, times int, lost bool) fault {
		return fault{lost: lost, begin: func(t *testing.T) { failing(t, direct, table, sqlstate, times) }, end: func(t *testing.T) {
			require.Eventually(t, func() bool {
				return ask(t, settings, `SELECT 1 FROM public.faults WHERE is_called`) == 1
			}, 2*time.Minute, time.Millisecond)
			execute(t, direct, `DROP FUNCTION public.fail CASCADE`)
		}}
	}
	database := func(setting, reset string) fault {
		config, err := pgx.ParseConfig(direct)
		require.NoError(t, err)
		name := "ALTER DATABASE " + pgx.Identifier{config.Database}.Sanitize() + " "
		beside := pgtest.Beside(t, direct)
		return fault{lost: true, begin: func(t *testing.T) {
			execute(t, beside, name+setting)
			way.Reset() // it counts for sessions to come
		}, end: func(t *testing.T) {
			execute(t, beside, name+reset)
			way.Reset()
		}}
	}
	const always = 1 << 30
	return map[string]map[string]fault{
		"connections": {
			"connections are refused":          {lost: true, begin: do(way.Refuse), end: func(t *testing.T) { way.Accept(t) }},
			"connections are reset":            {begin: do(way.Reset), end: nothing},
			"connections are half open":        {lost: true, begin: do(way.Vanish), end: do(way.Return)},
			"the database is read only":        database("SET default_transaction_read_only = on", "RESET default_transaction_read_only"),
			"the database is full of sessions": database("CONNECTION LIMIT 0", "CONNECTION LIMIT -1"),
		},
		"messages": {
			"a request is lost halfway":          {begin: do(func() { way.LoseRequest("lead.created.v1") }), end: shown},
			"an answer is lost":                  {begin: do(func() { way.LoseAnswer("lead.created.v1") }), end: shown},
			"a transaction is lost in the midst": {begin: do(func() { way.LoseRequest("commit") }), end: shown},
			"a commit's answer is lost":          {begin: do(func() { way.LoseAnswer("commit") }), end: shown},
			"answers are slow by half a second":  {begin: do(func() { way.Slow(500 * time.Millisecond) }), end: do(func() { way.Slow(0) })},
			"answers are slow by ten seconds":    {lost: true, begin: do(func() { way.Slow(10 * time.Second) }), end: do(func() { way.Slow(0) })},
		},
		"statements": {
			"appends cannot be serialized":       raise("log.event", "40001", 5, false),
			"appends meet deadlocks":             raise("log.event", "40P01", 5, false),
			"views cannot be serialized":         raise("views.lead", "40001", 5, false),
			"deliveries cannot be serialized":    raise("delivery.queue", "40001", 5, false),
			"secrets cannot be serialized":       raise("secret.webhook", "40001", always, false),
			"secrets have no place on the disk":  raise("secret.webhook", "58030", always, false),
			"appends time out":                   raise("log.event", "sleep", always, true),
			"the log has no room on the disk":    raise("log.event", "53100", always, true),
			"the views have no room on the disk": raise("views.lead", "53100", always, false),
			"files cannot be written":            raise("log.event", "58030", always, true),
		},
	}
}

// failing has the next so many statements that write to a table fail, or hang when that is said to be sleep.
func failing(t *testing.T, url, table, sqlstate string, times int) {
	t.Helper()
	failure := fmt.Sprintf(`RAISE EXCEPTION 'as told' USING ERRCODE = '%s'`, sqlstate)
	if sqlstate == "sleep" {
		failure = `PERFORM pg_sleep(3600)`
	}
	execute(t, url, fmt.Sprintf(`
		CREATE SEQUENCE IF NOT EXISTS public.faults;
		ALTER SEQUENCE public.faults RESTART;
		CREATE FUNCTION public.fail() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
		    IF nextval('public.faults') <= %d THEN %s; END IF;
		    RETURN NULL;
		END $$;
		CREATE TRIGGER fault AFTER INSERT OR UPDATE ON %s FOR EACH STATEMENT EXECUTE FUNCTION public.fail()`, times, failure, table))
}

func execute(t *testing.T, url, statement string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	pgtest.Exec(t, conn, statement)
}

// TestAnswersStayHonestWhileTheDatabaseFails has callers go on while one fault after another begins and ends. Who is
// answered 503 repeats the request with its key afterwards, and everybody has been captured once.
func TestAnswersStayHonestWhileTheDatabaseFails(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"connections", "messages", "statements"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			settings := production(t)
			jwt := provisioned(t, settings)
			way := pgtest.NewProxy(t, settings["LEADLOG_DATABASE_URL"])
			all := faults(t, settings, way)[kind]
			c := newSufferer(t, settings, way.URL(), jwt)
			for _, name := range slices.Sorted(maps.Keys(all)) {
				t.Run(name, func(t *testing.T) { c.suffer(t, all[name]).settle(t) })
			}
			launch(t, settings, "verify").ends(t, 0)
		})
	}
}

// newSufferer starts a service that reaches its database by another address. It has a token, and an endpoint that hears of new leads.
func newSufferer(t *testing.T, settings map[string]string, address, jwt string) *chaos {
	t.Helper()
	behind := maps.Clone(settings)
	behind["LEADLOG_DATABASE_URL"] = address
	p, base := serve(t, behind)
	c := &chaos{settings: settings, receiver: receiveWebhooks(t)}
	c.calling.Store(&running{program: p, base: base, jwt: jwt})
	mustCall(t, "POST", base+"/webhooks/endpoints", jwt, `{"url":"`+c.receiver.URL+`","events":["lead.created"]}`).is(t, 201)
	mustCall(t, "POST", base+tokensPath, jwt, `{"name":"to be rotated","expiresInDays":30}`).is(t, 201)
	return c
}

// TestAServiceFollowsItsDatabaseToAnotherAddress gives the service two addresses. The first one dies, and another time
// falls silent.
func TestAServiceFollowsItsDatabaseToAnotherAddress(t *testing.T) {
	t.Parallel()
	settings := production(t)
	jwt := provisioned(t, settings)
	one, other := pgtest.NewProxy(t, settings["LEADLOG_DATABASE_URL"]), pgtest.NewProxy(t, settings["LEADLOG_DATABASE_URL"])
	other.Refuse()
	c := newSufferer(t, settings, one.URL(other), jwt)
	back := func(t *testing.T) {
		one.Return()
		one.Accept(t)
		other.Refuse()
	}
	t.Run("it died", func(t *testing.T) {
		c.suffer(t, fault{end: back, begin: func(t *testing.T) {
			other.Accept(t)
			one.Refuse()
		}}).settle(t)
	})
	t.Run("it fell silent", func(t *testing.T) {
		c.suffer(t, fault{end: back, begin: func(t *testing.T) {
			other.Accept(t)
			one.Vanish()
		}}).settle(t)
	})
	launch(t, settings, "verify").ends(t, 0)
}
