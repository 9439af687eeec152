package transparency_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"filippo.io/torchwood"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/audit"
	"github.com/leadlog/leadlog/eventstore/merkle"
	"github.com/leadlog/leadlog/eventstore/storetest"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/projection/transparency"
	"github.com/leadlog/leadlog/query/logtree"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const origin = "leads.example.com/log"

// scene has the database of a tree and its publisher.
type scene struct {
	*projectiontest.World
	t      *testing.T
	signer *merkle.Signer
	logged projectiontest.Output
}

func newScene(t *testing.T) *scene {
	t.Helper()
	signer, err := merkle.NewSigner(origin, bytes.Repeat([]byte{7}, 32))
	require.NoError(t, err)
	return &scene{World: projectiontest.New(t), t: t, signer: signer}
}

// publish publishes the tree of a log until stop is called.
func (s *scene) publish(log eventstore.Store, witnesses ...merkle.Witness) (k *transparency.Publisher, stop func()) {
	s.t.Helper()
	k = transparency.New(transparency.Options{
		Pool: s.Pool, Log: log, Signer: s.signer, Witnesses: witnesses, Quorum: len(witnesses),
		Logger: slog.New(slog.NewTextHandler(&s.logged, nil)), WriteInterval: 5 * time.Millisecond,
		WitnessInterval: 20 * time.Millisecond,
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { k.Run(ctx) })
	stop = func() { cancel(); running.Wait() }
	s.t.Cleanup(stop)
	return k, stop
}

// await waits until the newest published checkpoint has so many events, and verifies the published tree.
func (s *scene) await(log eventstore.Store, size int64) logtree.Checkpoint {
	s.t.Helper()
	reader := logtree.Reader{Pool: s.Pool, Log: log, Origin: origin}
	var c logtree.Checkpoint
	require.Eventually(s.t, func() bool {
		var err error
		c, err = reader.Checkpoint(s.t.Context())
		return err == nil && c.N == size
	}, projectiontest.Soon, 5*time.Millisecond, "%s", &s.logged)
	opened, err := note.Open([]byte(c.Note), note.VerifierList(s.signer))
	require.NoError(s.t, err)
	require.Equal(s.t, torchwood.Checkpoint{Origin: origin, Tree: c.Tree}.String(), opened.Text)
	require.Equal(s.t, rootOf(s.t, log, size), c.Hash)
	root, err := tlog.TreeHash(size, reader.Hashes(s.t.Context()))
	require.NoError(s.t, err)
	require.Equal(s.t, c.Hash, root, "the tiles are those of the checkpoint")
	return c
}

// faulty waits until signing has stopped, and returns the reason.
func (s *scene) faulty(k *transparency.Publisher) (fault string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		status, err := k.Status(s.t.Context())
		require.NoError(s.t, err)
		fault = status.Fault
		return fault != ""
	}, projectiontest.Soon, 5*time.Millisecond)
	return fault
}

// rootOf folds the first events of a log.
func rootOf(t *testing.T, log eventstore.Store, size int64) tlog.Hash {
	t.Helper()
	var tree merkle.Tiles
	for _, e := range storetest.Events(t, log, eventstore.Filter{})[:size] {
		leaf, err := audit.LogLeaf(e)
		require.NoError(t, err)
		tree.Add(leaf)
	}
	head, err := tree.Head()
	require.NoError(t, err)
	return head.Hash
}

// write appends events that depend only on their numbers.
func write(t *testing.T, log eventstore.Store, from, to int) {
	t.Helper()
	for n := from; n < to; n++ {
		at := projectiontest.Start.Add(time.Duration(n) * time.Millisecond)
		_, err := log.Append(t.Context(),
			eventstore.Write{Stream: fmt.Sprintf("lead-%d", n), Expect: eventstore.NoStream,
				Events: []eventstore.Event{{
					ID: ulid.MustNew(ulid.Timestamp(at), bytes.NewReader(make([]byte, 16))), Type: "lead.created.v1",
					At:   at,
					Data: fmt.Appendf(nil, `{"n":%d}`, n),
				}}})
		require.NoError(t, err)
	}
}

// rows returns the stored tiles without the columns that a copy of the log changes.
func (s *scene) rows() (rows []string) {
	s.t.Helper()
	err := s.Pool.QueryRow(s.t.Context(),
		`SELECT array_agg(concat(level, ' ', number, ' ', encode(hashes, 'hex')) ORDER BY level, number)
			FROM audit.tile`).Scan(&rows)
	require.NoError(s.t, err)
	return rows
}

func TestPublisher_FollowsLogOverRestarts(t *testing.T) {
	t.Parallel()
	s, log := newScene(t), storetest.Memory()
	write(t, log, 0, 3)
	_, stop := s.publish(log)
	first := s.await(log, 3)
	write(t, log, 3, 700)
	s.await(log, 700)
	stop()
	require.Equal(t, torchwood.TileWidth, 256)
	write(t, log, 700, 900)
	two, stopTwo := s.publish(log) // only one of two processes publishes
	_, stopThree := s.publish(log)
	s.await(log, 900)
	stopTwo()
	write(t, log, 900, 1024)
	s.await(log, 1024)
	stopThree()
	status, err := two.Status(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1024, status.Published)
	require.Empty(t, status.Fault)
	require.NotEmpty(t, first.Note)
	var kept int
	require.NoError(t, s.Pool.QueryRow(t.Context(), `SELECT count(*) FROM audit.checkpoint`).Scan(&kept))
	require.Equal(t, 1, kept)

	// A reader finds the leaf of each event.
	reader := logtree.Reader{Pool: s.Pool, Log: log, Origin: origin}
	for index, position := range []eventstore.Position{0: 1, 255: 256, 256: 257, 1023: 1024} {
		if position == 0 {
			continue
		}
		at, record, err := reader.LeafIndex(t.Context(), position)
		require.NoError(t, err)
		require.EqualValues(t, index, at)
		require.Contains(t, string(record), fmt.Sprintf(`"stream":"lead-%d"`, index))
	}
	_, _, err = reader.LeafIndex(t.Context(), 1025)
	require.ErrorIs(t, err, logtree.ErrNotCovered)
}

// An operator deletes the tree, as the runbook says for damaged tiles, but does not stop the service.
func TestPublisher_RebuildsTreeDeletedMeanwhile(t *testing.T) {
	t.Parallel()
	for name, statements := range map[string]string{
		"the state alone": `DELETE FROM audit.tree`,
		"all of it":       `DELETE FROM audit.tile; DELETE FROM audit.tree`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, log := newScene(t), storetest.Memory()
			write(t, log, 0, 300)
			k, _ := s.publish(log)
			s.await(log, 300)
			_, err := s.Pool.Exec(t.Context(), statements)
			require.NoError(t, err)
			write(t, log, 300, 301)
			s.await(log, 301)
			require.Eventually(t, func() bool {
				status, err := k.Status(t.Context())
				require.NoError(t, err)
				return status.Size == 301
			}, projectiontest.Soon, 5*time.Millisecond, "%s", &s.logged)
		})
	}
}

// After copy-log the tree is rebuilt from the copy and has the same bytes. The published tree stays available while
// this runs.
func TestPublisher_SameTreeOfCopy(t *testing.T) {
	t.Parallel()
	s, log, copied := newScene(t), storetest.Memory(), storetest.Memory()
	write(t, log, 0, 600)
	_, stop := s.publish(log)
	before := s.await(log, 600)
	stop()
	rows := s.rows()
	write(t, copied, 0, 600)
	k, stop := s.publish(copied)
	require.Equal(t, before, s.await(copied, 600))
	require.Eventually(t, func() bool {
		status, err := k.Status(t.Context())
		require.NoError(t, err)
		require.Empty(t, status.Fault)
		return status.Size == 600
	}, projectiontest.Soon, 5*time.Millisecond)
	require.Equal(t, rows, s.rows())
	write(t, copied, 600, 601)
	s.await(copied, 601)
	stop()
	_, err := s.Pool.Exec(t.Context(), `DELETE FROM audit.tree; DELETE FROM audit.tile`)
	require.NoError(t, err)
	s.publish(copied)
	require.Eventually(t, func() bool { return len(s.rows()) == len(rows) }, projectiontest.Soon, 5*time.Millisecond)
	write(t, copied, 601, 602)
	s.await(copied, 602)
}

// A log other than the published one is never signed: neither while it is shorter, nor after it has grown again.
func TestPublisher_RefusesRestoredLog(t *testing.T) {
	t.Parallel()
	s, log, restored := newScene(t), storetest.Memory(), storetest.Memory()
	write(t, log, 0, 300)
	_, stop := s.publish(log)
	published := s.await(log, 300)
	stop()
	write(t, restored, 0, 280)
	k, stop := s.publish(restored)
	require.Contains(t, s.faulty(k), "the log ends after 280 events, and a checkpoint of 300 was signed")
	stop()
	write(t, restored, 1000, 1100)
	k, stop = s.publish(restored)
	require.Eventually(t, func() bool {
		return strings.Contains(s.faulty(k), "event 281 of the log is not the one that was signed")
	},
		projectiontest.Soon, 5*time.Millisecond)
	require.Contains(t, s.logged.String(), "nothing more is signed")
	require.Equal(t, published, s.await(log, 300), "what was published stays, with its tiles")
	stop()

	write(t, log, 300, 310)
	k, _ = s.publish(log) // the right log again
	s.await(log, 310)
	status, err := k.Status(t.Context())
	require.NoError(t, err)
	require.Empty(t, status.Fault)
}

// Events that were in tiles but in no checkpoint were not published, so a failover may lose them.
func TestPublisher_LostEventsNotSigned(t *testing.T) {
	t.Parallel()
	s, log, restored := newScene(t), storetest.Memory(), storetest.Memory()
	write(t, log, 0, 300)
	_, stop := s.publish(log)
	s.await(log, 300)
	stop()
	_, err := s.Pool.Exec(t.Context(), `DELETE FROM audit.checkpoint`)
	require.NoError(t, err)
	write(t, restored, 0, 200)
	write(t, restored, 1000, 1003)
	s.publish(restored)
	s.await(restored, 203)
}

// The stock witness cosigns a growing log, and refuses a log that was restored from an older backup together with its
// database.
func TestPublisher_StockWitnessRefusesRestoredLog(t *testing.T) {
	t.Parallel()
	s, log, restored := newScene(t), storetest.Memory(), storetest.Memory()
	witness := stockWitness(t, "witness.example.com/w1", origin, s.signer.PublicKey())
	policy := torchwood.ThresholdPolicy(3, torchwood.OriginPolicy(origin), torchwood.SingleVerifierPolicy(s.signer),
		torchwood.SingleVerifierPolicy(witness.Key))
	write(t, log, 0, 5)
	k, stop := s.publish(log, witness)
	for _, size := range []int{5, 300, 301} {
		write(t, log, max(5, size-295), size) // 5 to 300, then the rest
		c := s.await(log, int64(size))
		_, _, err := torchwood.VerifyCheckpoint([]byte(c.Note), policy)
		require.NoError(t, err)
		if size == 300 {
			// the service does not know the size that the witness has: 409
			_, err := s.Pool.Exec(t.Context(), `DELETE FROM audit.witness`)
			require.NoError(t, err)
			write(t, log, 300, 301)
			break
		}
	}
	c := s.await(log, 301)
	_, _, err := torchwood.VerifyCheckpoint([]byte(c.Note), policy)
	require.NoError(t, err)
	stop()

	// an older backup of everything
	_, err = s.Pool.Exec(t.Context(), `TRUNCATE audit.tree, audit.tile, audit.checkpoint, audit.witness`)
	require.NoError(t, err)
	write(t, restored, 0, 200)
	k, _ = s.publish(restored, witness)
	refused := func() (reason string) {
		require.Eventually(t, func() bool {
			status, err := k.Status(t.Context())
			require.NoError(t, err)
			reason = status.Witnesses[0].Reason
			return reason != "" && status.Witnesses[0].Refusals > 0
		}, projectiontest.Soon, 5*time.Millisecond)
		return reason
	}
	require.Contains(t, refused(), "has seen a checkpoint of 301 events, and the log has 200")
	write(t, restored, 1000, 1200)
	require.Eventually(t, func() bool {
		return strings.Contains(refused(), "does not contain the checkpoint of 301 events that it cosigned")
	},
		projectiontest.Soon, 5*time.Millisecond)
	_, err = logtree.Reader{Pool: s.Pool, Log: restored, Origin: origin}.Checkpoint(t.Context())
	require.ErrorIs(t, err, logtree.ErrNoCheckpoint, "without the witness nothing is published")
	require.Contains(t, s.logged.String(), "witness does not cosign the log")
}

// A witness with an invalid answer, or without one, is named. A checkpoint with a quorum is published without it.
func TestPublisher_QuorumOfWitnesses(t *testing.T) {
	t.Parallel()
	s, log := newScene(t), storetest.Memory()
	good := stockWitness(t, "witness.example.com/w2", origin, s.signer.PublicKey())
	var answer atomic.Value
	answer.Store(func(w http.ResponseWriter) { w.WriteHeader(http.StatusForbidden) })
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answer.Load().(func(http.ResponseWriter))(w)
	}))
	defer server.Close()
	other := merkle.Witness{Key: cosignerOf(t, "bad.example.com").Verifier(), URL: server.URL}
	write(t, log, 0, 5)
	k, stop := s.publish(log, good, other) // the quorum is both
	says := func(text string) {
		t.Helper()
		require.Eventually(t, func() bool {
			status, err := k.Status(t.Context())
			require.NoError(t, err)
			require.Equal(t, "bad.example.com", status.Witnesses[1].Name)
			return strings.Contains(status.Witnesses[1].Reason, text) && status.Witnesses[1].Asked &&
				status.Witnesses[0].Reason == ""
		}, projectiontest.Soon, 5*time.Millisecond, text)
	}
	for want, give := range map[string]func(http.ResponseWriter){
		"refuses: 403": func(w http.ResponseWriter) { w.WriteHeader(http.StatusForbidden) },
		"without a good cosignature": func(w http.ResponseWriter) {
			_, _ = w.Write([]byte("— bad.example.com AAAA\n"))
		},
		"refuses: 503 é": func(w http.ResponseWriter) { // the hundredth byte is within a letter
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte("\x00\xff" + strings.Repeat("é", 100) + "x"))
		},
		"refuses: 500 aé": func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = w.Write([]byte("a" + strings.Repeat("é", 100)))
		},
		"refuses: 302": func(w http.ResponseWriter) {
			w.Header().Set("Location", good.URL)
			w.WriteHeader(http.StatusFound)
		},
		"refuses: 409": func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusConflict)
			_, _ = w.Write([]byte("-1\n"))
		},
		"has seen a checkpoint of 9223372036854775807 events": func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusConflict)
			_, _ = w.Write([]byte("9223372036854775807\n"))
		},
	} {
		answer.Store(give)
		says(want)
	}
	_, err := logtree.Reader{Pool: s.Pool, Log: log, Origin: origin}.Checkpoint(t.Context())
	require.ErrorIs(t, err, logtree.ErrNoCheckpoint)
	server.Close()
	says("does not answer")
	stop()
	k, _ = s.publish(log, good) // the quorum is one
	s.await(log, 5)
}

// Base64 has several encodings of one signature. A receipt has the canonical one, so a checkpoint must have it too.
func TestPublisher_CanonicalCosignature(t *testing.T) {
	t.Parallel()
	s, log := newScene(t), storetest.Memory()
	cosigner := cosignerOf(t, "loose.example.com")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, asked, _ := strings.Cut(string(body), "\n\n")
		text, _, _ := strings.Cut(asked, "\n\n")
		signed, err := note.Sign(&note.Note{Text: text + "\n"}, cosigner)
		if err != nil {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		line := bytes.TrimPrefix(signed, []byte(text+"\n\n"))
		line[bytes.LastIndex(line, []byte("=="))-1]++ // unused bits
		_, _ = w.Write(line)
	}))
	defer server.Close()
	write(t, log, 0, 5)
	s.publish(log, merkle.Witness{Key: cosigner.Verifier(), URL: server.URL})
	s.await(log, 5)
	receipt, err := logtree.Reader{Pool: s.Pool, Log: log, Origin: origin}.Receipt(t.Context(), 1)
	require.NoError(t, err)
	_, err = audit.OpenReceipt(receipt, merkle.Trust{
		PublicKey: s.signer.PublicKey(), Witnesses: []string{cosigner.Verifier().String()}, Quorum: 1,
	})
	require.NoError(t, err)
}
