package console

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSignIn_RedirectsWithinConsole(t *testing.T) {
	t.Parallel()
	v := &visit{Console: &Console{Options: Options{Base: "/crm/console"}}}
	for next, want := range map[string]string{
		"/crm/console/leads?status=new&q=a%2Fb":   "/crm/console/leads?status=new&q=a%2Fb",
		"/crm/console/visitors/a%2Fb":             "/crm/console/visitors/a%2Fb",
		"https://evil.example/crm/console/leads":  "/crm/console/leads",
		"//ann:x@evil.example/crm/console/tokens": "/crm/console/tokens",
		`/crm/console/\evil.example`:              "/crm/console/%5Cevil.example",
	} {
		require.Equal(t, want, v.destination(next), "%q", next)
	}
	for _, next := range []string{
		"", "leads", "https://evil.example/", "//evil.example/", `/\evil.example/`, `\\evil.example`,
		"javascript:alert(1)", "/crm/api/v1/crm/leads", "/crm/consoles/leads", "//crm/console/leads",
		"/crm/console/%zz", "/crm/console/\r\nX: y", "/crm%2Fconsole/leads", "/crm/console/../api",
		"/crm/console/%2e%2e/api", "/crm/console/.%2E/api", `/crm/console/..\api`, "/crm/console/sign-in",
		"/crm/console/sign-out?x", "/crm/console/%73ign-in",
	} {
		require.Equal(t, "/crm/console", v.destination(next), "%q", next)
	}
}
