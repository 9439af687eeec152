package systemtest

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
)

// buildRelease builds the newest tagged release before this commit, and returns the program and its tag. If none is
// tagged, or this is no repository, the current program is used as the old one.
func buildRelease(t *testing.T) (path, tag string) {
	t.Helper()
	git := func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), "git", args...).Output()
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(out))
	}
	describe := []string{"describe", "--tags", "--abbrev=0", "--match", "v[0-9]*"}
	if tag = git(append(describe, "HEAD")...); tag != "" && git("rev-parse", tag+"^{commit}") == git("rev-parse", "HEAD") {
		tag = git(append(describe, "HEAD^")...)
	}
	if tag == "" {
		return executable, "this one, because none is tagged"
	}
	dir := t.TempDir()
	archive := filepath.Join(dir, "source.tar")
	for _, step := range [][]string{
		{"git", "-C", "../../..", "archive", "--output", archive, tag},
		{"tar", "-x", "-f", archive, "-C", dir},
		{"go", "build", "-C", dir, "-o", filepath.Join(dir, "leadlog"), "./cmd/leadlog"},
	} {
		printed, err := exec.CommandContext(t.Context(), step[0], step[1:]...).CombinedOutput()
		require.NoError(t, err, "%v: %s", step, printed)
	}
	return filepath.Join(dir, "leadlog"), tag
}

// The release before and this program serve one database at the same time, as during an upgrade.
func TestUpgrade_OldBesideNew(t *testing.T) {
	pgtest.System(t)
	t.Parallel()
	older, tag := buildRelease(t)
	t.Log("the release before is", tag)
	settings := emptySettings(t)
	old := func(args ...string) *program {
		cmd := command(settings, args...)
		cmd.Path = older
		out := &buffer{}
		p := start(t, out, cmd)
		p.out = out
		return p
	}
	old("migrate").exits(t, 0)
	old("account", "set", "acme", "--feature", "crm_api").exits(t, 0)
	jwt := mint(t, settings, "acme")
	before := old("serve")
	oldBase := "http://" + before.waitFor(t, before.err, `"listening","addr":"([^"]+)"`)
	receiver := newReceiver(t)
	mustCall(t, "POST", oldBase+"/webhooks/endpoints", jwt, `{"url":"`+receiver.URL+`"}`).is(t, 201)
	capture := func(base, bearer string, n int, source string) answer {
		body := fmt.Sprintf(`{"phone":"+1202555%04d","metadata":{"source":"%s"}}`, n, source)
		return mustCall(t, "POST", base+leadsPath, bearer, body)
	}
	capture(oldBase, jwt, 1, "website").is(t, 201)

	launch(t, settings, "migrate").exits(t, 0)
	capture(oldBase, jwt, 2, "website").is(t, 201)
	after, newBase := serve(t, settings)
	waitReady(t, newBase)

	both := []string{oldBase, newBase}
	var last answer
	for n := range 20 {
		one, other := both[n%2], both[1-n%2]
		created := capture(one, jwt, 10+n, "website").is(t, 201)
		last = capture(other, jwt, 10+n, "whatsapp").is(t, 200)
		require.Equal(t, created.data()["leadId"], last.data()["leadId"])

		// both get the first arrival of a person at once
		answers := make([]answer, 2)
		var calls sync.WaitGroup
		for i, base := range both {
			calls.Go(func() {
				answers[i], _ = call(t.Context(), "POST", base+leadsPath, jwt, fmt.Sprintf(`{"phone":"+1202556%04d",`+
					`"metadata":{"source":"website"}}`, n))
			})
		}
		calls.Wait()
		require.ElementsMatch(t, []int{200, 201}, []int{answers[0].status, answers[1].status})
		require.Equal(t, answers[0].data()["leadId"], answers[1].data()["leadId"])

		token := mustCall(t, "POST", one+"/api/v1/crm/tokens", jwt, `{"name":"CI","expiresInDays":3}`).is(t, 201).data()
		capture(other, token["plainToken"].(string), 10+n, "google_ad").is(t, 200)
		path := "/api/v1/crm/tokens/" + token["tokenId"].(string)
		rotated := mustCall(t, "POST", one+path+"/rotate", jwt, "").is(t, 200).data()["plainToken"].(string)
		capture(other, token["plainToken"].(string), 10+n, "chatbot").is(t, 401)
		capture(one, rotated, 10+n, "chatbot").is(t, 200)
		last = mustCall(t, "DELETE", other+path, jwt, "").is(t, 200)
		capture(one, rotated, 10+n, "landing").is(t, 401)
	}
	position := last.header.Get("X-Log-Position")
	require.Equal(t, readView(t, oldBase, jwt, position), readView(t, newBase, jwt, position))
	require.Eventually(t, func() bool {
		return len(receiver.missing([]string{position})) == 0
	}, soon, 20*time.Millisecond)
	require.Zero(t, receiver.repeated())

	before.stop(t)
	capture(newBase, jwt, 3, "website").is(t, 201)
	after.stop(t)
	launch(t, settings, "verify").exits(t, 0)

	// The way back: without a migration the old program starts again, otherwise it refuses.
	if p := old("migrate"); p.wait(t) != 0 {
		require.Contains(t, p.err.String(), "newer than this program")
		require.Contains(t, old("serve").exits(t, 1).err.String(), "newer than this program")
		return
	}
	before = old("serve")
	oldBase = "http://" + before.waitFor(t, before.err, `"listening","addr":"([^"]+)"`)
	capture(oldBase, jwt, 4, "website").is(t, 201)
	before.stop(t)
	launch(t, settings, "verify").exits(t, 0)
}
