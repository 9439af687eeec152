package main

import (
	"maps"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
)

// A standby takes over that had not received a rotation. What the service remembers of it, at a revision where something else
// stands since, lets nobody in.
func TestAServiceForgetsWhatAFailoverHasLost(t *testing.T) {
	t.Parallel()
	settings := production(t)
	jwt := provisioned(t, settings)
	direct := settings["LEADLOG_DATABASE_URL"]
	config, err := pgx.ParseConfig(direct)
	require.NoError(t, err)
	beside := pgtest.Beside(t, direct)
	primary, standby := pgx.Identifier{config.Database}.Sanitize(), pgx.Identifier{config.Database + "_standby"}.Sanitize()

	first, base := serve(t, settings)
	token := mustCall(t, "POST", base+tokensPath, jwt, `{"name":"site","expiresInDays":30}`).is(t, 201).data()["tokenId"].(string)
	first.stop(t)
	execute(t, beside, `CREATE DATABASE `+standby+` TEMPLATE `+primary)

	way := pgtest.NewProxy(t, direct)
	behind := maps.Clone(settings)
	behind["LEADLOG_DATABASE_URL"] = way.URL()
	p, base := serve(t, behind)
	rotated := mustCall(t, "POST", base+tokensPath+"/"+token+"/rotate", jwt, "").is(t, 200).data()["plainToken"].(string)
	mustCall(t, "POST", base+"/api/v1/crm/leads", rotated, `{"phone":"9876543210"}`).is(t, 201)

	way.Refuse()
	execute(t, beside, `DROP DATABASE `+primary+` WITH (FORCE)`)
	execute(t, beside, `ALTER DATABASE `+standby+` RENAME TO `+primary)
	way.Accept(t)

	base = "http://" + p.sees(t, p.err, `(?s)starting again.*"listening","addr":"([^"]+)"`)
	mustCall(t, "DELETE", base+tokensPath+"/"+token, jwt, "").is(t, 200)
	mustCall(t, "POST", base+"/api/v1/crm/leads", rotated, `{"phone":"9876543211"}`).is(t, 401)
	p.stop(t)
	launch(t, settings, "verify").ends(t, 0)
}
