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
func (x *exchange) takeTree() error {
	used := x.failures.Take("tree "+x.address(), treeReads)
	if !used.Allowed {
		x.metrics.limited.WithLabelValues(treeLimit).Inc()
		return limitError{used.RetryAfter}
	}
	return nil
}

// showCheckpoint answers with the newest published checkpoint (c2sp.org/tlog-checkpoint).
func (x *exchange) showCheckpoint() (answer, error) {
	if err := x.takeTree(); err != nil {
		return answer{}, err
	}
	checkpoint, err := x.LogTree.Checkpoint(x.ctx)
	if err != nil {
		return answer{}, err
	}
	return x.public("text/plain; charset=utf-8", "no-cache", []byte(checkpoint.Note)), nil
}

// showTile answers with a hash tile (c2sp.org/tlog-tiles), which never changes.
func (x *exchange) showTile() (answer, error) {
	_, path, _ := strings.Cut(x.r.URL.Path, "/api/v1/crm/audit/tile/")
	tile, err := torchwood.ParseTilePath("tile/" + path)
	if err != nil || tile.L < 0 {
		return answer{}, logtree.ErrNoTile
	}
	if err := x.takeTree(); err != nil {
		return answer{}, err
	}
	hashes, err := x.LogTree.Tile(x.ctx, tile)
	if err != nil {
		return answer{}, err
	}
	// a year, in seconds
	return x.public("application/octet-stream", "public, max-age=31536000, immutable", hashes), nil
}

// public answers pages of any origin too.
func (x *exchange) public(media, caching string, body []byte) answer {
	header := x.w.Header()
	header.Set("Content-Type", media)
	header.Set("Cache-Control", caching)
	header.Set("Access-Control-Allow-Origin", "*")
	header.Set("Cross-Origin-Resource-Policy", "cross-origin")
	return answer{stream: func() error {
		x.w.WriteHeader(http.StatusOK)
		_, err := x.w.Write(body)
		return err
	}}
}
