package httpapi

import (
	"encoding/csv"
	"io"
	"iter"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/leadlog/leadlog/query"
)

// Forms in which the audit trail goes out.
const (
	mediaJSON   = "application/json"
	mediaCSV    = "text/csv"
	mediaNDJSON = "application/x-ndjson"
)

// auditTokens tells all token events of the account: in parts as JSON, all at once as CSV or JSON lines.
func (x *exchange) auditTokens() (answer, error) {
	p := x.params()
	filter := query.AuditFilter{
		TokenID: p.text("tokenId"), Type: p.text("type"), Since: p.time("since"), Until: p.time("until"),
	}
	page := p.page()
	if err := x.waitFor(p, query.TokenEventView); err != nil {
		return answer{}, err
	}
	x.w.Header().Add("Vary", "Accept")
	media := preferred(x.r.Header.Values("Accept"), mediaJSON, mediaCSV, mediaNDJSON)
	if media == mediaJSON {
		return listed(x.Query.AuditTokens(x.ctx, x.caller.Account, filter, page))
	}
	return answer{stream: func() error {
		// What is streamed may take longer than the patience for one answer; each write has a deadline instead.
		events := x.Query.AuditTokensAll(x.r.Context(), x.caller.Account, filter)
		return x.export(media, events)
	}}, nil
}

// export streams events. The header goes out with the first of them, so that a failure before it is answered as one.
func (x *exchange) export(media string, events iter.Seq2[query.TokenEvent, error]) error {
	out := &patient{w: x.w, control: http.NewResponseController(x.w)}
	write := writeNDJSON
	var table *csv.Writer
	if media == mediaCSV {
		table = csv.NewWriter(out)
		write = func(_ io.Writer, e query.TokenEvent) error { return table.Write(auditRow(e)) }
	}
	begin := func() error {
		x.w.Header().Set("Content-Type", media+"; charset=utf-8")
		if table == nil {
			x.w.WriteHeader(http.StatusOK)
			return nil
		}
		x.w.Header().Set("Content-Disposition", `attachment; filename="token-events.csv"`)
		x.w.WriteHeader(http.StatusOK)
		return table.Write(auditColumns())
	}
	begun := false
	for event, err := range events {
		if err != nil {
			return err
		}
		if !begun {
			begun = true
			if err := begin(); err != nil {
				return err
			}
		}
		if err := write(out, event); err != nil {
			return err
		}
	}
	if !begun {
		if err := begin(); err != nil {
			return err
		}
	}
	if table != nil {
		table.Flush()
		return table.Error()
	}
	return nil
}

// patient gives every write its own time, so that a long export is no slow one.
type patient struct {
	w       io.Writer
	control *http.ResponseController
}

func (p *patient) Write(b []byte) (int, error) {
	// A connection without deadlines, as in some tests, is written to without one.
	_ = p.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	return p.w.Write(b)
}

func writeNDJSON(w io.Writer, event query.TokenEvent) error {
	line, err := encode(event)
	if err != nil {
		return err
	}
	_, err = w.Write(append(line, '\n'))
	return err
}

func auditColumns() []string {
	return []string{"id", "tokenId", "type", "position", "at", "actor", "ip", "userAgent", "requestId", "data"}
}

func auditRow(e query.TokenEvent) []string {
	at, _ := e.At.MarshalJSON() // never fails
	row := []string{
		e.ID, e.TokenID, e.Type, strconv.FormatUint(uint64(e.Position), 10), strings.Trim(string(at), `"`),
		e.Actor, e.IP, e.UserAgent, e.RequestID, string(e.Data),
	}
	for i := range row {
		row[i] = defused(row[i])
	}
	return row
}

// defused keeps a spreadsheet from taking a cell that a caller wrote for a formula.
func defused(cell string) string {
	if cell != "" && strings.ContainsRune("=+-@\t\r", rune(cell[0])) {
		return "'" + cell
	}
	return cell
}

// preferred is the offer that an Accept header likes best, the first one when it likes none.
func preferred(accept []string, offers ...string) string {
	best, most := offers[0], 0.0
	for _, wish := range strings.Split(strings.Join(accept, ","), ",") {
		media, params, err := mime.ParseMediaType(wish)
		if err != nil {
			continue
		}
		quality := 1.0
		if q, given := params["q"]; given {
			if quality, err = strconv.ParseFloat(q, 64); err != nil {
				continue
			}
		}
		for _, offer := range offers {
			kind, _, _ := strings.Cut(offer, "/")
			if quality > most && (media == offer || media == "*/*" && offer == offers[0] || media == kind+"/*") {
				best, most = offer, quality
			}
		}
	}
	return best
}
