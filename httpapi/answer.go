package httpapi

import (
	"io"
	"iter"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/query"
	"github.com/leadlog/leadlog/query/export"
)

// answer is the answer of a handler without an error.
type answer struct {
	status   int // 0 is 200
	body     any // an envelope
	position eventstore.Position
	event    string       // id of the lead's event that a capture became
	stream   func() error // writes the answer itself, in place of body
}

// envelope is the body of every answer but a list.
type envelope struct {
	Success bool         `json:"success"`
	DryRun  bool         `json:"dryRun,omitzero"`
	Message string       `json:"message,omitzero"`
	Code    string       `json:"code,omitzero"`
	Errors  field.Errors `json:"errors,omitempty"`
	// ArrivalID is of a capture whose fields are wrong, and which was kept.
	ArrivalID string `json:"arrivalId,omitzero"`
	Data      any    `json:"data,omitzero"`
}

// capturedEnvelope is the body of the answer to a capture.
type capturedEnvelope struct {
	Success bool       `json:"success"`
	Merged  bool       `json:"merged"`
	DryRun  bool       `json:"dryRun,omitzero"`
	Data    query.Lead `json:"data"`
}

func newCapturedEnvelope(c *command.LeadCaptured, dryRun bool) capturedEnvelope {
	return capturedEnvelope{Success: true, Merged: c.Merged, DryRun: dryRun, Data: query.NewLead(c.Lead)}
}

// listEnvelope is the body of a list.
type listEnvelope struct {
	Success    bool    `json:"success"`
	Data       any     `json:"data"`
	NextCursor *string `json:"nextCursor"`
}

// found answers with one object.
func found(data any, err error) (answer, error) {
	return answer{body: envelope{Success: true, Data: data}}, err
}

// done answers with a message, and the log position of the event.
func done(message string, position eventstore.Position, err error) (answer, error) {
	return answer{position: position, body: envelope{Success: true, Message: message}}, err
}

// listed answers with a page of a list. JSON has [] for no items, never null.
func listed[T any](list query.List[T], err error) (answer, error) {
	body := listEnvelope{Success: true, Data: list.Items}
	if list.NextCursor != "" {
		body.NextCursor = &list.NextCursor
	}
	return answer{body: body}, err
}

// positionHeader carries the log position of a write, for ?minPosition= of a later read.
const positionHeader = "X-Log-Position"

// eventHeader carries the id of the event that a capture became, whose receipt its token may get.
const eventHeader = "X-Event-Id"

// send writes an answer.
func (x *exchange) send(a answer) {
	x.wrote(a.position)
	if a.event != "" {
		x.w.Header().Set(eventHeader, a.event)
	}
	if a.stream != nil {
		x.stream(a.stream)
		return
	}
	encoded, err := encode(a.body)
	if err != nil {
		x.fail(err)
		return
	}
	if a.status == 0 {
		a.status = http.StatusOK
	}
	writeJSON(x.w, a.status, encoded)
}

// stream lets a function write the answer. If it fails after the header, the connection is closed: an incomplete answer must not look
// complete.
func (x *exchange) stream(write func() error) {
	err := write()
	if err == nil {
		// The last write may be long ago, and net/http still has to write the end of the answer.
		_ = http.NewResponseController(x.w).SetWriteDeadline(time.Now().Add(writeTimeout))
		return
	}
	if x.record.status == 0 {
		x.fail(err)
		return
	}
	x.record.err = err
	panic(http.ErrAbortHandler)
}

// encode returns deterministic JSON.
func encode(v any) ([]byte, error) { return json.Marshal(v, answerOptions) }

var answerOptions = json.JoinOptions(json.Deterministic(true), jsontext.AllowInvalidUTF8(true))

func writeJSON(w http.ResponseWriter, status int, encoded []byte) {
	w.Header().Set("Content-Type", mediaJSON+"; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(encoded)))
	w.WriteHeader(status)
	_, _ = w.Write(encoded) // net/http handles a client that has disconnected
}

// Media types of lists.
const (
	mediaJSON    = "application/json"
	mediaCSV     = "text/csv"
	mediaNDJSON  = "application/x-ndjson"
	mediaParquet = "application/vnd.apache.parquet"
)

// exportFormats are the formats of whole lists, by media type.
var exportFormats = map[string]export.Format{mediaCSV: export.CSV, mediaNDJSON: export.NDJSON, mediaParquet: export.Parquet}

// streamed answers with a whole list as CSV, JSON lines or Parquet. The header is sent with the first item, so that an earlier error has its
// own status. The answer ends when the caller's JWT expires or is revoked.
func streamed[T any](x *exchange, media string, sheet export.Sheet[T], items iter.Seq2[T, error]) answer {
	format := exportFormats[media]
	return answer{stream: func() error {
		leave, err := x.load.exports.of(x.caller.Account).enter()
		if err != nil {
			return err
		}
		defer leave()
		out := &deadlineWriter{w: x.w, control: http.NewResponseController(x.w)}
		_, err = sheet.Write(out, format, export.While(x.stillAdmitted, items), func() {
			x.w.Header().Set("Content-Type", format.MediaType())
			if format != export.NDJSON {
				x.w.Header().Set("Content-Disposition", `attachment; filename="`+sheet.Name+"."+string(format)+`"`)
			}
			x.w.WriteHeader(http.StatusOK)
		})
		return err
	}}
}

// deadlineWriter gives every write a deadline of its own, so that a long export is not cut off.
type deadlineWriter struct {
	w       io.Writer
	control *http.ResponseController
}

func (d *deadlineWriter) Write(b []byte) (int, error) {
	// An error: the connection has no deadlines, as in some tests.
	_ = d.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	return d.w.Write(b)
}

// preferred returns the media type that an Accept header prefers, or the first offer when it accepts none.
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
