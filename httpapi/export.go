package httpapi

import (
	"io"
	"iter"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/leadlog/leadlog/query/export"
)

// Forms in which lists go out.
const (
	mediaJSON   = "application/json"
	mediaCSV    = "text/csv"
	mediaNDJSON = "application/x-ndjson"
)

// streamed answers with a whole list as CSV or JSON lines. The header is sent with the first item, so that an earlier error gets a
// status of its own. The answer ends when the caller's JWT does.
func streamed[T any](x *exchange, media string, sheet export.Sheet[T], items iter.Seq2[T, error]) answer {
	format := export.NDJSON
	if media == mediaCSV {
		format = export.CSV
	}
	return answer{stream: func() error {
		leave, err := x.load.exports.of(x.caller.Account).enter()
		if err != nil {
			return err
		}
		defer leave()
		out := &patient{w: x.w, control: http.NewResponseController(x.w)}
		_, err = sheet.Write(out, format, export.While(x.stillLetIn, items), func() {
			x.w.Header().Set("Content-Type", media+"; charset=utf-8")
			if format == export.CSV {
				x.w.Header().Set("Content-Disposition", `attachment; filename="`+sheet.Name+`.csv"`)
			}
			x.w.WriteHeader(http.StatusOK)
		})
		return err
	}}
}

// patient gives every write a deadline of its own, so that a long export is not cut off.
type patient struct {
	w       io.Writer
	control *http.ResponseController
}

func (p *patient) Write(b []byte) (int, error) {
	// A connection without deadlines, as in some tests, is written to without one.
	_ = p.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	return p.w.Write(b)
}

// preferred returns the offer that an Accept header prefers, or the first one when it accepts none.
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
