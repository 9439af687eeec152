package httpapi

import (
	"net/http"
	"strings"

	"filippo.io/torchwood"

	"github.com/leadlog/leadlog/httpapi/quota"
	"github.com/leadlog/leadlog/query/logtree"
)

// The tree of the whole log is public: it consists of hashes, which reveal nothing about the events.
const (
	checkpointPath = "/api/v1/crm/audit/checkpoint"
	tilePath       = "/api/v1/crm/audit/tile/{level}/*"
)

// treeReads limits the reads of the tree by one address. At this rate, a monitor fetches all tiles of ten million
// events in seven minutes.
var treeReads = quota.Limit{Rate: 100, Burst: 2000}

// treeLimit is the label of this limit in metrics.
const treeLimit = "tree"

// takeTree counts a read of the tree against the quota of the client's address. The error is a limitError.
func (ex *exchange) takeTree() error {
	used := ex.failures.Take("tree "+ex.address(), treeReads)
	if !used.Allowed {
		ex.metrics.limited.WithLabelValues(treeLimit).Inc()
		return limitError{used.RetryAfter}
	}
	return nil
}

// showCheckpoint answers with the newest published checkpoint (c2sp.org/tlog-checkpoint).
func (ex *exchange) showCheckpoint() (answer, error) {
	if err := ex.takeTree(); err != nil {
		return answer{}, err
	}
	checkpoint, err := ex.LogTree.Checkpoint(ex.ctx)
	if err != nil {
		return answer{}, err
	}
	return ex.public("text/plain; charset=utf-8", "no-cache", []byte(checkpoint.Note)), nil
}

// showTile answers with a hash tile (c2sp.org/tlog-tiles), which never changes.
func (ex *exchange) showTile() (answer, error) {
	_, path, _ := strings.Cut(ex.r.URL.Path, "/api/v1/crm/audit/tile/")
	tile, err := torchwood.ParseTilePath("tile/" + path)
	if err != nil || tile.L < 0 {
		return answer{}, logtree.ErrNoTile
	}
	if err := ex.takeTree(); err != nil {
		return answer{}, err
	}
	hashes, err := ex.LogTree.Tile(ex.ctx, tile)
	if err != nil {
		return answer{}, err
	}
	// a year, in seconds
	return ex.public("application/octet-stream", "public, max-age=31536000, immutable", hashes), nil
}

// public answers pages of any origin too.
func (ex *exchange) public(media, caching string, body []byte) answer {
	header := ex.w.Header()
	header.Set("Content-Type", media)
	header.Set("Cache-Control", caching)
	header.Set("Access-Control-Allow-Origin", "*")
	header.Set("Cross-Origin-Resource-Policy", "cross-origin")
	return answer{stream: func() error {
		ex.w.WriteHeader(http.StatusOK)
		_, err := ex.w.Write(body)
		return err
	}}
}
