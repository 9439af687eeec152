package systemtest

import (
	"encoding/base64"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
)

// A deleted token is used after SIGTERM.
func TestServe_RecordsRefusedUseWhileDraining(t *testing.T) {
	t.Parallel()
	settings := serveSettings(t)
	settings["LEADLOG_DRAIN"] = "10s"
	jwt := provision(t, settings)
	p, base := serve(t, settings)
	created := mustCall(t, "POST", base+tokensPath, jwt, `{"name":"CI","expiresInDays":3}`).is(t, 201)
	mustCall(t, "DELETE", base+tokensPath+"/"+created.data()["tokenId"].(string), jwt, "").is(t, 200)
	p.signal(t, syscall.SIGTERM)
	require.Eventually(t, func() bool {
		return mustCall(t, "GET", base+"/readyz", "", "").status == 503
	}, soon, time.Millisecond)
	mustCall(t, "POST", base+"/api/v1/crm/leads", created.data()["plainToken"].(string),
		`{"phone":"9876543210"}`).is(t, 401)
	require.Zero(t, p.wait(t), p.err)

	delete(settings, "LEADLOG_DRAIN")
	_, base = serve(t, settings)
	require.Eventually(t, func() bool {
		events := mustCall(t, "GET", base+"/api/v1/crm/audit/tokens", jwt, "").body["data"].([]any)
		return len(events) == 3 && events[2].(map[string]any)["type"] == "token.refused"
	}, soon, 10*time.Millisecond)
}

func TestServe_RejectsMissingSchema(t *testing.T) {
	t.Parallel()
	settings := emptySettings(t)
	p := launch(t, settings, "serve").exits(t, 1)
	require.Contains(t, p.err.String(), "leadlog migrate")
	set := launch(t, settings, "account", "set", "acme").exits(t, 1)
	require.Contains(t, set.err.String(), "leadlog migrate")
	provision(t, settings)
	p, base := serve(t, settings)
	require.Equal(t, 200, mustCall(t, "GET", base+"/healthz", "", "").status)
	p.stop(t)
}

func TestServe_RejectsNewerSchema(t *testing.T) {
	t.Parallel()
	for _, table := range []string{"log.migration", "views.migration"} {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			settings := serveSettings(t)
			provision(t, settings)
			newer := `INSERT INTO ` + table + ` (version_id, is_applied) VALUES (9999, true)`
			require.NoError(t, inDatabase(t.Context(), t, settings["LEADLOG_DATABASE_URL"], newer))
			for _, command := range []string{"serve", "migrate"} {
				p := launch(t, settings, command).exits(t, 1)
				require.Contains(t, p.err.String(), "Try: a newer leadlog", command)
			}
		})
	}
}

func TestMigrate_RejectsOtherEncoding(t *testing.T) {
	t.Parallel()
	settings := emptySettings(t)
	u, err := url.Parse(settings["LEADLOG_DATABASE_URL"])
	require.NoError(t, err)
	name := strings.TrimPrefix(u.Path, "/")
	for _, statement := range []string{
		`DROP DATABASE ` + name,
		`CREATE DATABASE ` + name + ` TEMPLATE template0 ENCODING SQL_ASCII LC_COLLATE 'C' LC_CTYPE 'C'`,
	} {
		require.NoError(t, inDatabase(t.Context(), t, os.Getenv(pgtest.URLVariable), statement))
	}
	p := launch(t, settings, "migrate").exits(t, 1)
	require.Contains(t, p.err.String(), "must be UTF8, and is SQL_ASCII")
	require.Contains(t, p.err.String(), "Try: another database")
}

func TestSettings_RejectsInvalid(t *testing.T) {
	t.Parallel()
	key := base64.StdEncoding.EncodeToString(make([]byte, 32))
	for _, bad := range []struct{ name, value, shown string }{
		{"LEADLOG_ADDR", "nowhere", `LEADLOG_ADDR="nowhere"`},
		{"LEADLOG_RATE_LIMIT", "many", `LEADLOG_RATE_LIMIT="many"`},
		{"LEADLOG_RATE_LIMIT", "-1", `LEADLOG_RATE_LIMIT="-1"`},
		{"LEADLOG_RATE_LIMIT", "NaN", `LEADLOG_RATE_LIMIT="NaN"`},
		{"LEADLOG_RATE_LIMIT", "1000001", `LEADLOG_RATE_LIMIT="1000001"`},
		{"LEADLOG_RATE_BURST", "0", `LEADLOG_RATE_BURST="0"`},
		{"LEADLOG_RATE_BURST", "9223372036854775807", `LEADLOG_RATE_BURST="9223372036854775807"`},
		{"LEADLOG_TRUSTED_PROXIES", "10.0.0.0/8,everywhere", `LEADLOG_TRUSTED_PROXIES="everywhere"`},
		{"LEADLOG_TRUSTED_PROXIES", "10.0.0.0/8,::ffff:10.0.0.0/104", `LEADLOG_TRUSTED_PROXIES="::ffff:10.0.0.0/104"`},
		{"LEADLOG_CORS_ORIGINS", "*", `LEADLOG_CORS_ORIGINS="*"`},
		{"LEADLOG_CORS_ORIGINS", "https://Example.com", `LEADLOG_CORS_ORIGINS="https://Example.com"`},
		{"LEADLOG_CORS_ORIGINS", "https://example.com:443", `LEADLOG_CORS_ORIGINS="https://example.com:443"`},
		{
			"LEADLOG_CORS_ORIGINS", "https://example.com,https://*.example.com",
			`LEADLOG_CORS_ORIGINS="https://*.example.com"`,
		},
		{"LEADLOG_CORS_ORIGINS", "https://münchen.de", `LEADLOG_CORS_ORIGINS="https://münchen.de"`},
		{"LEADLOG_CORS_ORIGINS", "https://example.com/", `LEADLOG_CORS_ORIGINS="https://example.com/"`},
		{"LEADLOG_DATABASE_URL", "postgres://u:hunter2@h:99999/d", `LEADLOG_DATABASE_URL=(30 characters, not shown)`},
		{"LEADLOG_BASE_PATH", "crm", `LEADLOG_BASE_PATH="crm"`},
		{"LEADLOG_BASE_PATH", "/a/../crm", `LEADLOG_BASE_PATH="/a/../crm"`},
		{"LEADLOG_BASE_PATH", "/größe", `LEADLOG_BASE_PATH="/größe"`},
		{"LEADLOG_BASE_PATH", "/%41", `LEADLOG_BASE_PATH="/%41"`},
		{"LEADLOG_LOG_LEVEL", "loud", `LEADLOG_LOG_LEVEL="loud"`},
		{"LEADLOG_LOG_FORMAT", "xml", `LEADLOG_LOG_FORMAT="xml"`},
		{"LEADLOG_WEBHOOK_ALLOW_PRIVATE", "perhaps", `LEADLOG_WEBHOOK_ALLOW_PRIVATE="perhaps"`},
		{"LEADLOG_DRAIN", "-1s", `LEADLOG_DRAIN="-1s"`},
		{"LEADLOG_WEBHOOK_TIMEOUT", "0s", `LEADLOG_WEBHOOK_TIMEOUT="0s"`},
		{"LEADLOG_TURNSTILE_URL", "verify", `LEADLOG_TURNSTILE_URL="verify"`},
		{"LEADLOG_TURNSTILE_URL", "https://u:a/b@c@verify", `LEADLOG_TURNSTILE_URL="https://***@verify"`},
		{"LEADLOG_TURNSTILE_URL", "https://u:my pass@verify", `LEADLOG_TURNSTILE_URL="https://***@verify"`},
		{"LEADLOG_HCAPTCHA_URL", "ftp://h/verify", `LEADLOG_HCAPTCHA_URL="ftp://h/verify"`},
		{"LEADLOG_WEBHOOK_RETRY_SCHEDULE", "5s,soon", `LEADLOG_WEBHOOK_RETRY_SCHEDULE="soon"`},
		{"LEADLOG_JWT_SECRET", "hunter2", `LEADLOG_JWT_SECRET=(7 characters, not shown)`},
		{"LEADLOG_CLAIM_KEY", "c2hvcnQ=", `LEADLOG_CLAIM_KEY=(8 characters, not shown)`},
		{"LEADLOG_SEAL_KEY", "", `LEADLOG_SEAL_KEY=(not set)`},
		{
			"LEADLOG_SEAL_KEY", key + ",",
			`LEADLOG_SEAL_KEY=(45 characters, not shown): must be keys with a comma between one and the next`,
		},
		{"LEADLOG_TREE_KEY", "c2hvcnQ=", `LEADLOG_TREE_KEY=(8 characters, not shown)`},
		{"LEADLOG_DATABASE_URL", "mysql://u:hunter2@h/d", `LEADLOG_DATABASE_URL=(21 characters, not shown)`},
		{
			"LEADLOG_EVENTSTORE_URL", "mysql://u:hunter2@h/d",
			`LEADLOG_EVENTSTORE_URL=(21 characters, not shown): must be a good URL that begins with ` +
				`postgres://, esdb://`,
		},
		{
			"LEADLOG_EVENTSTORE_URL", "esdb://u:hunter2@h/path",
			`LEADLOG_EVENTSTORE_URL=(23 characters, not shown): must be a good connection string`,
		},
		{
			"LEADLOG_EVENTSTORE_URL", "kurrentdb+discover://u:hunter2@h?tlsCaFile=/none",
			`LEADLOG_EVENTSTORE_URL=(48 characters, not shown)`,
		},
		{
			"LEADLOG_JWT_JWKS_URL", "https://u:hunter2@issuer/keys",
			`LEADLOG_JWT_JWKS_URL=(29 characters, not shown): must be unset`,
		},
		{"LEADLOG_JWT_ADMIN_SCOPE", "all accounts", `LEADLOG_JWT_ADMIN_SCOPE="all accounts"`},
		{"LEADLOG_JWT_ADMIN_SCOPE", "leads:read", `LEADLOG_JWT_ADMIN_SCOPE="leads:read"`},
		{
			"LEADLOG_JWT_DEFAULT_SCOPE", "leads:read admin",
			`LEADLOG_JWT_DEFAULT_SCOPE="leads:read admin": must be some of`,
		},
		{
			"LEADLOG_JWT_DEFAULT_SCOPE", "leads:read",
			`LEADLOG_JWT_DEFAULT_SCOPE="leads:read": must be unset without LEADLOG_JWT_JWKS_URL`,
		},
	} {
		t.Run(bad.name+"="+bad.value, func(t *testing.T) {
			t.Parallel()
			settings := map[string]string{}
			for name, value := range map[string]string{
				"LEADLOG_DATABASE_URL": "postgres://127.0.0.1:1/none", "LEADLOG_JWT_SECRET": strings.Repeat("s", 32),
				"LEADLOG_CLAIM_KEY": key, "LEADLOG_SEAL_KEY": key, "LEADLOG_TREE_KEY": key,
			} {
				settings[name] = value
			}
			settings[bad.name] = bad.value
			p := launch(t, settings, "serve").exits(t, 2)
			require.Contains(t, p.err.String(), bad.shown)
			require.NotContains(t, p.err.String(), "hunter2")
		})
	}
}

// With only a key set, a JWT of the issuer for any other application was once accepted.
func TestServe_KeySetNeedsIssuerAndAudience(t *testing.T) {
	t.Parallel()
	key := base64.StdEncoding.EncodeToString(make([]byte, 32))
	p := launch(t, map[string]string{
		"LEADLOG_DATABASE_URL": "postgres://127.0.0.1:1/none", "LEADLOG_JWT_JWKS_URL": "https://issuer.example/keys",
		"LEADLOG_CLAIM_KEY": key, "LEADLOG_SEAL_KEY": key, "LEADLOG_TREE_KEY": key,
	}, "serve").exits(t, 2)
	for _, name := range []string{"LEADLOG_JWT_ISSUER", "LEADLOG_JWT_AUDIENCE"} {
		require.Contains(t, p.err.String(), name+`="": must be set with LEADLOG_JWT_JWKS_URL: the `)
	}
}

func TestCommands_DatabaseUnreachable(t *testing.T) {
	t.Parallel()
	key := base64.StdEncoding.EncodeToString(make([]byte, 32))
	for _, args := range [][]string{
		{"serve"}, {"migrate"}, {"export", "leads", "--account", "a"}, {"account", "set", "a"},
	} {
		p := launch(t, map[string]string{
			"LEADLOG_DATABASE_URL": "postgres://u:hunter2@127.0.0.1:1/none",
			"LEADLOG_JWT_SECRET":   strings.Repeat("s", 32), "LEADLOG_CLAIM_KEY": key, "LEADLOG_SEAL_KEY": key,
			"LEADLOG_TREE_KEY": key, "LEADLOG_DATA_DIR": t.TempDir(),
		}, args...)
		require.Equal(t, 1, p.wait(t), args)
		require.Contains(t, p.err.String(), "Try: again, when the server (LEADLOG_DATABASE_URL", args)
		require.NotContains(t, p.err.String(), "hunter2")
	}
}

func TestCommands_UsageErrors(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"no-such-command"}, {"serve", "--no-such-flag"}, {"jwt"}, {"jwt", "--account", "a b"},
		{"jwt", "--account", "a", "--scope", "everything"},
		{"jwt", "--account", "a", "--scope", ""}, {"jwt", "--account", "a", "--scope", " "},
	} {
		p := launch(t, map[string]string{"LEADLOG_JWT_SECRET": strings.Repeat("s", 32)}, args...).exits(t, 2)
		require.NotEmpty(t, p.err.String())
		require.Empty(t, p.out.String())
	}
	version := launch(t, nil, "version").exits(t, 0)
	require.Regexp(t, `^leadlog \S+ commit \S+ go1\.`, version.out.String())
}

func TestServe_DatabaseDown(t *testing.T) {
	pgtest.System(t)
	t.Parallel()
	settings, jwt, base := startService(t)
	require.Equal(t, 201, mustCall(t, "POST", base+"/api/v1/crm/leads", jwt, `{"phone":"9876543210"}`).status)
	pgtest.Disconnect(t, settings["LEADLOG_DATABASE_URL"])
	for _, request := range [][2]string{{"POST", `{"phone":"9876543211"}`}, {"GET", ""}} {
		down := mustCall(t, request[0], base+"/api/v1/crm/leads", jwt, request[1]).is(t, 503)
		require.NotEmpty(t, down.header.Get("Retry-After"))
		require.Equal(t, map[string]any{"success": false, "message": "Service unavailable"}, down.body)
	}
	require.Equal(t, 503, mustCall(t, "GET", base+"/readyz", "", "").status)
	require.Equal(t, 200, mustCall(t, "GET", base+"/healthz", "", "").status)
	pgtest.Reconnect(t, settings["LEADLOG_DATABASE_URL"])
	require.Eventually(t, func() bool {
		got, err := call(t.Context(), "POST", base+"/api/v1/crm/leads", jwt, `{"phone":"9876543212"}`)
		return err == nil && got.status == 201
	}, soon, 50*time.Millisecond, "the service recovers without a restart")
}

// A session by a leaked secret could once last for a hundred years.
func TestConsole_SessionEndsWithJWTSecret(t *testing.T) {
	t.Parallel()
	settings := serveSettings(t)
	jwt := provision(t, settings)
	running, base := serve(t, settings)
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	browser := &http.Client{
		Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	signedIn := func() int {
		response, err := browser.Get(base + "/console/leads")
		require.NoError(t, err)
		response.Body.Close()
		return response.StatusCode
	}
	response, err := browser.PostForm(base+"/console/sign-in", url.Values{"jwt": {jwt}})
	require.NoError(t, err)
	response.Body.Close()
	require.Equal(t, http.StatusOK, signedIn())
	restart := func() {
		running.stop(t)
		running, base = serve(t, settings)
	}
	restart()
	require.Equal(t, http.StatusOK, signedIn(), "a restart ends no session")
	settings["LEADLOG_JWT_SECRET"] = "another secret of thirty-two bytes or more"
	restart()
	require.Equal(t, http.StatusSeeOther, signedIn())
}

func TestSettings_WarnsOfUnknownVariables(t *testing.T) {
	t.Parallel()
	printed := launch(t, map[string]string{
		"LEADLOG_CLAM_KEY": "c2VjcmV0", "LEADLOG_DATABASE_URL": "postgres://127.0.0.1:1/none",
		"LEADLOG_TREE_PUBLIC_KEY": "of verify", "LEADLOG_SERVICE_HOST": "10.0.0.1", "LEADLOG_SERVICE_PORT_HTTP": "80",
		"LEADLOG_PORT": "tcp://10.0.0.1:80", "LEADLOG_PORT_80_TCP": "tcp://10.0.0.1:80",
		"LEADLOG_PORTS": "80",
	}, "serve").exits(t, 2).err.String()
	var named []string
	for _, found := range regexp.MustCompile(`not a setting of leadlog","variable":"(\w+)"`).
		FindAllStringSubmatch(printed, -1) {
		named = append(named, found[1])
	}
	require.Equal(t, []string{"LEADLOG_CLAM_KEY", "LEADLOG_PORTS"}, named)
	require.NotContains(t, printed, "c2VjcmV0")
}
