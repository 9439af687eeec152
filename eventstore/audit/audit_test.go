package audit_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/audit"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/merkle"
)

// recorded returns the nth event of a log, which repeats four types of token events.
func recorded(t testing.TB, n int) (eventstore.Recorded, event.Data) {
	t.Helper()
	at := time.Date(2026, 3, 1, 9, 0, n, 0, time.UTC)
	data := []event.Data{
		event.TokenCreated{
			Name: "CI \"ü\"", Prefix: "leadlog_a", Hash: []byte("hash"), Days: 30, ExpiresAt: at, Slot: 1,
		},
		event.TokenRotated{Prefix: "leadlog_b", Hash: []byte("hash"), ExpiresAt: at, PreviousExpiresAt: at},
		event.TokenRefused{Reason: "rotated", Prefix: "leadlog_a"},
		event.TokenDeleted{},
	}[n%4]
	eventType, encoded, err := event.Encode(data)
	require.NoError(t, err)
	return eventstore.Recorded{
		Event: eventstore.Event{ID: ulid.ULID{
			14: byte(n >> 8), 15: byte(n),
		}, Type: eventType, At: at, Data: encoded, Metadata: event.Metadata{
			Account: "acme", Actor: "user:ada", IP: "192.0.2.7", UserAgent: "a <browser>",
			RequestID: fmt.Sprint("r-", n),
		}},
		Stream: event.TokenStream("T"), Revision: eventstore.Revision(n), Position: eventstore.Position(3*n + 7),
	}, data
}

// exported returns the lines of an export of n events, and the Merkle tree over them.
func exported(t testing.TB, n int) (lines []string, tree *merkle.Tiles) {
	t.Helper()
	tree = &merkle.Tiles{}
	for i := range n {
		r, data := recorded(t, i)
		entry, err := audit.NewEntry(r, data, int64(i))
		require.NoError(t, err)
		entry, err = entry.Sealed()
		require.NoError(t, err)
		hash, err := entry.LeafHash("acme")
		require.NoError(t, err)
		tree.Add(hash)
		line, err := json.Marshal(entry, json.Deterministic(true))
		require.NoError(t, err)
		lines = append(lines, string(line)+"\n")
	}
	return lines, tree
}

// checkpoint returns the checkpoint of a tree, as an auditor opens it.
func checkpoint(t testing.TB, tree *merkle.Tiles) merkle.Checkpoint {
	t.Helper()
	head, err := tree.Head()
	require.NoError(t, err)
	signer := newSigner(t, logOrigin, 1)
	text, err := signer.SignTree("acme", head)
	require.NoError(t, err)
	c, err := merkle.Trust{PublicKey: signer.PublicKey()}.Open([]byte(text))
	require.NoError(t, err)
	return c
}

func check(t testing.TB, c merkle.Checkpoint, export string) []string {
	t.Helper()
	return checkAll(t, []merkle.Checkpoint{c}, export)
}

func checkAll(t testing.TB, signed []merkle.Checkpoint, export string) []string {
	t.Helper()
	findings, _, err := audit.Check{Checkpoints: signed, Limit: 5}.Export(strings.NewReader(export))
	require.NoError(t, err)
	return findings
}

func TestCheck_CompleteExport(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 2, 7, 100} {
		lines, tree := exported(t, n)
		require.Empty(t, check(t, checkpoint(t, tree), strings.Join(lines, "")), n)
	}
}

func TestCheck_EmptyLines(t *testing.T) {
	t.Parallel()
	lines, tree := exported(t, 3)
	h, whole := checkpoint(t, tree), strings.Join(lines, "")
	for _, end := range []string{"\n", "\r\n", "\n\n \n"} {
		findings, events, err := audit.Check{
			Checkpoints: []merkle.Checkpoint{h}, Limit: 5,
		}.Export(strings.NewReader(whole + end))
		require.NoError(t, err)
		require.Empty(t, findings, "%q", end)
		require.EqualValues(t, 3, events)
	}
	require.Equal(t, []string{"line 2: is empty"}, check(t, h, lines[0]+"\n\n"+lines[1]+lines[2]))
}

func TestCheck_DetectsAnyChangedByte(t *testing.T) {
	t.Parallel()
	lines, tree := exported(t, 4)
	h := checkpoint(t, tree)
	for k := range lines {
		for i := range len(lines[k]) {
			changed := slices.Clone(lines)
			b := []byte(lines[k])
			b[i] ^= 1
			changed[k] = string(b)
			found := check(t, h, strings.Join(changed, ""))
			require.NotEmpty(t, found, "byte %d of %s", i, lines[k])
			require.True(t, strings.HasPrefix(found[0], fmt.Sprintf("line %d", k+1)),
				"%s: byte %d of %s", found[0], i, lines[k])
			if b[len(b)-1] == '\n' {
				require.Len(t, found, 1, "only this line is reported: byte %d of %s", i, lines[k])
			}
		}
	}
}

// An attacker can recompute the lineHash of a changed line.
func FuzzCheck_Export(f *testing.F) {
	lines, tree := exported(f, 4)
	h := checkpoint(f, tree)
	for n, line := range lines {
		f.Add(n, line)
		f.Add(n, strings.Replace(line, `"position":`, `"position": 1`, 1))
		f.Add(n, strings.Replace(line, `"actor":"user:ada"`, `"actor":"user:eve"`, 1))
		f.Add(n, line+line)
		f.Add(n, "")
	}
	read := func(t *testing.T, text string) (entries []audit.Entry) {
		for line := range strings.Lines(text) {
			if strings.TrimSpace(line) == "" {
				continue
			}
			var e audit.Entry
			require.NoError(t, json.Unmarshal([]byte(line), &e))
			e.Position, e.LineHash = 0, "" // these two are not signed
			entries = append(entries, e)
		}
		return entries
	}
	f.Fuzz(func(t *testing.T, n int, line string) {
		changed := slices.Clone(lines)
		changed[uint(n)%uint(len(lines))] = line
		var e audit.Entry
		if json.Unmarshal([]byte(line), &e) == nil {
			sealed, err := e.Sealed()
			require.NoError(t, err)
			written, err := json.Marshal(sealed)
			require.NoError(t, err)
			changed[uint(n)%uint(len(lines))] = string(written) + "\n"
		}
		export := strings.Join(changed, "")
		if len(check(t, h, export)) == 0 {
			require.Equal(t, read(t, strings.Join(lines, "")), read(t, export))
		}
	})
}

func TestCheck_LimitsFindings(t *testing.T) {
	t.Parallel()
	_, tree := exported(t, 4)
	findings, _, err := audit.Check{
		Checkpoints: []merkle.Checkpoint{checkpoint(t, tree)}, Limit: 2,
	}.Export(strings.NewReader("a\nb\nc\nd\n"))
	require.NoError(t, err)
	require.Len(t, findings, 2)
}

func TestCheck_LongLine(t *testing.T) {
	t.Parallel()
	lines, tree := exported(t, 2)
	found := check(t, checkpoint(t, tree), lines[0]+strings.Repeat("x", 2<<20)+"\n"+lines[1])
	require.Equal(t, "line 2: longer than any line of an export", found[0])
}

func TestCheck_MissingOrDuplicateEvents(t *testing.T) {
	t.Parallel()
	lines, tree := exported(t, 5)
	h := checkpoint(t, tree)
	id := func(n int) string { return ulid.ULID{15: byte(n)}.String() }
	for name, c := range map[string]struct {
		lines []string
		want  []string
	}{
		"one is missing": {
			[]string{lines[0], lines[2], lines[3], lines[4]},
			[]string{"line 2, event " + id(2) + ": is leaf 2 of the tree: leaf 1 is missing before it"},
		},
		"two are missing": {
			[]string{lines[0], lines[3], lines[4]},
			[]string{"line 2, event " + id(3) + ": is leaf 3 of the tree: leaves 1 to 2 are missing before it"},
		},
		"the last":     {lines[:4], []string{"the export ends early: leaf 4 of the tree, the last, is missing"}},
		"the last two": {lines[:3], []string{"the export ends early: leaves 3 to 4 of the tree are missing"}},
		"all":          {nil, []string{"the export ends early: leaves 0 to 4 of the tree are missing"}},
		"one is duplicated": {[]string{lines[0], lines[1], lines[1], lines[2], lines[3], lines[4]}, []string{
			"line 3, event " + id(1) + ": is leaf 1 of the tree: it is out of order, or there twice",
		}},
		"two are swapped": {[]string{lines[0], lines[2], lines[1], lines[3], lines[4]}, []string{
			"line 2, event " + id(2) + ": is leaf 2 of the tree: leaf 1 is missing before it",
			"line 3, event " + id(1) + ": is leaf 1 of the tree: it is out of order, or there twice",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, check(t, h, strings.Join(c.lines, "")))
		})
	}
	_, shorter := exported(t, 4)
	require.Equal(t, []string{
		"the export goes on after leaf 3, where the checkpoint ends: one of size 5 is needed to check it",
	},
		check(t, checkpoint(t, shorter), strings.Join(lines, "")))
}

func TestCheck_RewrittenLineHash(t *testing.T) {
	t.Parallel()
	lines, tree := exported(t, 3)
	var e audit.Entry
	require.NoError(t, json.Unmarshal([]byte(lines[1]), &e))
	e.Actor = "user:eve"
	e, err := e.Sealed()
	require.NoError(t, err)
	line, err := json.Marshal(e)
	require.NoError(t, err)
	require.Contains(t, check(t, checkpoint(t, tree), lines[0]+string(line)+"\n"+lines[2])[0],
		"not those of the checkpoint that was signed")
	other := checkpoint(t, tree)
	other.Account = "globex"
	require.Contains(t, check(t, other, strings.Join(lines, ""))[0], "not those of the checkpoint that was signed")
}

func TestCheck_EarlierCheckpoints(t *testing.T) {
	t.Parallel()
	var signed []merkle.Checkpoint
	for _, n := range []int{0, 3, 5} {
		_, tree := exported(t, n)
		signed = append(signed, checkpoint(t, tree))
	}
	lines, _ := exported(t, 5)
	require.Empty(t, checkAll(t, signed, strings.Join(lines, "")))
	signed[1].Hash[0]++
	require.Contains(t, checkAll(t, signed, strings.Join(lines, ""))[0], "the first 3 events are not those")
}

func TestEntry_Digest(t *testing.T) {
	t.Parallel()
	r, data := recorded(t, 0)
	first, err := audit.NewEntry(r, data, 0)
	require.NoError(t, err)
	moved := r
	moved.Position++
	same, err := audit.NewEntry(moved, data, 0)
	require.NoError(t, err)
	require.Equal(t, first.Digest, same.Digest,
		"the position is not part of the digest, so a copied log keeps its proofs")
	for name, change := range map[string]func(*eventstore.Recorded){
		"id": func(r *eventstore.Recorded) { r.ID[3]++ }, "stream": func(r *eventstore.Recorded) { r.Stream += "x" },
		"revision": func(r *eventstore.Recorded) { r.Revision++ },
		"type":     func(r *eventstore.Recorded) { r.Type = "token.created.v2" },
		"time":     func(r *eventstore.Recorded) { r.At = r.At.Add(time.Microsecond) },
		"hash": func(r *eventstore.Recorded) {
			r.Data = bytes.Replace(r.Data, []byte(`"slot":1`), []byte(`"slot":2`), 1)
		},
		"metadata": func(r *eventstore.Recorded) { r.Metadata.TraceParent = "00" },
	} {
		changed := r
		change(&changed)
		entry, err := audit.NewEntry(changed, data, 0)
		require.NoError(t, err)
		require.NotEqual(t, first.Digest, entry.Digest, name)
	}
}

// The hash was computed by another program. Auditors compare stored checkpoints with those of later versions.
func TestEntry_KnownRoot(t *testing.T) {
	t.Parallel()
	_, tree := exported(t, 4)
	require.Equal(t, "03/aBGfbL64iLxd5aPV0YWEq4YibGsPmH5AAwtBTPD8=", checkpoint(t, tree).Hash.String())
}

// Every change of a token is in the account's tree; only a use is not.
func TestIsLeaf_EveryChangeOfToken(t *testing.T) {
	t.Parallel()
	for _, name := range event.Catalogue() {
		isChange := strings.HasPrefix(name, "token.") && name != event.TokenUsed{}.EventType()
		require.Equal(t, isChange, audit.IsLeaf(name), name)
	}
}
