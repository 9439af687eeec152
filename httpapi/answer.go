package httpapi

import (
	"context"
	"io"
	"iter"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"slices"
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
	recorded bool         // the stream records that it is an export
}

// envelope is the body of every answer but a list.
type envelope struct {
	Success bool         `json:"success"`
	DryRun  bool         `json:"dryRun,omitzero"`
	Message string       `json:"message,omitzero"`
	Code    string       `json:"code,omitzero"`
	Errors  field.Errors `json:"errors,omitempty"`
	// ArrivalID is of a capture whose fields are wrong, and which was kept.
	ArrivalID string          `json:"arrivalId,omitzero"`
	Warnings  []field.Warning `json:"warnings,omitempty"`
	Data      any             `json:"data,omitzero"`
}

// capturedEnvelope is the body of the answer to a capture.
type capturedEnvelope struct {
	Success bool       `json:"success"`
	Merged  bool       `json:"merged"`
	DryRun  bool       `json:"dryRun,omitzero"`
	Data    query.Lead `json:"data"`

	Warnings field.Warnings `json:"warnings,omitempty"`
}

func newCapturedEnvelope(c *command.LeadCaptured, dryRun bool) capturedEnvelope {
	return capturedEnvelope{
		Success: true, Merged: c.Merged, DryRun: dryRun, Data: query.NewLead(c.Lead), Warnings: c.Warnings,
	}
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
func (ex *exchange) send(a answer) {
	ex.wrote(a.position)
	if a.event != "" {
		ex.w.Header().Set(eventHeader, a.event)
	}
	if a.stream != nil {
		ex.stream(a.stream)
		return
	}
	encoded, err := encode(a.body)
	if err != nil {
		ex.fail(err)
		return
	}
	if a.status == 0 {
		a.status = http.StatusOK
	}
	writeJSON(ex.w, a.status, encoded)
}

// stream lets a function write the answer. If it fails after the header, the connection is closed: an incomplete answer
// must not look complete.
func (ex *exchange) stream(write func() error) {
	err := write()
	if err == nil {
		// The last write may be long ago, and net/http still has to write the end of the answer.
		_ = http.NewResponseController(ex.w).SetWriteDeadline(time.Now().Add(writeTimeout))
		return
	}
	if ex.record.status == 0 {
		ex.fail(err)
		return
	}
	ex.record.err = err
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
var exportFormats = map[string]export.Format{
	mediaCSV: export.CSV, mediaNDJSON: export.NDJSON, mediaParquet: export.Parquet,
}

// exported answers with a whole list of personal data, and records that on the log: before the first byte, and how it
// ended.
func exported[T any](ex *exchange, what, media string, sheet export.Sheet[T], items iter.Seq2[T, error]) answer {
	if ex.r.Method == http.MethodHead { // shows nothing
		return streamed(ex, media, sheet, items)
	}
	return answer{recorded: true, stream: func() error {
		leave, err := ex.load.exports.of(ex.caller.Account).enter()
		if err != nil {
			return err
		}
		defer leave()
		begun, err := ex.Commands.BeginExport(ex.ctx, ex.caller, what, string(exportFormats[media]),
			listFilter(ex.params().values))
		if err != nil {
			return err
		}
		rows, err := writeList(ex, media, sheet, items)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ex.ctx), recordTimeout)
		defer cancel()
		if failed := ex.Commands.EndExport(ctx, begun, rows, err == nil); failed != nil {
			ex.Log.Warn("end of an export not recorded", slog.String("account", ex.caller.Account),
				slog.Any("error", failed))
		}
		return err
	}}
}

// recordTimeout bounds recording the end of an export, whose client may have disconnected.
const recordTimeout = 5 * time.Second

// listFilter returns the parameters that filter a list.
func listFilter(given url.Values) map[string]string {
	filter := map[string]string{}
	for name := range given {
		if !slices.Contains([]string{"cursor", "limit", "minPosition", "after", "wait"}, name) {
			filter[name] = given.Get(name)
		}
	}
	return filter
}

// streamed answers with a list that has no personal data, or with a page of one.
func streamed[T any](ex *exchange, media string, sheet export.Sheet[T], items iter.Seq2[T, error]) answer {
	return answer{stream: func() error {
		leave, err := ex.load.exports.of(ex.caller.Account).enter()
		if err != nil {
			return err
		}
		defer leave()
		_, err = writeList(ex, media, sheet, items)
		return err
	}}
}

// writeList writes a list as CSV, JSON lines or Parquet. The header is sent with the first item, so that an earlier
// error has its own status. The answer ends when the caller's JWT expires or is revoked.
func writeList[T any](
	ex *exchange, media string, sheet export.Sheet[T], items iter.Seq2[T, error],
) (rows int, err error) {
	format := exportFormats[media]
	out := &deadlineWriter{w: ex.w, control: http.NewResponseController(ex.w)}
	begin := func() {
		ex.w.Header().Set("Content-Type", format.MediaType())
		if format != export.NDJSON {
			ex.w.Header().Set("Content-Disposition", `attachment; filename="`+sheet.Name+"."+string(format)+`"`)
		}
		ex.w.WriteHeader(http.StatusOK)
	}
	if ex.r.Method == http.MethodHead {
		begin()
		return 0, nil
	}
	return sheet.Write(out, format, export.While(ex.stillAdmitted, items), begin)
}

// revealing records that a caller reads one lead, before it is shown.
func revealing(show func(*exchange) (answer, error)) func(*exchange) (answer, error) {
	return func(ex *exchange) (answer, error) {
		shown, err := show(ex)
		if err == nil {
			ex.Commands.Read(ex.ctx, command.Reveal{Caller: ex.caller, What: command.RevealOne, LeadID: ex.pathID()})
		}
		return shown, err
	}
}

// shows records that an answer shows a caller the stored data of one lead. It is for requests that append nothing;
// other events name the caller already. An API token's dry run is recorded as a use of the token.
func (ex *exchange) shows(leadID string) {
	if ex.caller.ReadsLeads && !ex.caller.FromPage && leadID != "" && ex.record.appended.Load() == 0 {
		ex.Commands.Read(ex.ctx, command.Reveal{Caller: ex.caller, What: command.RevealOne, LeadID: leadID})
	}
}

// searching records that a caller lists personal data, and by which personal fields, before anything is shown. An
// export is recorded as such.
func searching(what string, list func(*exchange) (answer, error)) func(*exchange) (answer, error) {
	return func(ex *exchange) (answer, error) {
		listed, err := list(ex)
		if err != nil || listed.recorded {
			return listed, err
		}
		given, fields := ex.params().values, []string(nil)
		for _, name := range command.PersonalFilters() {
			if given.Get(name) != "" {
				fields = append(fields, name)
			}
		}
		ex.Commands.Search(ex.ctx, ex.caller, what, fields...)
		return listed, nil
	}
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
