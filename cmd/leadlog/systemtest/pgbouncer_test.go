package systemtest

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore/postgres"
)

func TestPgbouncer_SessionMode(t *testing.T) {
	pgtest.System(t)
	t.Parallel()
	settings := emptySettings(t)
	direct := settings["LEADLOG_DATABASE_URL"]
	settings["LEADLOG_DATABASE_URL"] = pgtest.Pgbouncer(t, direct, "session", 60)
	jwt := provision(t, settings) // migrates
	in := newReceiver(t)
	first, base := serve(t, settings)
	_, other := serve(t, settings)
	mustCall(t, "POST", base+"/webhooks/endpoints", jwt, `{"url":"`+in.URL+`","events":["lead.created"]}`).is(t, 201)
	captured := mustCall(t, "POST", base+"/api/v1/crm/leads", jwt, `{"email":"a@example.com"}`).is(t, 201)
	in.waitFor(t, 1, 1)
	lead := captured.data()["leadId"].(string)
	read := mustCall(t, "GET",
		other+"/api/v1/crm/leads/"+lead+"?minPosition="+captured.header.Get("X-Log-Position"), jwt, "").is(t, 200)
	require.Equal(t, "a@example.com", read.data()["email"])

	t.Run("notifications arrive", func(t *testing.T) {
		config, err := pgx.ParseConfig(settings["LEADLOG_DATABASE_URL"])
		require.NoError(t, err)
		listening, notified := make(chan bool, 1), make(chan bool, 1)
		go postgres.Listener{
			Config: config, Channel: "leadlog_log",
			OnListen: func() { listening <- true }, OnNotified: func() { notified <- true }, OnLost: func(error) {},
		}.Run(t.Context())
		<-listening
		mustCall(t, "POST", base+"/api/v1/crm/leads", jwt, `{"email":"b@example.com"}`).is(t, 201)
		<-notified
	})

	for _, args := range [][]string{
		{"migrate"}, {"verify"}, {"replay", "lead"}, {"forget", lead, "--account", "acme", "--yes"}, {"verify"},
	} {
		launch(t, settings, args...).exits(t, 0)
	}
	// a process that is killed gives its leases back
	require.NoError(t, first.cmd.Process.Kill())
	mustCall(t, "POST", other+"/api/v1/crm/leads", jwt, `{"email":"c@example.com"}`).is(t, 201)
	in.waitFor(t, 3, 1)
}

func TestPgbouncer_OtherModesAreRefused(t *testing.T) {
	pgtest.System(t)
	t.Parallel()
	for _, mode := range []string{"transaction", "statement"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			settings := serveSettings(t)
			settings["LEADLOG_DATABASE_URL"] = pgtest.Pgbouncer(t, settings["LEADLOG_DATABASE_URL"], mode, 20)
			for _, args := range [][]string{{"serve"}, {"migrate"}, {"export", "leads", "--account", "acme"}} {
				_, printed := outputOf(t, 1, settings, args...)
				require.Contains(t, printed, "LEADLOG_DATABASE_URL: a pooler in transaction or statement mode", args)
			}
		})
	}
}
