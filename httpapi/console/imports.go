package console

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leadlog/leadlog/command/contact"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/leadfile"
	"github.com/leadlog/leadlog/command/worker/importer"
)

// importList is the page of imports.
type importList struct {
	Imports []importer.Upload
	Limit   int // of a file, in MiB
	Message string
}

// importsShown is how many uploads the list has.
const importsShown = 100

func (v *visit) imports() (screen, error) { return v.importList(nil) }

func (v *visit) importList(failed error) (screen, error) {
	list, err := v.Imports.Latest(v.ctx, v.identity.Account, importsShown)
	if err != nil {
		return screen{}, err
	}
	shown := screen{
		name: "imports", title: "Imports", live: v.reads(),
		data:  importList{Imports: list, Limit: importer.MaxUpload >> 20},
		calls: v.calls(v.program("", "An import by the command line, of a file of any size", "import FILE")),
	}
	if failed != nil {
		shown.data = importList{Imports: list, Limit: importer.MaxUpload >> 20, Message: failed.Error()}
		shown.status = http.StatusBadRequest
	}
	return shown, nil
}

// Limits of an upload.
const (
	uploadRead    = 30 * time.Second // between two reads
	uploadTimeout = 30 * time.Minute
	uploadForm    = 64 << 10 // bytes beside the file
	checkWait     = 3 * time.Second
)

// uploadImport keeps a file, which is read part by part.
func (v *visit) uploadImport() (screen, error) {
	control := http.NewResponseController(v.w)
	body := &pacedUpload{http.MaxBytesReader(v.w, v.r.Body, importer.MaxUpload+uploadForm), control}
	v.r.Body = body
	defer func() { _ = control.SetWriteDeadline(time.Now().Add(writeTimeout)) }()
	form, err := v.r.MultipartReader()
	if err != nil {
		return screen{}, errBadForm
	}
	part, err := form.NextPart()
	if err != nil || part.FormName() != "file" {
		return screen{}, errBadForm
	}
	name := path.Base(strings.ReplaceAll(part.FileName(), `\`, "/"))
	if part.FileName() == "" || !isText(name) || len(name) > maxParam {
		return v.importList(errors.New("choose a file, whose name is text"))
	}
	ctx, cancel := context.WithTimeout(v.r.Context(), uploadTimeout)
	defer cancel()
	runID, err := v.Imports.Upload(ctx, v.identity.Account, v.caller.Actor, name, part)
	_, large := errors.AsType[*http.MaxBytesError](err)
	switch {
	case large, errors.Is(err, importer.ErrTooLarge):
		v.w.Header().Set("Connection", "close") // the rest is not read
		return v.importList(importer.ErrTooLarge)
	case errors.Is(err, importer.ErrTooMany), errors.Is(err, importer.ErrEmpty):
		v.w.Header().Set("Connection", "close")
		return v.importList(err)
	case err != nil:
		return screen{}, err
	}
	return v.toImport(runID, nil)
}

// pacedUpload is a body that may take long as a whole, but not between two reads.
type pacedUpload struct {
	io.ReadCloser
	control *http.ResponseController
}

func (u *pacedUpload) Read(p []byte) (int, error) {
	_ = u.control.SetReadDeadline(time.Now().Add(uploadRead)) // some connections have none
	return u.ReadCloser.Read(p)
}

// toImport leads to the page of an upload, once its task has ended or after a while.
func (v *visit) toImport(runID string, err error) (screen, error) {
	if err != nil {
		return screen{}, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(v.r.Context()), checkWait)
	defer cancel()
	v.Imports.Wait(ctx, v.identity.Account, runID)
	return screen{redirect: v.path("/imports/" + runID)}, nil
}

// importPage shows an uploaded file, what its columns become, and how far its import is.
type importPage struct {
	importer.Upload
	Columns  []importColumn
	Fields   []string // that a column can become
	ReadsLog bool     // the user may read leads
	Message  string
	Changed  bool // the user's changes were applied, and nothing else done
	Percent  uint64
}

// FileRows is how many rows the file has.
func (p importPage) FileRows() int64 {
	if p.Report == nil {
		return 0
	}
	return int64(p.Report.Rows)
}

// HeaderLine is the line that looks like the header.
func (p importPage) HeaderLine() int { return p.Report.Skip + 1 }

// importColumn is a column, and what a person has chosen for it.
type importColumn struct {
	leadfile.SurveyedColumn
	Index  int
	Chosen string // as in the form; empty: nothing
}

// Choices of a column beside the fields.
const (
	keepColumn = "keep" // as a custom field
	dropColumn = "leave-out"
)

func (v *visit) importScreen(found importer.Upload, message string) (screen, error) {
	shown := importPage{
		Upload: found, ReadsLog: v.caller.ReadsLeads, Message: message, Changed: v.params().text("changed") != "",
	}
	seesExamples := v.caller.ReadsLeads || v.caller.Actor == found.Actor // they are personal data
	if found.Total > 0 {
		shown.Percent = 100 * found.Rows / found.Total
	}
	if found.Report != nil {
		chosen := found.Settings.Columns
		for i, column := range found.Report.Columns {
			c := importColumn{column, i, ""}
			becomes, mapped := chosen.Map[column.Name]
			switch {
			case slices.Contains(chosen.Keep, column.Name):
				c.Chosen = keepColumn
			case mapped && becomes == "":
				c.Chosen = dropColumn
			case mapped:
				c.Chosen = becomes
			}
			if !seesExamples {
				c.Examples = nil
			}
			shown.Columns = append(shown.Columns, c)
		}
		shown.Fields = append(slices.DeleteFunc(leadfile.FieldNames(), func(name string) bool {
			return name == "metadata" || name == "customFields"
		}), "metadata.source", "consent.marketing", "consent.email", "consent.sms", "consent.whatsapp", "consent.phone",
			"optOut.email", "optOut.phone")
		for _, chosen := range chosen.Map { // others that are in use
			if chosen != "" && !slices.Contains(shown.Fields, chosen) {
				shown.Fields = append(shown.Fields, chosen)
			}
		}
	}
	result := screen{name: "import", title: "Import of " + found.Name, data: shown, live: found.Task != "" && v.reads()}
	if message != "" {
		result.status = http.StatusBadRequest
	}
	return result, nil
}

// importWarnings say what the warnings of rows mean.
var importWarnings = map[string]string{
	field.ContactInCustomField: "a custom field looks like the phone or email that the row lacks",
	field.IgnoredContact:       "a contact on the account's list of ignored ones was taken as absent",
	field.PlaceholderContact:   "a contact of no person was taken as absent",
	field.SharedContact:        "a contact of many persons did not identify this one",
	field.NotAName:             "a name that is none was taken as absent",
	field.StatusUnknown:        "a stage that the account does not have was kept as a custom field",
	field.TemperatureUnknown:   "a temperature that is none was kept as a custom field",
	field.ValueUnreadable:      "a value that cannot be used was kept as a custom field",
	field.ValueShortened:       "a value or a column's name was too long, and was cut",
	field.ConsentUnreadable:    "a consent is neither yes nor no, and was kept as a custom field",
	field.ConsentOutdated:      "a withdrawal is older than the lead's consent, which still counts",
	field.FieldDropped:         "a field was more than a lead can have, and was left out",
}

func importWarning(code string) string { return importWarnings[code] }

func (v *visit) findImport() (importer.Upload, error) {
	return v.Imports.Get(v.ctx, v.identity.Account, v.id("id"))
}

func (v *visit) importOne() (screen, error) {
	found, err := v.findImport()
	if err != nil {
		return screen{}, err
	}
	return v.importScreen(found, "")
}

// beginImport has the file checked again with the chosen columns, tried, or imported.
func (v *visit) beginImport() (screen, error) {
	form, err := v.form()
	if err != nil {
		return screen{}, err
	}
	found, err := v.findImport()
	if err != nil {
		return screen{}, err
	}
	settings := importer.Settings{Merge: form.Get("merge") == "true", Options: importer.Options{
		Format: form.Get("format"), Delimiter: form.Get("delimiter"), Encoding: strings.TrimSpace(form.Get("encoding")),
	}}
	settings.Columns.Map = map[string]string{}
	if given := strings.TrimSpace(form.Get("skip")); given != "" {
		if settings.Skip, err = strconv.Atoi(given); err != nil {
			settings.Skip = -1 // is refused
		}
	}
	sameReading := settings.Skip == found.Settings.Skip && settings.Format == found.Settings.Format &&
		settings.Encoding == found.Settings.Encoding && settings.Delimiter == found.Settings.Delimiter
	if found.Report != nil && sameReading { // else the columns are others
		for i, column := range found.Report.Columns {
			switch chosen := form.Get("column." + strconv.Itoa(i)); chosen {
			case "":
			case keepColumn:
				settings.Columns.Keep = append(settings.Columns.Keep, column.Name)
			case dropColumn:
				settings.Columns.Map[column.Name] = ""
			default:
				settings.Columns.Map[column.Name] = chosen
			}
		}
	}
	task := form.Get("do")
	changed := !sameReading || !sameColumns(settings.Columns, found.Settings.Columns)
	switch {
	case task == importer.Check:
	case task != importer.Try && task != importer.Capture:
		return screen{}, errBadForm
	case changed: // what was chosen is shown before it is imported
		task = importer.Check
	case found.Report == nil:
		return screen{}, importer.ErrState
	case found.Report.NoContact:
		return v.importScreen(found, "No column is a phone or an email: choose one.")
	case len(found.Report.Contacts) > 0 && form.Get("anyway") != "true":
		return v.importScreen(found, "Choose what the columns with contacts become, or confirm that they become custom "+
			"fields.")
	}
	next, err := v.toImport(found.RunID,
		v.Imports.Begin(v.ctx, v.identity.Account, v.caller.Actor, found.RunID, task, &settings))
	if task == importer.Check && form.Get("do") == importer.Capture {
		next.redirect += "?changed=true"
	}
	return next, err
}

// importField is what a column becomes, as people read it.
func importField(name string) string {
	if key, is := strings.CutPrefix(name, "customFields."); is {
		return "Custom field " + key
	}
	if key, is := strings.CutPrefix(name, "metadata."); is {
		return "Metadata " + key
	}
	if purpose, optOut, is := contact.Field(name).Consent(); is && optOut {
		return "Withdrawal of consent: " + purpose
	} else if is {
		return "Consent: " + purpose
	}
	return cmp.Or(importFields[name], fieldName(name))
}

// importFields are the display names of what a column can become besides a lead's fields.
var importFields = map[string]string{
	"": "Nothing: left out", "firstName": "First name", "lastName": "Last name", "visitorId": "Visitor",
	"receivedAt": "When the person came", "country": "Country of the phone", "metadata": "Metadata, as JSON",
	"customFields": "Custom fields, as JSON", "deliveryId": "Id at the provider",
}

func sameColumns(a, b leadfile.Options) bool {
	if len(a.Map) != len(b.Map) || !slices.Equal(a.Keep, b.Keep) {
		return false
	}
	for name, field := range a.Map {
		if other, has := b.Map[name]; !has || other != field {
			return false
		}
	}
	return true
}

func (v *visit) discardImport() (screen, error) {
	err := v.Imports.Discard(v.ctx, v.identity.Account, v.id("id"))
	return screen{redirect: v.path("/imports")}, err
}

func (v *visit) confirmUndoImport() (screen, error) {
	found, err := v.findImport()
	if err != nil {
		return screen{}, err
	}
	if found.State != importer.Imported && found.State != importer.Undone {
		return screen{}, importer.ErrState
	}
	at := v.path("/imports/" + found.RunID)
	return screen{name: "confirm", title: "Take an import back", data: confirmation{
		Title: "Take an import back", Question: "Take the import of " + found.Name + " back?",
		Consequence: "The leads that only this import made, and that nothing has changed since, are erased, and " +
			"their phones and emails are free again. Other leads stay and are listed. This cannot be undone, but " +
			"the file can be imported again.",
		Verb: "Take back", Action: at + "/undo", Back: at, Grave: true,
	}}, nil
}

func (v *visit) undoImport() (screen, error) {
	id := v.id("id")
	return v.toImport(id,
		v.Imports.Begin(v.ctx, v.identity.Account, v.caller.Actor, id, importer.UndoTask, nil))
}

// importOutcome sends the outcome of each row, as CSV. It has lines, ids of leads and reasons, no personal data.
func (v *visit) importOutcome() (screen, error) {
	found, err := v.findImport()
	if err != nil {
		return screen{}, err
	}
	name := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || strings.ContainsRune(`"\/%`, r) {
			return '_'
		}
		return r
	}, found.Name)
	v.w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	v.w.Header().Set("Content-Disposition", `attachment; filename="`+name+`.outcome.csv"`)
	if v.r.Method == http.MethodHead {
		return screen{sent: true}, nil
	}
	out := deadlineWriter{v.w, http.NewResponseController(v.w)}
	err = v.Imports.WriteOutcome(v.r.Context(), out, v.identity.Account, found.RunID)
	_ = out.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	if err != nil && !errors.Is(err, importer.ErrNoRun) {
		v.Gate.Note(v.r, v.Base+v.page.pattern, v.identity.Account, err)
		panic(http.ErrAbortHandler) // an incomplete file must not look complete
	}
	return screen{sent: true}, err
}
