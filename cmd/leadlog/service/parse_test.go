package service

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
)

func TestSettings_OriginsAndBasePath(t *testing.T) {
	t.Parallel()
	var c cli.Checker
	origins := []string{
		"https://example.com", "http://localhost:3000", "https://xn--mnchen-3ya.de:8443", "http://[::1]:8080",
		"http://127.0.0.1", "https://a_b.example",
	}
	require.Equal(t, origins, parseOrigins(&c, "LEADLOG_CORS_ORIGINS", strings.Join(origins, ", ")))
	for given, prefix := range map[string]string{
		"": "", "/": "", "/crm": "/crm", "/crm/": "/crm", "/a-b/c_d~e.f": "/a-b/c_d~e.f",
	} {
		require.Equal(t, prefix, parseBasePath(&c, given), given)
	}
	require.NoError(t, c.Err())
}

func TestSettings_Witnesses(t *testing.T) {
	t.Parallel()
	const key = "witness.example.com/w2+1a770438+BMhTrQ8M0rYZrqks7sT9VqJNZJnVhM55JX5Fz9gTm2Cn"
	var c cli.Checker
	witnesses := parseWitnesses(&c, "LEADLOG_WITNESSES", key+"=https://witness.example.com/w2/")
	require.Len(t, witnesses, 1)
	require.Equal(t, "https://witness.example.com/w2", witnesses[0].URL)
	require.Equal(t, key, witnesses[0].Key.String())
	require.Empty(t, parseWitnesses(&c, "LEADLOG_WITNESSES", ""))
	require.Equal(t, 1, parseQuorum(&c, "LEADLOG_WITNESS_QUORUM", "", 1))
	require.Equal(t, 2, parseQuorum(&c, "LEADLOG_WITNESS_QUORUM", "2", 3))
	for _, origin := range []string{"", "leads.example.com/log", "leadlog-log/01m7"} {
		require.Equal(t, origin, parseOrigin(&c, "LEADLOG_LOG_ORIGIN", origin))
	}
	require.NoError(t, c.Err())
	refused := func(name string, parse func(c *cli.Checker, name string)) {
		var c cli.Checker
		parse(&c, name)
		require.ErrorContains(t, c.Err(), name)
	}
	for _, value := range []string{
		key, "https://witness.example.com", key + "=ftp://witness.example.com",
		strings.Replace(key, "BMh", "AMh", 1) + "=https://a", key + "=https://a?", key + "=https://a#",
		key + "x=https://a", key + "=https://a," + key + "=https://b", key + "=https://a,", key + "=http",
		key + "=https//a", key + "=https://", key + "=https://a?b", key + "=https://a b",
	} {
		refused("LEADLOG_WITNESSES", func(c *cli.Checker, name string) { parseWitnesses(c, name, value) })
	}
	for _, value := range []string{"0", "-1", "2", "all", "1.0"} {
		refused("LEADLOG_WITNESS_QUORUM", func(c *cli.Checker, name string) { parseQuorum(c, name, value, 1) })
	}
	for _, value := range []string{
		"example.com/accounts/acme/tokens", "x/accounts/", "a b", "a+b", "ä", "a\nb", strings.Repeat("a", 201),
	} {
		refused("LEADLOG_LOG_ORIGIN", func(c *cli.Checker, name string) { parseOrigin(c, name, value) })
	}
}

func TestSettings_OIDC(t *testing.T) {
	t.Parallel()
	var c cli.Checker
	roles := parseRoles(&c, "LEADLOG_OIDC_ROLES", "sales=leads:read leads:write, auditors=audit:read,owners=*")
	require.NoError(t, c.Err())
	require.Equal(t, []string{"leads:read", "leads:write"}, roles["sales"])
	require.Equal(t, []string{"audit:read"}, roles["auditors"])
	require.Contains(t, roles["owners"], "tokens:write")
	require.NotContains(t, roles["owners"], "admin")
	for _, value := range []string{
		"", "sales", "=leads:read", "sales=", "sales=lead", "sales=admin", "sales=leads:read,sales=leads:read",
		"sales=* leads:read",
	} {
		var c cli.Checker
		parseRoles(&c, "LEADLOG_OIDC_ROLES", value)
		require.ErrorContains(t, c.Err(), "LEADLOG_OIDC_ROLES", value)
	}
	complete := OIDC{
		OIDCIssuer: "https://id.example.com/realms/crm", OIDCClientID: "crm", OIDCAccountClaim: "account_id",
		OIDCRoles: "*=leads:read",
	}
	for name, change := range map[string]func(*OIDC){
		"LEADLOG_OIDC_ISSUER":        func(o *OIDC) { o.OIDCIssuer = "http://id.example.com" },
		"LEADLOG_OIDC_CLIENT_ID":     func(o *OIDC) { o.OIDCClientID = "" },
		"LEADLOG_OIDC_ACCOUNT_CLAIM": func(o *OIDC) { o.OIDCAccountClaim = "" },
		"LEADLOG_OIDC_ROLES":         func(o *OIDC) { o.OIDCRoles = "" },
		"LEADLOG_OIDC_CLIENT_SECRET": func(o *OIDC) { *o = OIDC{OIDCClientSecret: "s3cret"} },
	} {
		var c cli.Checker
		wrong := complete
		change(&wrong)
		wrong.provider(&c)
		require.ErrorContains(t, c.Err(), name)
		require.NotContains(t, c.Err().Error(), "s3cret")
	}
	var valid cli.Checker
	require.NotNil(t, complete.provider(&valid))
	require.Nil(t, OIDC{OIDCAccountClaim: "account_id"}.provider(&valid))
	complete.OIDCIssuer = "http://localhost:8180"
	require.NotNil(t, complete.provider(&valid))
	require.NoError(t, valid.Err())
}
