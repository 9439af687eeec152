package console

import (
	"encoding/base64"
	"net/http"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/leadlog/leadlog/eventstore/merkle"
	"github.com/leadlog/leadlog/query"
)

// auditPage shows the events of tokens with their proof.
type auditPage struct {
	filtered
	parts
	Types  []string
	Tokens []query.Token
	Events []provenEvent
	Proof  proof
}

// provenEvent is a token event, and whether it was proven to be a leaf of the tree.
type provenEvent struct {
	query.TokenEvent
	Proven  bool
	Pending bool // it is not in the tree yet
}

// TokenName returns the name of a token, or the end of its id if it is deleted or not to be seen.
func (a auditPage) TokenName(id string) string {
	for _, t := range a.Tokens {
		if t.TokenID == id {
			return t.Name
		}
	}
	return short(id)
}

// proof is the result of proving the events of a page against the tree.
type proof struct {
	merkle.Checkpoint
	Text      string // the signed checkpoint
	Proven    int    // events
	Disproven int
	Pending   int
	// size of the tree that this browser saw before, when it was proven to be the beginning of this one
	Earlier int64
	Broken  string // why the tree is not proven; empty when it is
}

// Good reports whether everything that is shown is as it was signed.
func (p proof) Good() bool { return p.Disproven == 0 && p.Pending == 0 && p.Broken == "" }

func (v *visit) audit() (screen, error) {
	p := v.params()
	shown := auditPage{filtered: p.filtered("since", "until", "type", "tokenId"), Types: query.TokenEventTypes()}
	shown.show("type", words)
	filter, page := auditFilter(p), p.page()
	if shown.Wrong = p.wrong; shown.Wrong != nil {
		return screen{name: "audit", title: "Token history", status: http.StatusBadRequest, data: shown}, nil
	}
	list, err := v.Query.LatestTokenEvents(v.ctx, v.identity.Account, filter, page)
	if err != nil {
		return screen{}, err
	}
	if shown.Events, shown.Proof, err = v.prove(list.Items); err != nil {
		return screen{}, err
	}
	if v.identity.May("tokens:read") {
		tokens, err := v.Query.Tokens(v.ctx, v.identity.Account, query.Page{Limit: rows})
		if err != nil {
			return screen{}, err
		}
		shown.Tokens = tokens.Items
		shown.show("tokenId", func(id string) string {
			for _, t := range shown.Tokens {
				if t.TokenID == id {
					return t.Name
				}
			}
			return id
		})
	}
	shown.parts = p.parts(page, list.NextCursor)
	return screen{
		name: "audit", title: "Token history", data: shown, live: page.Cursor == "", calls: v.auditCalls(filter),
	}, nil
}

func (v *visit) auditCalls(f query.AuditFilter) []call {
	since, until := stamp(f.Since), stamp(f.Until)
	list := v.get("audit:read", "These token events", "/api/v1/crm/audit/tokens", "type", f.Type, "tokenId", f.TokenID,
		"since", since, "until", until)
	var file call
	if f.Type == "" && f.TokenID == "" {
		file = v.program("audit:read", "As a CSV file", "export tokens", "--since", since, "--until", until)
	}
	return v.calls(list.withNote(oldestFirst),
		v.get("audit:read", "The checkpoint of the tree", "/api/v1/crm/audit/tree"), file)
}

func auditFilter(p *params) query.AuditFilter {
	return query.AuditFilter{
		Type: p.oneOf("type", query.TokenEventTypes()...), TokenID: p.text("tokenId"), Since: p.day("since"),
		Until: p.until("until"),
	}
}

// prove verifies every shown event against the checkpoint of the account's tree, and this checkpoint against the last
// one that this browser saw. It verifies the signature with the public key, like an auditor.
func (v *visit) prove(events []query.TokenEvent) ([]provenEvent, proof, error) {
	var p proof
	tree, paths, err := v.Query.ProveTokenEvents(v.ctx, v.identity.Account, events)
	if err != nil {
		return nil, p, err
	}
	if p.Text, err = v.Tree.SignTree(v.identity.Account, tree); err != nil {
		return nil, p, err
	}
	if p.Checkpoint, err = v.trust().Open([]byte(p.Text)); err != nil {
		return nil, p, err
	}
	proven := make([]provenEvent, len(events))
	for i, e := range events {
		proven[i] = provenEvent{TokenEvent: e, Pending: paths[i] == nil}
		if paths[i] == nil {
			p.Pending++
			continue
		}
		leaf, err := e.LeafHash(v.identity.Account) // of the shown event
		if err != nil {
			return nil, p, err
		}
		if proven[i].Proven = tlog.CheckRecord(paths[i], p.N, p.Hash, e.Leaf, leaf) == nil; proven[i].Proven {
			p.Proven++
		} else {
			p.Disproven++
		}
	}
	return proven, p, v.compareEarlier(&p)
}

// trust has the key that signs checkpoints now.
func (v *visit) trust() merkle.Trust { return merkle.Trust{PublicKey: v.Tree.PublicKey()} }

const treeCookie = "leadlog_tree"

// compareEarlier proves that the tree begins with the tree that this browser saw last, whose checkpoint it keeps in a
// cookie.
func (v *visit) compareEarlier(p *proof) error {
	before, known := v.checkpointSeen()
	switch {
	case !known:
	case before.N > p.N:
		p.Broken = "The tree is smaller than the one that this browser saw before."
	case before.N > 0:
		grown, err := v.Query.ProveTree(v.ctx, v.identity.Account, before.N, p.N)
		if err != nil {
			return err
		}
		if tlog.CheckTree(grown.Path, p.N, p.Hash, before.N, before.Hash) != nil {
			p.Broken = "The tree does not contain the one that this browser saw before: signed events were rewritten."
			break
		}
		p.Earlier = before.N
	}
	if p.Good() && !wantsStream(v.r) {
		cookie := v.cookie(v.r, base64.RawURLEncoding.EncodeToString([]byte(p.Text)))
		cookie.Name, cookie.Expires = treeCookie, v.Now().AddDate(1, 0, 0)
		http.SetCookie(v.w, cookie)
	}
	return nil
}

// checkpointSeen is the checkpoint that this browser kept, if it is of this account and signed by the key that signs
// now.
func (v *visit) checkpointSeen() (merkle.Checkpoint, bool) {
	cookie, err := v.r.Cookie(treeCookie)
	if err != nil {
		return merkle.Checkpoint{}, false
	}
	text, err := base64.RawURLEncoding.DecodeString(cookie.Value)
	if err != nil {
		return merkle.Checkpoint{}, false
	}
	seen, err := v.trust().Open(text)
	return seen, err == nil && seen.Account == v.identity.Account
}
