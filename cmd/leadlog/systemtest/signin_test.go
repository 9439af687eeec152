package systemtest

import (
	"bufio"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/npmtest"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
)

// Users sign in at a third-party provider. Each role allows other pages.
func TestConsole_SignInAtOIDCProvider(t *testing.T) {
	pgtest.System(t)
	t.Parallel()
	issuer, admit := startProvider(t)
	settings := serveSettings(t)
	settings["LEADLOG_OIDC_ISSUER"] = issuer
	settings["LEADLOG_OIDC_CLIENT_ID"] = "crm"
	settings["LEADLOG_OIDC_CLIENT_SECRET"] = "a secret of the client"
	settings["LEADLOG_OIDC_ROLES"] = "sales=leads:read,owners=*"
	provision(t, settings)
	_, base := serve(t, settings)
	admit(base)
	c := openChromium(t, base)

	// Signing in opens the requested page. The role determines the accessible pages.
	c.open("/console/leads?status=won")
	c.accessible("sign-in at a provider")
	c.signInAs("sam")
	c.waitText("#leads", "No leads match the filter")
	require.Equal(t, "/console/leads?status=won", c.path())
	require.Contains(t, c.text(".who"), "acme\nsam")
	require.NotContains(t, c.text("nav"), "API tokens")
	c.open("/console/tokens")
	c.waitText("main", "tokens:read")

	// Signing out ends the session of the console and, after a confirmation, that of the provider.
	c.signOutEverywhere()
	c.open("/console/leads")
	require.Equal(t, "/console/sign-in?next=%2Fconsole%2Fleads", c.path())
	c.signInAs("olga") // the provider requires a new sign-in
	c.waitText("#leads", "No leads yet")
	c.open("/console/tokens")
	c.waitText("#tokens", "No API tokens yet")
	c.signOutEverywhere()

	// A user without a role or without an existing account gets no session. The page names the missing claim.
	c.signInAs("nora")
	c.waitText("[role=alert]", "none of the roles")
	c.accessible("without a role")
	c.open("/console/leads")
	require.Equal(t, "/console/sign-in?next=%2Fconsole%2Fleads", c.path())
	c.press("Sign in with your organization") // the provider still has a session
	c.waitText("[role=alert]", "none of the roles")
	c.signOutThere(issuer)
	c.open("/console/")
	c.signInAs("eve")
	c.waitText("[role=alert]", "elsewhere")

	// A cancelled sign-in is not an error of this service.
	c.signOutThere(issuer)
	c.open("/console/")
	c.click("Sign in with your organization")
	c.atProvider("[ Cancel ]")
	c.waitText("[role=alert]", "The sign-in provider denied access")
}

// startProvider starts npm's oidc-provider. The function admit sets the address of the service, which the provider
// needs.
func startProvider(t *testing.T) (issuer string, admit func(service string)) {
	t.Helper()
	node := exec.Command("node", filepath.Join(npmtest.Install(t, "testdata/oidc"), "provider.js"))
	input, err := node.StdinPipe()
	require.NoError(t, err)
	output, err := node.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, node.Start())
	t.Cleanup(func() {
		_ = input.Close()
		_ = node.Wait()
	})
	lines := bufio.NewScanner(output)
	require.True(t, lines.Scan(), "provider.js starts")
	return lines.Text(), func(service string) {
		t.Helper()
		_, err := fmt.Fprintln(input, service)
		require.NoError(t, err)
		require.True(t, lines.Scan(), "provider.js is ready")
	}
}

// signInAs signs in at the provider and consents.
func (c *chromium) signInAs(name string) {
	c.t.Helper()
	c.click("Sign in with your organization")
	c.waitVisible("input[name=login]")
	c.do(chromedp.SetValue("input[name=login]", name, chromedp.ByQuery),
		chromedp.SetValue("input[name=password]", "any", chromedp.ByQuery))
	c.atProvider("Sign-in")
	c.atProvider("Continue")
	c.waitFor(
		fmt.Sprintf(
			`location.origin === %q && location.pathname !== "/console/sign-in/callback" || `+
				`document.querySelector("[role=alert]") !== null`, c.base,
		),
	)
	c.waitFor(arrived)
}

// signOutEverywhere signs out of the console and confirms the sign-out at the provider.
func (c *chromium) signOutEverywhere() {
	c.t.Helper()
	c.do(chromedp.Evaluate(`document.querySelector(".who button").click()`, nil))
	c.waitFor(
		fmt.Sprintf(`location.origin !== %q && new URLSearchParams(location.search).has("id_token_hint")`, c.base),
	)
	c.atProvider("Yes, sign me out")
	c.waitFor(arrived + ` && location.pathname === "/console/sign-in"`)
}

func (c *chromium) signOutThere(issuer string) {
	c.t.Helper()
	c.do(chromedp.Navigate(issuer + "/session/end"))
	c.atProvider("Yes, sign me out")
	c.waitFor(`location.pathname === "/session/end/success"`)
}

// click clicks on a link of the console that leads to another site.
func (c *chromium) click(name string) {
	c.t.Helper()
	c.do(
		chromedp.Evaluate(
			fmt.Sprintf(`[...document.querySelectorAll("main a")].find((one) => one.textContent === %q).click()`, name),
			nil,
		),
	)
}

// atProvider waits for a link or button of the provider and clicks on it.
func (c *chromium) atProvider(name string) {
	c.t.Helper()
	c.waitFor(fmt.Sprintf(`(() => {
		if (location.origin === %q || document.readyState !== "complete") return undefined;
		const one = [...document.querySelectorAll("a, button")].find((one) => one.textContent.trim() === %q);
		one?.click();
		return one && true;
	})()`, c.base, name))
}

// path returns the path and query of the page.
func (c *chromium) path() (path string) {
	c.t.Helper()
	c.evaluate(`location.pathname + location.search`, &path)
	return path
}
