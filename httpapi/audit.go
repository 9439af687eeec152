package httpapi

import (
	"github.com/leadlog/leadlog/query"
	"github.com/leadlog/leadlog/query/export"
)

// auditTokens tells all token events of the account: in parts as JSON, all at once as CSV or JSON lines.
func (x *exchange) auditTokens() (answer, error) {
	p := x.params()
	filter := query.AuditFilter{
		TokenID: p.text("tokenId"), Type: p.oneOf("type", query.TokenEventTypes()...), Since: p.time("since"), Until: p.time("until"),
	}
	page := p.page()
	if err := x.waitFor(p, query.TokenEventView); err != nil {
		return answer{}, err
	}
	x.w.Header().Add("Vary", "Accept")
	if media := preferred(x.r.Header.Values("Accept"), mediaJSON, mediaCSV, mediaNDJSON); media != mediaJSON {
		// What is streamed may take longer than the time for one answer; each write has a deadline instead.
		return streamed(x, media, export.TokenEvents(), x.Query.AuditTokensAll(detached(x.r), x.caller.Account, filter)), nil
	}
	return listed(x.Query.AuditTokens(x.ctx, x.caller.Account, filter, page))
}
