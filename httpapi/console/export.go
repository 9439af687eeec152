package console

import (
	"cmp"
	"context"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/query"
	"github.com/leadlog/leadlog/query/export"
)

// writeTimeout bounds one write of an export.
const writeTimeout = time.Minute

// exported sends a whole list of personal data, and records that on the log: before the first byte, and how it ended.
func exported[T any](
	v *visit, p *params, what string, sheet export.Sheet[T], items iter.Seq2[T, error],
) (screen, error) {
	shown, err := sent(v, p, sheet, items)
	if v.r.Method == http.MethodHead { // shows nothing
		return shown, err
	}
	filter := map[string]string{}
	for name := range p.values {
		filter[name] = p.text(name)
	}
	send := shown.send
	shown.send = func() error {
		recorded, err := v.Commands.BeginExport(v.ctx, v.caller, what, v.format(), filter)
		if err != nil {
			return err
		}
		defer func() { v.recordEnd(recorded) }()
		return send()
	}
	return shown, err
}

// format is the ending of an export's address.
func (v *visit) format() string { return strings.TrimPrefix(path.Ext(v.page.pattern), ".") }

// sent sends a whole list. The header is sent with the first item, so that an earlier error is shown as a page. A later
// error closes the connection, because an incomplete list must not look complete. The export ends with the session.
func sent[T any](v *visit, p *params, sheet export.Sheet[T], items iter.Seq2[T, error]) (screen, error) {
	if err := p.wrong.Err(); err != nil {
		return screen{}, err
	}
	format := export.Format(v.format())
	return screen{send: func() error {
		begun := false
		begin := func() {
			begun = true
			v.w.Header().Set("Content-Type", format.MediaType())
			v.w.Header().Set("Content-Disposition", `attachment; filename="`+sheet.Name+"."+string(format)+`"`)
		}
		if v.r.Method == http.MethodHead {
			begin()
			return nil
		}
		out := deadlineWriter{v.w, http.NewResponseController(v.w)}
		rows, err := sheet.Write(out, format, export.While(v.stillAdmitted, items), begin)
		v.rows, v.complete = rows, err == nil
		// for the bytes that net/http writes after the last item
		_ = out.control.SetWriteDeadline(time.Now().Add(writeTimeout))
		if err != nil && begun {
			v.Gate.Note(v.r, v.Base+v.page.pattern, v.identity.Account, err)
			panic(http.ErrAbortHandler)
		}
		return err
	}}, nil
}

// recordEnd records the end of an export, whose client may have disconnected.
func (v *visit) recordEnd(of command.Export) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(v.r.Context()), pageTimeout)
	defer cancel()
	if err := v.Commands.EndExport(ctx, of, v.rows, v.complete); err != nil {
		v.Log.Warn("end of an export not recorded", slog.String("account", v.identity.Account), slog.Any("error", err))
	}
}

// deadlineWriter gives every write a deadline of its own.
type deadlineWriter struct {
	w       io.Writer
	control *http.ResponseController
}

func (d deadlineWriter) Write(b []byte) (int, error) {
	_ = d.control.SetWriteDeadline(time.Now().Add(writeTimeout)) // an error: the connection has no deadlines
	return d.w.Write(b)
}

func (v *visit) exportLeads() (screen, error) {
	settings, err := v.Directory.Account(v.ctx, v.identity.Account)
	if err != nil {
		return screen{}, err
	}
	p := v.params()
	filter := leadFilter(p, settings.State)
	return exported(v, p, "leads", export.Leads(), v.Query.LeadsAll(v.r.Context(), v.identity.Account, filter))
}

func (v *visit) exportSources() (screen, error) {
	p := v.params()
	filter := query.SourceFilter{Source: p.source(), Since: p.day("since"), Until: p.until("until")}
	return exported(v, p, "sources", export.Sources(), v.Query.SourcesAll(v.r.Context(), v.identity.Account, filter))
}

func (v *visit) exportReport() (screen, error) {
	p := v.params()
	filter := v.reportFilter(p)
	return sent(v, p, export.Report(), query.All(func(page query.Page) (query.List[query.SourceCount], error) {
		return v.Query.SourceReport(v.r.Context(), v.identity.Account, filter, page)
	}))
}

func (v *visit) exportAttribution() (screen, error) {
	p := v.params()
	filter, err := v.attributionFilter(p)
	if err != nil || p.wrong != nil {
		return screen{}, cmp.Or(err, p.wrong.Err())
	}
	report, err := v.Query.Attribution(v.ctx, v.identity.Account, filter)
	if report.Rebuilding { // the file would not say so
		err = query.ErrBehind
	}
	return sent(v, p, export.Attribution(), sequence(report.Rows, err))
}

func (v *visit) exportTokens() (screen, error) {
	return sent(v, v.params(), export.Tokens(), query.All(func(page query.Page) (query.List[query.Token], error) {
		return v.Query.Tokens(v.r.Context(), v.identity.Account, page)
	}))
}

func (v *visit) exportAudit() (screen, error) {
	p := v.params()
	return sent(v, p, export.TokenEvents(), v.Query.AuditTokensAll(v.r.Context(), v.identity.Account, auditFilter(p)))
}

func (v *visit) exportTrail() (screen, error) {
	p := v.params()
	return sent(v, p, export.Trail(), v.Query.TrailAll(v.r.Context(), v.identity.Account, trailFilter(p)))
}

func (v *visit) exportEndpoints() (screen, error) {
	return sent(v, v.params(), export.Endpoints(), query.All(func(page query.Page) (query.List[query.Endpoint], error) {
		return v.Query.Endpoints(v.r.Context(), v.identity.Account, page)
	}))
}

func (v *visit) exportDeliveries() (screen, error) {
	id := v.id("id")
	p := v.params()
	filter := deliveryFilter(p)
	return exported(v, p, "deliveries", export.Deliveries(),
		query.All(func(page query.Page) (query.List[query.Delivery], error) {
			return v.Query.Deliveries(v.r.Context(), v.identity.Account, id, v.caller.ReadsLeads, filter, page)
		}))
}

func (v *visit) exportProjections() (screen, error) {
	views, err := v.Query.Projections(v.ctx)
	return sent(v, v.params(), export.Projections(), sequence(views, err))
}

func (v *visit) exportUsage() (screen, error) {
	days, err := v.Query.Usage(v.ctx, v.identity.Account)
	return sent(v, v.params(), export.Usage(), sequence(days, err))
}

// sequence yields the items of a slice, or the error.
func sequence[T any](items []T, err error) iter.Seq2[T, error] {
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
