package httpapi_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/leadlog/leadlog/command/token"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/audit"
	"github.com/leadlog/leadlog/eventstore/merkle"
)

const trail = "/api/v1/crm/audit/"

// eventually repeats a request until the answer meets a condition.
func (s *service) eventually(path string, is func(reply) bool) reply {
	s.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		r := s.as(http.MethodGet, path, "")
		if is(r) {
			return r
		}
		require.False(s.t, time.Now().After(deadline), "%s is still %s", path, r.raw)
	}
}

func TestAudit_RecordsRefusedUses(t *testing.T) {
	t.Parallel()
	s := start(t)
	use := func(value, requestID string) int {
		return s.send(call{method: http.MethodPost, path: leads, credential: value,
			body: `{}`, header: map[string]string{
				"User-Agent": "a thief", "X-Request-Id": requestID,
			}}).status
	}
	guessed, _ := s.token()
	neverIssued, err := token.NewValue(guessed, bytes.NewReader(make([]byte, 1000)))
	require.NoError(t, err)
	require.Equal(t, http.StatusUnauthorized, use(neverIssued.Reveal(), "guess"))
	rotated, oldValue := s.token()
	s.as(http.MethodPost, tokens+"/"+rotated+"/rotate", "").is(http.StatusOK)
	dryRunToken, dryRunValue := s.token()
	s.dryRun(dryRunValue, "", `{"phone":"9876543210"}`).is(http.StatusCreated)
	deleted, deletedValue := s.token()
	require.Equal(t, http.StatusBadRequest, use(deletedValue, "good"))
	s.as(http.MethodDelete, tokens+"/"+deleted, "").is(http.StatusOK)
	require.Equal(t, http.StatusUnauthorized, use(oldValue, "rotated"))
	require.Equal(t, http.StatusUnauthorized, use(deletedValue, "deleted"))

	listed := s.eventually(trail+"tokens?type=token.refused", func(r reply) bool {
		return len(r.at("data").([]any)) >= 2
	})
	reasons := map[string]any{}
	for _, one := range listed.at("data").([]any) {
		e := one.(map[string]any)
		require.Equal(t, "token:"+e["tokenId"].(string), e["actor"])
		require.Equal(t, []any{s.address, "a thief"}, []any{e["ip"], e["userAgent"]})
		data := e["data"].(map[string]any)
		require.Equal(t, data["reason"], e["requestId"])
		reasons[e["tokenId"].(string)] = data["reason"]
		require.Contains(t, oldValue+" "+deletedValue, data["prefix"])
	}
	require.Equal(t, map[string]any{rotated: "rotated", deleted: "deleted"}, reasons)
	own := s.as(http.MethodGet, tokens+"/"+rotated+"/events", "")
	require.Contains(t, own.raw, `"token.refused"`)
	for _, value := range []string{oldValue, deletedValue, neverIssued.Reveal()} {
		require.NotContains(t, listed.raw+own.raw+s.log.String(), value[len(value)-20:])
	}

	s.eventually(tokens+"/"+deleted, func(r reply) bool { return r.at("data", "lastUsedAt") != nil })
	require.Nil(t, s.as(http.MethodGet, tokens+"/"+rotated, "").at("data", "lastUsedAt"),
		"a refused use does not count as use")
	// a dry run counts as use
	s.eventually(tokens+"/"+dryRunToken, func(r reply) bool { return r.at("data", "lastUsedAt") != nil })
}

// appendTokenEvents appends seven token events and returns the last answer.
func (s *service) appendTokenEvents() (last reply) {
	s.t.Helper()
	id, _ := s.token()
	for range 5 {
		s.as(http.MethodPost, tokens+"/"+id+"/rotate", "")
	}
	return s.as(http.MethodDelete, tokens+"/"+id, "")
}

func parsed(t *testing.T, texts any) (hashes []tlog.Hash) {
	t.Helper()
	for _, text := range texts.([]any) {
		hash, err := tlog.ParseHash(text.(string))
		require.NoError(t, err)
		hashes = append(hashes, hash)
	}
	return hashes
}

// opened verifies the checkpoint in an answer, which is of the account's tree.
func (s *service) opened(data any) merkle.Checkpoint {
	s.t.Helper()
	signer, err := merkle.NewSigner(logOrigin, []byte(jwtSecret))
	require.NoError(s.t, err)
	signed, err := merkle.Trust{
		PublicKey: signer.PublicKey(),
	}.Open([]byte(data.(map[string]any)["checkpoint"].(string)))
	require.NoError(s.t, err)
	require.Equal(s.t, s.account, signed.Account)
	require.Equal(s.t, logOrigin+"/accounts/"+s.account+"/tokens", signed.Origin)
	return signed
}

func TestAudit_ProvesEveryTokenEvent(t *testing.T) {
	t.Parallel()
	s := start(t)
	last := s.appendTokenEvents()
	export := s.send(call{
		method: http.MethodGet, path: after(trail+"tokens", last), credential: s.jwt,
		header: map[string]string{"Accept": "application/x-ndjson"},
	})
	tree := s.as(http.MethodGet, after(trail+"tree", last), "")
	signed := s.opened(tree.at("data"))
	require.Equal(t, []any{tree.at("data", "publicKey"), tree.at("data", "rootHash")},
		[]any{signed.PublicKey, signed.Hash.String()})
	require.EqualValues(t, 7, signed.N)
	findings, events, err := audit.Check{
		Checkpoints: []merkle.Checkpoint{signed}, Limit: 9,
	}.Export(strings.NewReader(export.raw))
	require.NoError(t, err)
	require.Empty(t, findings)
	require.EqualValues(t, 7, events)

	for leaf, line := range strings.Split(strings.TrimSpace(export.raw), "\n") {
		var entry audit.Entry
		require.NoError(t, json.Unmarshal([]byte(line), &entry))
		require.EqualValues(t, leaf, entry.Leaf)
		logged, _, err := eventstore.ReadRange(t.Context(), s.store.below, eventstore.Range{
			After: entry.Position - 1, Until: entry.Position, Limit: 1,
		})
		require.NoError(t, err)
		logLeaf, err := audit.LogLeaf(logged[0])
		require.NoError(t, err)
		require.Equal(t, hex.EncodeToString(logLeaf[:]), entry.Digest, "an entry names its leaf in the tree of the log")
		for size := leaf + 1; size <= 7; size++ {
			r := s.as(http.MethodGet, fmt.Sprintf("%sproof?position=%d&size=%d", trail, entry.Position, size),
				"").is(http.StatusOK)
			signed := s.opened(r.at("data"))
			hash, err := entry.LeafHash(s.account)
			require.NoError(t, err)
			require.Equal(t, hash.String(), r.at("data", "leafHash"))
			require.NoError(t,
				tlog.CheckRecord(parsed(t, r.at("data", "proof")), signed.N, signed.Hash, entry.Leaf, hash))
		}
	}
	deleted, err := strconv.ParseUint(last.header.Get("X-Log-Position"), 10, 64)
	require.NoError(t, err)
	release := s.as(http.MethodGet, fmt.Sprint(trail, "proof?position=", deleted-1), "")
	require.Equal(t, http.StatusNotFound, release.status,
		"the release of the token's slot is not a token event: %s", release.raw)
}

func TestAudit_ProvesTreeConsistency(t *testing.T) {
	t.Parallel()
	s := start(t)
	last := s.appendTokenEvents()
	s.as(http.MethodGet, after(trail+"tree", last), "")
	for from := 1; from <= 7; from++ {
		for to := from; to <= 7; to++ {
			r := s.as(http.MethodGet, fmt.Sprintf("%sconsistency?from=%d&to=%d", trail, from, to), "").is(http.StatusOK)
			earlier, later := s.opened(r.at("data", "from")), s.opened(r.at("data", "to"))
			require.NoError(t,
				tlog.CheckTree(parsed(t, r.at("data", "proof")), later.N, later.Hash, earlier.N, earlier.Hash))
		}
	}
	for path, field := range map[string]string{
		"consistency": "from", "consistency?from=0": "from", "consistency?from=8": "from",
		"consistency?from=1&to=8": "to", "consistency?from=5&to=4": "from", "consistency?from=x": "from",
		"tree?size=8": "size", "tree?size=-1": "size", "proof": "position",
		"proof?position=x": "position",
	} {
		require.Equal(t, []string{field},
			s.as(http.MethodGet, trail+path, "").is(http.StatusBadRequest).fieldsNamed(), path)
	}
	for path, wants := range map[string]string{
		"consistency?from=5&to=4": "must be from 1 to 4,", "consistency?from=8": "must be from 1 to 7,",
		"consistency?from=1&to=8": "must be from 0 to 7:",
	} {
		require.Contains(t, s.as(http.MethodGet, trail+path, "").raw, wants, path)
	}
}

func TestAudit_TreeAuthorization(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.token()
	listed := s.eventually(trail+"tokens", func(r reply) bool { return len(r.at("data").([]any)) == 1 })
	position := listed.at("data").([]any)[0].(map[string]any)["position"]
	proof := fmt.Sprintf("%sproof?position=%v", trail, position)
	s.as(http.MethodGet, proof, "").is(http.StatusOK)
	require.Equal(t, http.StatusBadRequest, s.as(http.MethodGet, proof+"&size=0", "").status,
		"a tree of size 0 does not have the event")
	stranger := s.stranger("audit:read")
	require.Equal(t, http.StatusNotFound,
		s.send(call{method: http.MethodGet, path: proof, credential: stranger}).status)
	empty := s.send(call{method: http.MethodGet, path: trail + "tree", credential: stranger})
	require.EqualValues(t, 0, empty.at("data", "size"), empty.raw)
	for _, path := range []string{proof, trail + "tree", trail + "consistency?from=1"} {
		r := s.send(call{method: http.MethodGet, path: path, credential: s.mint(ownAccount, "tokens:read")})
		require.Equal(t, http.StatusForbidden, r.status, path)
	}
}
