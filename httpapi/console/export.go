package console

import (
	"cmp"
	"io"
	"iter"
	"net/http"
	"strings"
	"time"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/httpapi/quota"
	"github.com/leadlog/leadlog/query"
	"github.com/leadlog/leadlog/query/export"
)

// exports are pages as CSV or JSON lines: beside each page, under its address with .csv or .ndjson. Those that are recorded as
// reveals are writes.
func exports() []page {
	var all []page
	for _, e := range []page{
		{pattern: "/leads", scope: "leads:read", kind: quota.Write, show: (*visit).exportLeads},
		{pattern: "/sources", scope: "leads:read", show: (*visit).exportReport},
		{pattern: "/sources/history", scope: "leads:read", kind: quota.Write, show: (*visit).exportSources},
		{pattern: "/tokens", scope: "tokens:read", show: (*visit).exportTokens},
		{pattern: "/audit", scope: "audit:read", show: (*visit).exportAudit},
		{pattern: "/audit/reveals", scope: "audit:read", show: (*visit).exportReveals},
		{pattern: "/webhooks", scope: "webhooks:read", show: (*visit).exportEndpoints},
		{pattern: "/webhooks/{id}/deliveries", scope: "webhooks:read", show: (*visit).exportDeliveries},
		{pattern: "/projections", show: (*visit).exportProjections},
		{pattern: "/usage", scope: "leads:read", show: (*visit).exportUsage},
	} {
		for _, ending := range []string{".csv", ".ndjson"} {
			all = append(all, page{http.MethodGet, e.pattern + ending, e.scope, false, cmp.Or(e.kind, quota.Read), inTurn(e.show)})
		}
	}
	return all
}

// inTurn counts an export among the running ones, before it is recorded.
func inTurn(show func(*visit) (screen, error)) func(*visit) (screen, error) {
	return func(v *visit) (screen, error) {
		leave, err := v.Gate.Export(v.identity.Account)
		if err != nil {
			return screen{}, err
		}
		defer leave()
		return show(v)
	}
}

// writeTime is how long one write of an export may take.
const writeTime = time.Minute

// exported writes a whole list. The header is sent with the first item, so that an earlier error is shown as a page. A later
// error cuts the connection, so that nobody takes the part for the whole. The export ends when the session does.
func exported[T any](v *visit, p *params, sheet export.Sheet[T], items iter.Seq2[T, error]) (screen, error) {
	if err := p.wrong.Err(); err != nil {
		return screen{}, err
	}
	format, kind := export.CSV, "text/csv; charset=utf-8"
	if strings.HasSuffix(v.page.pattern, ".ndjson") {
		format, kind = export.NDJSON, "application/x-ndjson; charset=utf-8"
	}
	begun := false
	out := patient{v.w, http.NewResponseController(v.w)}
	_, err := sheet.Write(out, format, export.While(v.stillAdmitted, items), func() {
		begun = true
		v.w.Header().Set("Content-Type", kind)
		v.w.Header().Set("Content-Disposition", `attachment; filename="`+sheet.Name+"."+string(format)+`"`)
	})
	_ = out.control.SetWriteDeadline(time.Now().Add(writeTime)) // for the end of the list: nothing may have been written for long
	if err != nil && begun {
		v.Gate.Note(v.r, v.Base+v.page.pattern, v.identity.Account, err)
		panic(http.ErrAbortHandler)
	}
	return screen{sent: true}, err
}

// patient gives every write a deadline of its own.
type patient struct {
	w       io.Writer
	control *http.ResponseController
}

func (p patient) Write(b []byte) (int, error) {
	_ = p.control.SetWriteDeadline(time.Now().Add(writeTime)) // some connections have none
	return p.w.Write(b)
}

// These two contain unmasked personal data, so they are recorded first.

func (v *visit) exportLeads() (screen, error) {
	settings, err := v.Directory.Account(v.ctx, v.identity.Account)
	if err != nil {
		return screen{}, err
	}
	p := v.params()
	filter := leadFilter(p, cmp.Or(settings.State.Region, account.DefaultRegion))
	if err := v.noteExport(p, command.RevealLeads); err != nil {
		return screen{}, err
	}
	return exported(v, p, export.Leads(), v.Query.LeadsAll(v.r.Context(), v.identity.Account, filter))
}

func (v *visit) exportSources() (screen, error) {
	p := v.params()
	filter := query.SourceFilter{Source: p.text("source"), Since: p.day("since"), Until: p.until("until")}
	if err := v.noteExport(p, command.RevealSources); err != nil {
		return screen{}, err
	}
	return exported(v, p, export.Sources(), v.Query.SourcesAll(v.r.Context(), v.identity.Account, filter))
}

// noteExport records an export, unless its parameters are wrong: then nothing is shown.
func (v *visit) noteExport(p *params, what string) error {
	if err := p.wrong.Err(); err != nil {
		return err
	}
	return v.noteReveal(what, "")
}

func (v *visit) exportReport() (screen, error) {
	p := v.params()
	filter := v.reportFilter(p)
	return exported(v, p, export.Report(), query.All(func(part query.Page) (query.List[query.SourceCount], error) {
		return v.Query.SourceReport(v.r.Context(), v.identity.Account, filter, part)
	}))
}

func (v *visit) exportTokens() (screen, error) {
	return exported(v, v.params(), export.Tokens(), query.All(func(part query.Page) (query.List[query.Token], error) {
		return v.Query.Tokens(v.r.Context(), v.identity.Account, part)
	}))
}

func (v *visit) exportAudit() (screen, error) {
	p := v.params()
	return exported(v, p, export.TokenEvents(), v.Query.AuditTokensAll(v.r.Context(), v.identity.Account, auditFilter(p)))
}

func (v *visit) exportReveals() (screen, error) {
	p := v.params()
	return exported(v, p, export.Reveals(), v.Query.RevealsAll(v.r.Context(), v.identity.Account, revealFilter(p)))
}

func (v *visit) exportEndpoints() (screen, error) {
	return exported(v, v.params(), export.Endpoints(), query.All(func(part query.Page) (query.List[query.Endpoint], error) {
		return v.Query.Endpoints(v.r.Context(), v.identity.Account, part)
	}))
}

func (v *visit) exportDeliveries() (screen, error) {
	id := v.id("id")
	return exported(v, v.params(), export.Deliveries(), query.All(func(part query.Page) (query.List[query.Delivery], error) {
		return v.Query.Deliveries(v.r.Context(), v.identity.Account, id, v.caller.ReadsLeads, part)
	}))
}

func (v *visit) exportProjections() (screen, error) {
	views, err := v.Query.Projections(v.ctx)
	return exported(v, v.params(), export.Projections(), these(views, err))
}

func (v *visit) exportUsage() (screen, error) {
	days, err := v.usageDays()
	return exported(v, v.params(), export.Usage(), these(days, err))
}

// these yields items of a slice, or the error.
func these[T any](items []T, err error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		if err != nil {
			var none T
			yield(none, err)
			return
		}
		for _, item := range items {
			if !yield(item, nil) {
				return
			}
		}
	}
}
