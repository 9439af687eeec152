package audit_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/torchwood"
	"github.com/go-json-experiment/json"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/audit"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/merkle"
)

const logOrigin = "leadlog.example/log"

func newSigner(t testing.TB, name string, seed byte) *merkle.Signer {
	t.Helper()
	s, err := merkle.NewSigner(name, bytes.Repeat([]byte{seed}, 32))
	require.NoError(t, err)
	return s
}

// fixedWitness signs at a fixed time, so that a receipt is the same in every process. The signer of the library takes
// the present time.
type fixedWitness struct {
	*torchwood.CosignatureSigner
	key ed25519.PrivateKey
}

var cosignedAt = time.Date(2026, 3, 1, 9, 5, 0, 0, time.UTC)

func newWitness(t testing.TB, seed byte) fixedWitness {
	t.Helper()
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, 32))
	signer, err := torchwood.NewCosignatureSigner(fmt.Sprintf("witness-%d.example", seed), key)
	require.NoError(t, err)
	return fixedWitness{signer, key}
}

func (w fixedWitness) Sign(checkpoint []byte) ([]byte, error) {
	signed := fmt.Appendf(nil, "cosignature/v1\ntime %d\n%s", cosignedAt.Unix(), checkpoint)
	return append(binary.BigEndian.AppendUint64(nil, uint64(cosignedAt.Unix())), ed25519.Sign(w.key, signed)...), nil
}

// erased returns the stored event of an erasure.
func erased(t testing.TB) eventstore.Recorded {
	t.Helper()
	lead, joined := ulid.ULID{15: 1}.String(), ulid.ULID{15: 2}.String()
	eventType, data, err := event.Encode(event.LeadErased{
		Leads: []string{joined}, Claims: []string{"claim-00"},
		KeyCommitments: []event.KeyCommitment{{LeadID: lead, Commitment: strings.Repeat("0a", 32)}, {
			LeadID: joined, Commitment: strings.Repeat("0b", 32),
		}},
	})
	require.NoError(t, err)
	return eventstore.Recorded{
		Event: eventstore.Event{
			ID: ulid.ULID{15: 9}, Type: eventType, At: time.Date(2026, 3, 1, 9, 0, 0, 5e6, time.UTC), Data: data,
			Metadata: event.Metadata{Account: "acme", Actor: "user:ada"},
		},
		Stream: event.LeadStream(lead), Revision: 4, Position: 77,
	}
}

// receiptOf returns the receipt of an event in a log of seven events, cosigned by witnesses, and the keys to verify it.
func receiptOf(t testing.TB, e eventstore.Recorded, witnesses ...fixedWitness) (string, merkle.Trust) {
	t.Helper()
	const size, index = 7, 4
	leaf, err := audit.LogRecord(e)
	require.NoError(t, err)
	var stored []tlog.Hash
	reader := tlog.HashReaderFunc(func(indexes []int64) (hashes []tlog.Hash, err error) {
		for _, i := range indexes {
			hashes = append(hashes, stored[i])
		}
		return hashes, nil
	})
	for n := range int64(size) {
		record := []byte{byte(n)}
		if n == index {
			record = leaf
		}
		more, err := tlog.StoredHashes(n, record, reader)
		require.NoError(t, err)
		stored = append(stored, more...)
	}
	root, err := tlog.TreeHash(size, reader)
	require.NoError(t, err)
	path, err := tlog.ProveRecord(size, index, reader)
	require.NoError(t, err)
	signer := newSigner(t, logOrigin, 1)
	signers, trust := []note.Signer{signer}, merkle.Trust{PublicKey: signer.PublicKey(), Quorum: len(witnesses)}
	for _, w := range witnesses {
		signers, trust.Witnesses = append(signers, w), append(trust.Witnesses, w.Verifier().String())
	}
	signed, err := note.Sign(&note.Note{
		Text: torchwood.Checkpoint{Origin: logOrigin, Tree: tlog.Tree{N: size, Hash: root}}.String(),
	}, signers...)
	require.NoError(t, err)
	return string(merkle.FormatProof(leaf, index, path, signed)), trust
}

func TestReceipt_Opens(t *testing.T) {
	t.Parallel()
	witness, other := newWitness(t, 2), newWitness(t, 3)
	text, trust := receiptOf(t, erased(t), witness, other)
	r, err := audit.OpenReceipt([]byte(text), trust)
	require.NoError(t, err)
	require.Equal(t, audit.Leaf{
		At: "2026-03-01T09:00:00.005Z", ID: ulid.ULID{15: 9}.String(), Revision: 4, Stored: r.Leaf.Stored,
		Stream: event.LeadStream(ulid.ULID{15: 1}.String()), Type: "lead.erased.v1",
	}, r.Leaf)
	require.Equal(t, []any{int64(4), int64(7), logOrigin}, []any{r.Index, r.Checkpoint.N, r.Checkpoint.Origin})
	require.Equal(t, []string{witness.Name(), other.Name()}, []string{
		r.Checkpoint.Cosignatures[0].Witness, r.Checkpoint.Cosignatures[1].Witness,
	})
	require.True(t, r.Checkpoint.Cosignatures[0].Verified)
	require.Equal(t, cosignedAt, r.Checkpoint.Cosignatures[0].At)

	// torchwood, the library of other programs, accepts the receipt, too.
	leaf, err := torchwood.ProofExtraData([]byte(text))
	require.NoError(t, err)
	key, err := note.NewVerifier(trust.PublicKey)
	require.NoError(t, err)
	policy := torchwood.ThresholdPolicy(2, torchwood.OriginPolicy(logOrigin), torchwood.SingleVerifierPolicy(key))
	require.NoError(t, torchwood.VerifyProof(policy, tlog.RecordHash(leaf), []byte(text)))
}

func TestReceipt_Trust(t *testing.T) {
	t.Parallel()
	witness, other := newWitness(t, 2).Verifier().String(), newWitness(t, 3).Verifier().String()
	text, trust := receiptOf(t, erased(t), newWitness(t, 2))
	for name, c := range map[string]struct {
		trust merkle.Trust
		err   error
	}{
		"the log alone": {merkle.Trust{PublicKey: trust.PublicKey}, nil},
		"one of two": {
			merkle.Trust{PublicKey: trust.PublicKey, Witnesses: []string{witness, other}, Quorum: 1}, nil,
		},
		"two of two": {
			merkle.Trust{PublicKey: trust.PublicKey, Witnesses: []string{witness, other}, Quorum: 2},
			merkle.ErrCosignatures,
		},
		"another witness": {
			merkle.Trust{PublicKey: trust.PublicKey, Witnesses: []string{other}, Quorum: 1}, merkle.ErrCosignatures,
		},
		"a witness, not the log": {
			merkle.Trust{PublicKey: newSigner(t, logOrigin, 2).PublicKey(), Witnesses: []string{witness}, Quorum: 1},
			merkle.ErrSignature,
		},
		"the seed":               {merkle.Trust{Seed: bytes.Repeat([]byte{1}, 32)}, nil},
		"no key":                 {merkle.Trust{}, merkle.ErrPublicKey},
		"witness key as log key": {merkle.Trust{PublicKey: witness}, merkle.ErrPublicKey},
		"log key as witness key": {
			merkle.Trust{PublicKey: trust.PublicKey, Witnesses: []string{trust.PublicKey}, Quorum: 1},
			merkle.ErrWitnessKey,
		},
		"a witness key twice": {
			merkle.Trust{PublicKey: trust.PublicKey, Witnesses: []string{witness, witness}, Quorum: 1},
			merkle.ErrWitnessKey,
		},
	} {
		_, err := audit.OpenReceipt([]byte(text), c.trust)
		require.ErrorIs(t, err, c.err, name)
	}
}

// The same key signs the trees of accounts, which have other leaves.
func TestReceipt_RefusesTreeOfAccount(t *testing.T) {
	t.Parallel()
	leaf, err := audit.LogRecord(erased(t))
	require.NoError(t, err)
	signer, tree := newSigner(t, logOrigin, 1), merkle.Tiles{}
	tree.Add(tlog.RecordHash(leaf))
	head, err := tree.Head()
	require.NoError(t, err)
	for account, want := range map[string]error{"": nil, "acme": merkle.ErrProof} {
		signed, err := signer.SignTree(account, head)
		require.NoError(t, err)
		_, err = audit.OpenReceipt(merkle.FormatProof(leaf, 0, nil, []byte(signed)), merkle.Trust{
			PublicKey: signer.PublicKey(),
		})
		require.ErrorIs(t, err, want)
	}
}

// Also the unused bits of base64 must not change.
func TestReceipt_RefusesAnyChange(t *testing.T) {
	t.Parallel()
	text, trust := receiptOf(t, erased(t), newWitness(t, 2))
	refused := func(changed, what string) {
		_, err := audit.OpenReceipt([]byte(changed), trust)
		require.Error(t, err, what)
	}
	for i := range len(text) {
		for _, bit := range []byte{1, 2, 4, 16, 32} {
			b := []byte(text)
			b[i] ^= bit
			refused(string(b), fmt.Sprintf("bit %d of byte %d", bit, i))
		}
		refused(text[:i], fmt.Sprintf("cut at %d", i))
		refused(text[:i]+text[i+1:], fmt.Sprintf("without byte %d", i))
	}
	lines := strings.SplitAfter(text, "\n")
	for i := range lines[:len(lines)-1] {
		refused(strings.Join(slices.Delete(slices.Clone(lines), i, i+1), ""), "without line "+lines[i])
		refused(strings.Join(slices.Insert(slices.Clone(lines), i, lines[i]), ""), "twice line "+lines[i])
	}
	refused(text+"\n", "one more line")
	refused(strings.Replace(text, "index 4", "index +4", 1), "another spelling of the index")
	refused(strings.Replace(text, "index 4", "index 5", 1), "another index")
}

// The hash of a leaf covers its bytes, so there must be one encoding.
func TestParseLeaf_OneEncoding(t *testing.T) {
	t.Parallel()
	record, err := audit.LogRecord(erased(t))
	require.NoError(t, err)
	_, err = audit.ParseLeaf(record)
	require.NoError(t, err)
	for _, change := range [][2]string{
		{`"revision":4`, `"revision":-4`}, {`"revision":4`, `"revision":4.0`}, {`"revision":4`, `"revision": 4`},
		{`"at":"2026`, `"at":"x026`},
		{`,"type"`, `,"more":1,"type"`}, {`"stored":"`, `"stored":"00`}, {`"type":"lead`, `"type":"\u006cead`},
		{`"id":"0000`, `"id":"u000`}, {`{"at"`, `{"At"`},
	} {
		changed := strings.Replace(string(record), change[0], change[1], 1)
		require.NotEqual(t, string(record), changed)
		_, err := audit.ParseLeaf([]byte(changed))
		require.Error(t, err, changed)
	}
}

func TestReceipt_Compare(t *testing.T) {
	t.Parallel()
	text, trust := receiptOf(t, erased(t))
	r, err := audit.OpenReceipt([]byte(text), trust)
	require.NoError(t, err)
	shown := map[string]any{
		"id": r.Leaf.ID, "type": "lead.erased", "revision": 4, "position": 9, "at": "2026-03-01T09:00:00.005Z",
		"data": map[string]any{},
	}
	compare := func(change map[string]any) (string, error) {
		given := map[string]any{}
		for _, from := range []map[string]any{shown, change} {
			for name, value := range from {
				given[name] = value
			}
		}
		for name, value := range given {
			if value == nil {
				delete(given, name)
			}
		}
		encoded, err := json.Marshal(given)
		require.NoError(t, err)
		return r.Compare(encoded)
	}
	for _, same := range []map[string]any{{}, {"position": 10}, {"stream": r.Leaf.Stream}} {
		difference, err := compare(same)
		require.NoError(t, err)
		require.Empty(t, difference)
	}
	for name, other := range map[string]any{
		"id": ulid.ULID{15: 3}.String(), "type": "lead.merged", "revision": 5, "at": "2026-03-01T09:00:00.006Z",
		"stream": "lead-2",
	} {
		difference, err := compare(map[string]any{name: other})
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(difference, fmt.Sprintf("%s is %v in the event, and ", name, other)),
			difference)
		if name != "stream" {
			_, err = compare(map[string]any{name: nil})
			require.ErrorIs(t, err, audit.ErrEvent, name)
		}
	}
	for _, text := range []string{"", "[]", "null", `{"id":1}`, `{"id":"a","id":"b"}`} {
		_, err := r.Compare([]byte(text))
		require.ErrorIs(t, err, audit.ErrEvent, text)
	}
}

func FuzzOpenReceipt(f *testing.F) {
	text, trust := receiptOf(f, erased(f), newWitness(f, 2))
	f.Add([]byte(text))
	f.Add([]byte(strings.Replace(text, "extra ", "extra e30=", 1)))
	f.Add([]byte("c2sp.org/tlog-proof@v1\nextra \nindex 0\n\n"))
	f.Fuzz(func(t *testing.T, given []byte) {
		if _, err := audit.OpenReceipt(given, trust); err == nil {
			require.Equal(t, text, string(given))
		}
	})
}

func FuzzParseLeaf(f *testing.F) {
	record, err := audit.LogRecord(erased(f))
	require.NoError(f, err)
	f.Add(record)
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, given []byte) {
		if l, err := audit.ParseLeaf(given); err == nil {
			written, err := json.Marshal(l, json.Deterministic(true))
			require.NoError(t, err)
			require.Equal(t, string(given), string(written))
		}
	})
}

func certificate(t testing.TB) (audit.Certificate, merkle.Trust) {
	t.Helper()
	proof, trust := receiptOf(t, erased(t), newWitness(t, 2))
	c, err := audit.NewCertificate(erased(t), []byte(proof), time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC))
	require.NoError(t, err)
	c.Endpoints = []audit.NotifiedEndpoint{{WebhookID: "w", Host: "crm.example", State: audit.Acknowledged}}
	return c, trust
}

func TestOpenCertificate_DetectsChanges(t *testing.T) {
	t.Parallel()
	c, trust := certificate(t)
	written := func(v any) []byte {
		text, err := json.Marshal(v)
		require.NoError(t, err)
		return text
	}
	for _, text := range [][]byte{written(c), written(map[string]any{"success": true, "data": c})} {
		opened, r, err := audit.OpenCertificate(text, trust)
		require.NoError(t, err)
		require.Equal(t, c, opened)
		require.Equal(t, c.Erasure.ID, r.Leaf.ID)
	}
	require.Equal(t, "user:ada", c.Erasure.Actor)
	require.Len(t, c.KeyCommitments, 2)
	require.NotEmpty(t, c.CannotProve)
	for name, change := range map[string]func(*audit.Certificate){
		"leadId":      func(c *audit.Certificate) { c.LeadID = c.JoinedLeads[0] },
		"joinedLeads": func(c *audit.Certificate) { c.JoinedLeads = nil },
		"keyCommitments": func(c *audit.Certificate) {
			c.KeyCommitments = slices.Clone(c.KeyCommitments)
			c.KeyCommitments[1].Commitment = "00"
		},
		"erasure.id":       func(c *audit.Certificate) { c.Erasure.ID = c.LeadID },
		"erasure.type":     func(c *audit.Certificate) { c.Erasure.Type = "lead.created" },
		"erasure.stream":   func(c *audit.Certificate) { c.Erasure.Stream += "0" },
		"erasure.revision": func(c *audit.Certificate) { c.Erasure.Revision++ },
		"erasure.at":       func(c *audit.Certificate) { c.Erasure.At = "2026-03-01T09:00:00.006Z" },
		"erasure.actor":    func(c *audit.Certificate) { c.Erasure.Actor = "user:eve" },
		"erasure.stored": func(c *audit.Certificate) {
			c.Erasure.Stored = append(slices.Clone(c.Erasure.Stored), ' ')
		},
	} {
		changed := c
		change(&changed)
		_, _, err := audit.OpenCertificate(written(changed), trust)
		require.ErrorContains(t, err, name+" is not what the proof says", name)
	}
	other := erased(t)
	other.Type, other.Data = "lead.created.v1", []byte("{}")
	c.Proof, _ = receiptOf(t, other, newWitness(t, 2))
	_, _, err := audit.OpenCertificate(written(c), trust)
	require.ErrorContains(t, err, "its proof is of an event of type lead.created")
	for _, text := range []string{"", "{}", "[]", `{"data":null}`} {
		_, _, err := audit.OpenCertificate([]byte(text), trust)
		require.Error(t, err, text)
	}
}

func FuzzOpenCertificate(f *testing.F) {
	c, trust := certificate(f)
	text, err := json.Marshal(c)
	require.NoError(f, err)
	f.Add(text)
	f.Add([]byte(base64.StdEncoding.EncodeToString(text)))
	f.Fuzz(func(t *testing.T, given []byte) {
		if opened, _, err := audit.OpenCertificate(given, trust); err == nil {
			require.Equal(t, []any{c.LeadID, c.KeyCommitments, c.Erasure},
				[]any{opened.LeadID, opened.KeyCommitments, opened.Erasure})
		}
	})
}
