package systemtest

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"filippo.io/torchwood"
	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/note"
)

// witness cosigns every checkpoint, unless it refuses. The tests of projection/transparency have a real witness.
type witness struct {
	*httptest.Server
	signer  *torchwood.CosignatureSigner
	refuses atomic.Bool
}

func newWitness(t *testing.T, name string) *witness {
	t.Helper()
	signer, err := torchwood.NewCosignatureSigner(name,
		ed25519.NewKeyFromSeed(bytes.Repeat([]byte(name[:1]), ed25519.SeedSize)))
	require.NoError(t, err)
	w := &witness{signer: signer}
	w.Server = httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		_, checkpoint, found := strings.Cut(string(body), "\n\n")
		text, _, signed := strings.Cut(checkpoint, "\n\n")
		if err != nil || !found || !signed || r.URL.Path != "/add-checkpoint" || w.refuses.Load() {
			http.Error(answer, "no", http.StatusForbidden)
			return
		}
		cosigned, err := note.Sign(&note.Note{Text: text + "\n"}, signer)
		if err == nil {
			_, cosignature, _ := strings.Cut(string(cosigned), "\n\n")
			_, _ = io.WriteString(answer, cosignature)
		}
	}))
	t.Cleanup(w.Close)
	return w
}

func (w *witness) key() string { return w.signer.Verifier().String() }

func TestWitnesses_QuorumOfProgram(t *testing.T) {
	t.Parallel()
	good, late, stranger := newWitness(t, "good.example.com"), newWitness(t, "late.example.com"),
		newWitness(t, "stranger.example.com")
	late.refuses.Store(true)
	settings := serveSettings(t)
	settings["LEADLOG_WITNESSES"] = good.key() + "=" + good.URL + "," + late.key() + "=" + late.URL
	jwt := provision(t, settings)
	_, base := serve(t, settings)
	captured := mustCall(t, "POST", base+"/api/v1/crm/leads", jwt, personalBody).is(t, 201)
	lead, eventID := captured.data()["leadId"].(string), captured.header.Get("X-Event-Id")
	route := base + "/api/v1/crm/leads/" + lead + "/events/" + eventID + "/receipt"

	var ready answer
	require.Eventually(t, func() bool {
		ready = mustCall(t, "GET", base+"/readyz", "", "")
		text, err := json.Marshal(ready.body)
		return err == nil && ready.status == 200 && strings.Contains(string(text), "witness late.example.com") &&
			strings.Contains(string(text), "refuses: 403 no")
	}, soon, 50*time.Millisecond, "%v", ready)
	mustCall(t, "GET", base+"/api/v1/crm/audit/checkpoint", "", "").is(t, 503)
	require.Equal(t, "NOT_COVERED", mustCall(t, "GET", route, jwt, "").is(t, 404).body["code"])
	metrics := scrape(t, base)
	require.Regexp(t, `(?m)^leadlog_witness_refusals_total\{witness="late.example.com"\} [1-9]`, metrics)
	require.Regexp(t, `(?m)^leadlog_witness_refuses\{witness="late.example.com"\} 1$`, metrics)
	require.Regexp(t, `(?m)^leadlog_witness_refuses\{witness="good.example.com"\} 0$`, metrics)

	late.refuses.Store(false)
	receipt := text(t, route, jwt)
	shown, err := json.Marshal(
		mustCall(t, "GET", base+"/api/v1/crm/leads/"+lead+"/events", jwt, "").is(t, 200).body["data"].([]any)[0],
	)
	require.NoError(t, err)
	dir := t.TempDir()
	proof := []string{
		"verify", "--receipt", file(t, dir, "receipt.txt", receipt), "--event",
		file(t, dir, "event.json", string(shown)), "--public-key", logKey(t, settings, receipt),
	}
	require.Regexp(t, `(?m)^leadlog_witness_refuses\{witness="late.example.com"\} 0$`, scrape(t, base))
	other := strings.Replace(good.key(), "good.example.com", "x.example.com", 1)
	for _, c := range []struct {
		code  int
		flags []string
		want  string
	}{
		{0, nil, "cosignature of late.example.com not checked: give its key with --witness"},
		{0, []string{"--witness", good.key(), "--witness", late.key()}, "cosigned by late.example.com at "},
		{
			0, []string{"--witness", good.key(), "--witness", stranger.key(), "--quorum", "1"},
			"cosigned by good.example.com at ",
		},
		{1, []string{"--witness", good.key(), "--witness", stranger.key()}, "1, not 2"},
		{2, []string{"--witness", good.key(), "--quorum", "2"}, "--quorum=2: there are 1 of --witness"},
		{2, []string{"--witness", other}, "--witness: "},
	} {
		out, problem := outputOf(t, c.code, nil, append(proof[:len(proof):len(proof)], c.flags...)...)
		require.Contains(t, out+problem, c.want, c.flags)
	}
	// A modified cosignature is rejected.
	lines := strings.Split(strings.TrimSuffix(receipt, "\n"), "\n")
	for i, line := range lines {
		if encoded, is := strings.CutPrefix(line, "— late.example.com "); is {
			signature, err := base64.StdEncoding.DecodeString(encoded)
			require.NoError(t, err)
			signature[len(signature)-1] ^= 1
			lines[i] = "— late.example.com " + base64.StdEncoding.EncodeToString(signature)
		}
	}
	proof[2] = file(t, dir, "forged.txt", strings.Join(lines, "\n")+"\n")
	out, _ := outputOf(t, 1, nil, append(proof, "--witness", late.key())...)
	require.Contains(t, out, proof[2]+": ")
}
