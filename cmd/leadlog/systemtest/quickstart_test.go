package systemtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// codeBlocks returns the fenced blocks of a language in a manual.
func codeBlocks(t *testing.T, file, language string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../..", file))
	require.NoError(t, err)
	var all []string
	for _, found := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllSubmatch(text, -1) {
		all = append(all, string(found[1]))
	}
	require.NotEmpty(t, all)
	return all
}

// shell runs a script with these variables.
func shell(t *testing.T, script string, variables ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "sh", "-c", script)
	command.Env = append(os.Environ(), variables...)
	printed, err := command.CombinedOutput()
	require.NoError(t, err, "%s\n%s", script, printed)
	return string(printed)
}

// quickstart starts a service with a token, which the manuals require.
func quickstart(t *testing.T) (base, token, jwt string) {
	t.Helper()
	settings := serveSettings(t)
	jwt = provision(t, settings)
	_, base = serve(t, settings)
	created := mustCall(t, "POST", base+"/api/v1/crm/tokens", jwt,
		`{"name":"quick start","expiresInDays":1}`).is(t, 201)
	return base, created.data()["plainToken"].(string), jwt
}

func TestQuickStart_CallsInManuals(t *testing.T) {
	t.Parallel()
	base, token, jwt := quickstart(t)
	texts := append(codeBlocks(t, "README.md", "console"), codeBlocks(t, "deploy/docs/http.md", "console")...)
	id, function := "", ""
	calls := 0
	for _, call := range strings.Split("\n"+strings.Join(texts, "\n"), "\n$ ") {
		call = strings.ReplaceAll(strings.TrimSpace(call), "localhost:8080", strings.TrimPrefix(base, "http://"))
		command, printed, _ := strings.Cut(strings.ReplaceAll(call, "\\\n", ""), "\n")
		if strings.HasPrefix(command, "capture() {") {
			function = command + "\n"
		}
		if printed == "" {
			continue
		}
		if printedID := regexp.MustCompile(`/leads/([0-9A-Z]{26})`).FindStringSubmatch(command); printedID != nil {
			command = strings.ReplaceAll(command, printedID[1], id)
		}
		output := shell(t, function+command, "TOKEN="+token, "JWT="+jwt)
		if found := regexp.MustCompile(`"leadId":"([0-9A-Z]{26})"`).FindStringSubmatch(output); found != nil {
			id = found[1]
		}
		verdict := regexp.MustCompile(
			`^{"success":(true|false)(,"merged":(true|false))?|"code":"[A-Z_]+"|"field":"[^"]*","message":"[^"]*"`,
		)
		require.Equal(t, verdict.FindAllString(printed, -1), verdict.FindAllString(output, -1),
			"%s\n%s", command, output)
		calls++
	}
	require.Equal(t, 7, calls)
}

func TestQuickStart_Curl(t *testing.T) {
	t.Parallel()
	base, token, _ := quickstart(t)
	scripts := slices.DeleteFunc(codeBlocks(t, "deploy/docs/quickstart.md", "sh"), func(s string) bool {
		return strings.Contains(s, "/intakes")
	})
	require.Len(t, scripts, 2)
	for i, want := range []string{
		`^\{"success":true,"merged":false,.*"customFields":\{"city":"Pune"\}`,
		`^\{"line":1,"status":201,.*\n\{"line":2,"status":201,`,
	} {
		require.Regexp(t, want, shell(t, scripts[i], "LEADLOG_URL="+base, "LEADLOG_TOKEN="+token))
	}
}

func TestQuickStart_JavaScriptAndPython(t *testing.T) {
	t.Parallel()
	base, token, _ := quickstart(t)
	for _, c := range []struct{ language, file, run, new, known string }{
		{"js", "lead.mjs", "node", `^201 new lead [0-9A-Z]{26} \n$`, `^200 known as [0-9A-Z]{26} \n$`},
		{"python", "lead.py", "python3", `^201 [0-9A-Z]{26}\n$`, `^200 [0-9A-Z]{26}\n$`},
	} {
		printed := codeBlocks(t, "deploy/docs/quickstart.md", c.language)
		require.Len(t, printed, 1)
		script := writeFile(t, c.file, printed[0])
		for _, want := range []string{c.new, c.known} {
			require.Regexp(t, want, shell(t, c.run+" "+script, "LEADLOG_URL="+base, "LEADLOG_TOKEN="+token))
		}
		refused := shell(t, c.run+" "+script, "LEADLOG_URL="+base, "LEADLOG_TOKEN=leadlog_x")
		require.Contains(t, refused, "401 Missing or invalid token")
	}
}

// The manual lists the field names of form plugins.
func TestQuickStart_FormFieldNames(t *testing.T) {
	t.Parallel()
	base, token, _ := quickstart(t)
	text, err := os.ReadFile("../../../deploy/docs/quickstart.md")
	require.NoError(t, err)
	values := map[string]string{
		"name": `"Asha Rao"`, "phone": `"98765 43210"`, "email": `"asha@example.com"`, "visitorId": `"v-1"`,
		"customFields": `{"city":"Pune"}`,
	}
	want := map[string]any{
		"name": "Asha Rao", "phone": "+919876543210", "email": "asha@example.com",
		"customFields": map[string]any{"city": "Pune"},
	}
	read := 0
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-zA-Z]+)` \\| (`.*) \\|$").
		FindAllStringSubmatch(string(text), -1) {
		for _, name := range regexp.MustCompile("`([a-zA-Z_]+)`").FindAllStringSubmatch(row[2], -1) {
			body := fmt.Sprintf(`{"email":"p%d@example.com",%q:%s,"metadata":{"source":"website"}}`,
				read, name[1], values[row[1]])
			if row[1] == "email" {
				body = fmt.Sprintf(`{%q:%s}`, name[1], values[row[1]])
			}
			got := mustCall(t, "POST", base+"/api/v1/crm/leads", token, body)
			require.Contains(t, []int{200, 201}, got.status, "%s: %v", body, got.body)
			if shown, is := want[row[1]]; is {
				require.Equal(t, shown, got.data()[row[1]], body)
			} else {
				require.Empty(t, got.data()["customFields"], body)
			}
			read++
		}
	}
	require.Equal(t, 12, read)
}

func TestQuickStart_Intakes(t *testing.T) {
	t.Parallel()
	base, _, jwt := quickstart(t)
	intakes := map[string]map[string]any{}
	for _, script := range codeBlocks(t, "deploy/docs/quickstart.md", "sh") {
		if !strings.Contains(script, "/intakes") {
			continue
		}
		printed := shell(t, script, "LEADLOG_URL="+base, "LEADLOG_JWT="+jwt)
		var created struct {
			Success bool           `json:"success"`
			Data    map[string]any `json:"data"`
		}
		require.NoError(t, json.Unmarshal([]byte(printed[strings.Index(printed, "{"):]), &created), printed)
		require.True(t, created.Success, printed)
		intakes[created.Data["kind"].(string)] = created.Data
	}
	require.Len(t, intakes, 7)

	call := codeBlocks(t, "deploy/docs/quickstart.md", "console")[0]
	call, printed, _ := strings.Cut(strings.TrimPrefix(strings.ReplaceAll(call, "\\\n", ""), "$ "), "\n")
	call = regexp.MustCompile(`/in/[0-9A-Z]{26}`).ReplaceAllString(call, intakes["webhook"]["url"].(string))
	require.Contains(t, printed, `{"success":true,"arrivalId":`)
	require.Regexp(t, `\{"success":true,"arrivalId":"[0-9A-Z]{26}"\}`, shell(t, call, "LEADLOG_URL="+base))

	html := codeBlocks(t, "deploy/docs/quickstart.md", "html")[0]
	action := regexp.MustCompile(`action="https://leads.example.com(/in/)[0-9A-Z]{26}"`).FindStringSubmatch(html)
	require.NotNil(t, action)
	form := url.Values{}
	for _, input := range regexp.MustCompile(`<input name="([^"]+)"`).FindAllStringSubmatch(html, -1) {
		form.Set(input[1], map[string]string{"name": "Ravi Kumar", "phone": "98765 43211"}[input[1]])
	}
	browser := &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	for _, want := range []int{http.StatusSeeOther, http.StatusBadRequest} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+intakes["form"]["url"].(string),
			strings.NewReader(form.Encode()))
		require.NoError(t, err)
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		request.Header.Set("Accept", "text/html,*/*;q=0.8")
		answer, err := browser.Do(request)
		require.NoError(t, err)
		answer.Body.Close()
		require.Equal(t, want, answer.StatusCode)
		form.Set("phone", "12")
	}
	for phone, source := range map[string]string{"9876543210": "landing", "9876543211": "website"} {
		var leads []any
		require.Eventually(t, func() bool {
			leads, _ = mustCall(t, "GET", base+"/api/v1/crm/leads?phone="+phone, jwt, "").body["data"].([]any)
			return len(leads) == 1
		}, soon, 20*time.Millisecond)
		require.Equal(t, source, leads[0].(map[string]any)["source"])
	}
}
