package delivery_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore/event"
)

func TestWhatArrivesVerifiesWithTheStandardsJavaScriptLibraryToo(t *testing.T) {
	t.Parallel()
	w := begun(t)
	r := receive(t, good)
	id := target(t, w, r.URL)
	send(t, w)
	w.Append(t, "acme", event.LeadStream(w.NewID()), newLead("Ann"), event.LeadUpdated{Name: "Zoë Łukasz 李"})
	require.Equal(t, map[string]int{"delivered": 2}, states(t, w, id, 2))

	type delivery struct {
		Headers map[string]string `json:"headers"`
		Body    string            `json:"body"`
	}
	given := struct {
		Secret     string     `json:"secret"`
		Deliveries []delivery `json:"deliveries"`
	}{Secret: secret}
	for i, header := range r.received {
		d := delivery{Headers: map[string]string{}, Body: string(r.bodies[i])}
		for name := range header {
			d.Headers[strings.ToLower(name)] = header.Get(name)
		}
		given.Deliveries = append(given.Deliveries, d)
	}
	input, err := json.Marshal(given)
	require.NoError(t, err)
	verify := exec.CommandContext(t.Context(), "node", filepath.Join(javaScript(t), "verify.js"))
	verify.Stdin = bytes.NewReader(input)
	said, err := verify.CombinedOutput()
	require.NoError(t, err, "%s", said)
	require.Equal(t, "verified 2\n", string(said))
}

// javaScript is a directory with the library as npm gets it: the version and the hash of every file are in the lock
// file. It is kept between runs.
func javaScript(t *testing.T) string {
	t.Helper()
	files := []string{"package.json", "package-lock.json", "verify.js"}
	sum := sha256.New()
	for _, file := range files {
		content, err := os.ReadFile(filepath.Join("testdata/standardwebhooks", file))
		require.NoError(t, err)
		fmt.Fprintf(sum, "%d\n%s", len(content), content)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = t.TempDir() // no home: once for this run
	}
	kept := filepath.Join(cache, "leadlog", fmt.Sprintf("standardwebhooks-%x", sum.Sum(nil)[:8]))
	if _, err := os.Stat(kept); err == nil {
		return kept
	}
	require.NoError(t, os.MkdirAll(filepath.Dir(kept), 0o755))
	made, err := os.MkdirTemp(filepath.Dir(kept), "making-")
	require.NoError(t, err)
	defer os.RemoveAll(made)
	for _, file := range files {
		content, err := os.ReadFile(filepath.Join("testdata/standardwebhooks", file))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(made, file), content, 0o644))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	npm.Dir = made
	said, err := npm.CombinedOutput()
	require.NoError(t, err, "npm ci (make node installs npm): %s", said)
	if err := os.Rename(made, kept); err != nil { // another run was faster
		require.DirExists(t, kept)
	}
	return kept
}
