package httpapi

import (
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/query"
	"github.com/leadlog/leadlog/query/export"
)

// auditTokens answers with all token events of the account: page by page as JSON, all at once as CSV, JSON lines or
// Parquet.
func (ex *exchange) auditTokens() (answer, error) {
	p := ex.params()
	filter := query.AuditFilter{
		TokenID: p.text("tokenId"), Type: p.oneOf("type", query.TokenEventTypes()...), Since: p.time("since"),
		Until: p.time("until"),
	}
	page := p.page()
	if err := ex.waitFor(p, query.TokenEventView); err != nil {
		return answer{}, err
	}
	ex.w.Header().Add("Vary", "Accept")
	if media := preferred(ex.r.Header.Values("Accept"), mediaJSON, mediaCSV, mediaNDJSON,
		mediaParquet); media != mediaJSON {
		// A stream may take longer than the timeout of an answer; each write has a deadline instead.
		return streamed(ex, media, export.TokenEvents(),
			ex.Query.AuditTokensAll(ex.detached(), ex.caller.Account, filter)), nil
	}
	return listed(ex.Query.AuditTokens(ex.ctx, ex.caller.Account, filter, page))
}

// auditTrail answers with the audit records of the account, of changes and of accesses to personal data: by page as
// JSON, or all as CSV, JSON lines or Parquet.
func (ex *exchange) auditTrail() (answer, error) {
	p := ex.params()
	filter := query.TrailFilter{
		Type: strings.ToLower(p.text("type")), Actor: p.text("actor"), Subject: p.text("subject"),
		Since: p.time("since"), Until: p.time("until"),
	}
	if filter.Type != "" && !query.TrailPattern(filter.Type) {
		p.wrong.Add("type", "must be a type of the audit trail such as webhook.updated or webhook.*")
	}
	page := p.page()
	if err := ex.waitFor(p, query.TrailView); err != nil {
		return answer{}, err
	}
	ex.w.Header().Add("Vary", "Accept")
	if media := preferred(ex.r.Header.Values("Accept"), mediaJSON, mediaCSV, mediaNDJSON,
		mediaParquet); media != mediaJSON {
		return streamed(ex, media, export.Trail(), ex.Query.TrailAll(ex.detached(), ex.caller.Account, filter)), nil
	}
	return listed(ex.Query.Trail(ex.ctx, ex.caller.Account, filter, page))
}

// signedTree is a checkpoint of the account's audit tree in an answer. Checkpoint is the signed text that leadlog
// verify --tree reads; Size and RootHash repeat its content.
type signedTree struct {
	Size       int64  `json:"size"`
	RootHash   string `json:"rootHash"`
	Checkpoint string `json:"checkpoint"`
	PublicKey  string `json:"publicKey"`
}

func (ex *exchange) signed(tree tlog.Tree) (signedTree, error) {
	text, err := ex.Tree.SignTree(ex.caller.Account, tree)
	return signedTree{tree.N, tree.Hash.String(), text, ex.Tree.PublicKey()}, err
}

// showTreeHead answers with the checkpoint of the account's audit tree, of now or at a size.
func (ex *exchange) showTreeHead() (answer, error) {
	p := ex.params()
	size := p.size("size")
	if err := ex.waitFor(p, query.TokenEventView); err != nil {
		return answer{}, err
	}
	head, err := ex.Query.TreeHead(ex.ctx, ex.caller.Account, size)
	if err != nil {
		return answer{}, err
	}
	return found(ex.signed(head))
}

// proveTokenEvent proves that a token event is a leaf of a signed tree.
func (ex *exchange) proveTokenEvent() (answer, error) {
	p := ex.params()
	position, err := strconv.ParseUint(p.get("position"), 10, 64)
	if err != nil {
		p.wrong.Add("position", "must be the position of a token event, as GET /api/v1/crm/audit/tokens lists them")
	}
	size := p.size("size")
	if err := ex.waitFor(p, query.TokenEventView); err != nil {
		return answer{}, err
	}
	proof, err := withCatchUp(ex, func() (query.EventProof, error) {
		return ex.Query.ProveTokenEvent(ex.ctx, ex.caller.Account, eventstore.Position(position), size)
	}, query.TokenEventView)
	if err != nil {
		return answer{}, missing(err, errNoTokenEvent)
	}
	signed, err := ex.signed(proof.Tree)
	return found(struct {
		signedTree `json:",inline"`
		Event      query.TokenEvent `json:"event"`
		LeafHash   string           `json:"leafHash"`
		Proof      []string         `json:"proof"`
	}{signed, proof.Event, proof.Leaf.String(), hashes(proof.Path)}, err)
}

// proveTree proves that the tree at one size is the beginning of the tree at another.
func (ex *exchange) proveTree() (answer, error) {
	p := ex.params()
	from, to := p.size("from"), p.size("to")
	if from == query.Newest {
		p.wrong.Add("from", "must be the size of an earlier tree")
	}
	if err := ex.waitFor(p, query.TokenEventView); err != nil {
		return answer{}, err
	}
	proof, err := ex.Query.ProveTree(ex.ctx, ex.caller.Account, from, to)
	if err != nil {
		return answer{}, err
	}
	earlier, err := ex.signed(proof.From)
	if err != nil {
		return answer{}, err
	}
	later, err := ex.signed(proof.To)
	return found(struct {
		From  signedTree `json:"from"`
		To    signedTree `json:"to"`
		Proof []string   `json:"proof"`
	}{earlier, later, hashes(proof.Path)}, err)
}

func hashes(path []tlog.Hash) []string {
	texts := make([]string, len(path))
	for i, hash := range path {
		texts[i] = hash.String()
	}
	return texts
}

// size reads a number of leaves, the newest when it is not given.
func (p *params) size(name string) int64 {
	value := p.get(name)
	if value == "" {
		return query.Newest
	}
	size, err := strconv.ParseInt(value, 10, 64)
	if err != nil || size < 0 {
		p.wrong.Add(name, "must be a number of token events, 0 or more")
	}
	return size
}
