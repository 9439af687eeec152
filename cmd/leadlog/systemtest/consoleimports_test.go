package systemtest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
)

// A person uploads an export, corrects what a column becomes, tries it, imports it, and takes it back.
func TestConsole_ImportsInBrowser(t *testing.T) {
	pgtest.System(t)
	t.Parallel()
	settings := serveSettings(t)
	jwt := provision(t, settings)
	_, base := serve(t, settings)
	var export strings.Builder
	export.WriteString("id,created_time,campaign_name,form_id,full_name,phone_number,work_email,lead_status,Kontakt," +
		"Are you interested in a free consultation with one of our experts this month?\n")
	for n := range 2000 {
		fmt.Fprintf(&export, "l:%d,2026-09-12T15:05:13+05:30,Monsoon,f:9,Asha Rao %[1]d,p:+9198%08[1]d,"+
			"asha%[1]d@example.com,CREATED,other%[1]d@example.com,yes\n", n)
	}
	export.WriteString("l:9999,,,,Nobody,12,,,,\n")
	path := writeFile(t, "Monsoon leads.csv", export.String())

	c := openChromium(t, base)
	c.open("/console/imports")
	c.do(chromedp.SetValue("#jwt", jwt, chromedp.ByQuery))
	c.press("Sign in")
	c.waitText("#imports", "No imports yet")
	c.do(chromedp.SetUploadFiles("#file", []string{path}, chromedp.ByQuery))
	c.press("Upload")
	c.waitText("#columns-form", "2,001 rows")
	require.Contains(t, c.text("#upload"), "Contacts would become custom fields")
	var page string
	c.evaluate(`location.pathname.replace("/console", "")`, &page)
	c.visitPages([][2]string{{"imports", "/imports"}, {"import", page}})

	c.emulate(390, "light")
	c.open("/console" + page)
	c.do(chromedp.SetValue(`select[aria-label^="Kontakt"]`, "keep", chromedp.ByQuery))
	c.press("Import 2,001 rows")
	c.waitText("#upload", "Your changes are applied")
	c.press("Dry run")
	c.waitText("#upload", "Dry run: nothing was written")
	c.waitText("#refused", "phone is not a valid phone number")
	c.press("Import 2,001 rows")
	c.waitText("#upload", "Download the outcome of each row")
	require.Contains(t, c.text("#upload .facts"), "New leads\n2,000")
	c.emulate(1280, "light")
	c.visitPages([][2]string{{"import-done", page}, {"import-undo", page + "/undo"}})
	c.open("/console" + page)
	c.press("Take the import back")
	c.press("Take back")
	c.waitText("#upload .facts", "Erased leads")
	require.Contains(t, c.text("#upload .facts"), "Erased leads\n2,000")
	c.requireNoErrors()
}
