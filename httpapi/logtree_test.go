package httpapi_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"filippo.io/torchwood"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/audit"
	"github.com/leadlog/leadlog/eventstore/merkle"
	"github.com/leadlog/leadlog/projection/transparency"
	"github.com/leadlog/leadlog/query/logtree"
)

// logOrigin is the origin in the checkpoints of a service's log.
const logOrigin = "leads.example.com/log"

// publishTree publishes the tree of the log until the test ends, and returns the key of its checkpoints. The database
// is the test's own.
func (s *service) publishTree() note.Verifier {
	s.t.Helper()
	require.Equal(s.t, s.t, s.owner)
	signer, err := merkle.NewSigner(logOrigin, []byte(jwtSecret))
	require.NoError(s.t, err)
	publisher := transparency.New(transparency.Options{
		Pool: s.pool, Log: s.store.below, Signer: signer, Logger: slog.New(slog.DiscardHandler),
		WriteInterval: 10 * time.Millisecond,
	})
	inBackground(s.t, publisher.Run)
	return signer
}

// published waits for a checkpoint of at least this many events, and verifies it.
func (s *service) published(key note.Verifier, events int64) (c torchwood.Checkpoint) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		r := s.request(call{method: http.MethodGet, path: "/api/v1/crm/audit/checkpoint"})
		if r.status != http.StatusOK {
			return false
		}
		var err error
		c, _, err = torchwood.VerifyCheckpoint([]byte(r.raw),
			torchwood.ThresholdPolicy(2, torchwood.OriginPolicy(logOrigin), torchwood.SingleVerifierPolicy(key)))
		require.NoError(s.t, err)
		require.Empty(s.t, c.Extension)
		return c.N >= events
	}, time.Minute, 10*time.Millisecond)
	return c
}

// tileClient reads tiles over HTTP.
type tileClient struct{ s *service }

func (tileClient) Height() int                         { return torchwood.TileHeight }
func (tileClient) SaveTiles(_ []tlog.Tile, _ [][]byte) {}

func (r tileClient) ReadTiles(tiles []tlog.Tile) (all [][]byte, err error) {
	for _, tile := range tiles {
		answer, err := r.s.server.Client().Get(r.s.server.URL + "/api/v1/crm/audit/" + torchwood.TilePath(tile))
		if err != nil {
			return nil, err
		}
		body, err := io.ReadAll(answer.Body)
		if answer.Body.Close(); err != nil || answer.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("%s: %d %w", tile.Path(), answer.StatusCode, err)
		}
		all = append(all, body)
	}
	return all, nil
}

func TestLogTree_LimitedByAddress(t *testing.T) {
	t.Parallel()
	s := start(t, stopped)
	read := func(path string) reply {
		return s.request(call{method: http.MethodGet, path: "/api/v1/crm/audit/" + path})
	}
	for range 1000 {
		read("tile/0/000").is(http.StatusNotFound)
		read("checkpoint").is(http.StatusServiceUnavailable)
	}
	read("tile/0/000").requireLimited()
	read("checkpoint").requireLimited()
	s.capture(fullArrival).is(http.StatusCreated)
}

// A client with only the public key can prove every event of the published tree.
func TestLogTree_ClientVerifiesEveryEvent(t *testing.T) {
	t.Parallel()
	s := startAlone(t)
	require.Equal(t, http.StatusServiceUnavailable,
		s.request(call{method: http.MethodGet, path: "/api/v1/crm/audit/checkpoint"}).status)
	var batch strings.Builder
	for n := range 100 { // at least three events for each line, more than a tile
		fmt.Fprintf(&batch, `{"name":"A","phone":"98765%05d","email":"a%d@example.com"}`+"\n", n, n)
	}
	require.Equal(t, http.StatusOK, s.sendBatch(batch.String()).status)
	var leaves []eventstore.Recorded
	head, err := s.store.below.Head(t.Context())
	require.NoError(t, err)
	for reading := (eventstore.Range{Until: head, Limit: 1000}); reading.After < head; {
		events, reached, err := eventstore.ReadRange(t.Context(), s.store.below, reading)
		require.NoError(t, err)
		leaves, reading.After = append(leaves, events...), reached
	}
	require.Greater(t, len(leaves), torchwood.TileWidth)
	c := s.published(s.publishTree(), int64(len(leaves)))

	reader := tlog.TileHashReader(c.Tree, tileClient{s}) // the reader verifies the tiles
	for i, e := range leaves {
		record, err := audit.LogRecord(e)
		require.NoError(t, err)
		proof, err := tlog.ProveRecord(c.N, int64(i), reader)
		require.NoError(t, err)
		require.NoError(t, tlog.CheckRecord(proof, c.N, c.Hash, int64(i), tlog.RecordHash(record)))
		if i%50 == 0 {
			at, leafRecord, err := logtree.Reader{
				Pool: s.pool, Log: s.store.below, Origin: logOrigin,
			}.LeafIndex(t.Context(), e.Position)
			require.NoError(t, err)
			require.EqualValues(t, i, at)
			require.Equal(t, record, leafRecord)
		}
	}

	full, err := tileClient{s}.ReadTiles([]tlog.Tile{{H: 8, N: 0, W: 256}})
	require.NoError(t, err)
	part, err := tileClient{s}.ReadTiles([]tlog.Tile{{H: 8, N: 0, W: 7}})
	require.NoError(t, err)
	require.True(t, bytes.HasPrefix(full[0], part[0]))
	require.Len(t, part[0], 7*tlog.HashSize)
	r := s.request(call{method: http.MethodGet, path: "/api/v1/crm/audit/tile/0/000"})
	require.Contains(t, r.header.Get("Cache-Control"), "immutable")
	for _, path := range []string{
		"0/001", "0/001.p/255", "0/002", "1/000", "1/000.p/2", "2/000.p/1", "7/000", "8/000",
		"99999999999999999999/000", "-1/000", "0/0", "0/000.p/0", "0/000.p/256", "0/000.p/007", "0/x000/000",
		"entries/000", "data/000", "0/x999/x999/x999/999", "0/x009/x000/x000/x000/x000/x000/000",
		"7/x036/x028/x797/x018/x963/968", "0/", "0/000/",
	} {
		require.Equal(t, http.StatusNotFound,
			s.request(call{method: http.MethodGet, path: "/api/v1/crm/audit/tile/" + path}).status, path)
	}
}
