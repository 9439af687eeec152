package httpapi_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/worker/importer"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/draft"
)

// importWorker imports uploaded files as a process of the service does.
func (s *service) importWorker() importer.Worker {
	log := slog.New(slog.DiscardHandler)
	return importer.Worker{
		Runs: importer.Runs{Pool: s.pool}, Store: s.store, Handlers: s.commands, Eraser: s.eraser(), Log: log,
		Directory: command.NewDirectory(s.store, time.Now), Now: time.Now,
		Draft: func() (*command.Handlers, *command.Directory) {
			store := draft.On(s.store)
			directory := command.NewDirectory(store, time.Now)
			return command.NewHandlers(command.Options{
				Store: store, Claims: claim.NewNames([]byte(jwtSecret)), Directory: directory, Log: log,
			}), directory
		},
	}
}

// upload posts a file to the page of imports.
func (b *browser) upload(name string, file io.Reader) pageReply {
	b.t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile("file", name)
	require.NoError(b.t, err)
	_, err = io.Copy(part, file)
	require.NoError(b.t, err)
	require.NoError(b.t, form.Close())
	request, err := http.NewRequestWithContext(b.t.Context(), http.MethodPost, b.server.URL+"/console/imports", &body)
	require.NoError(b.t, err)
	request.Header.Set("Content-Type", form.FormDataContentType())
	request.Header.Set("Origin", b.server.URL)
	response, err := b.client.Do(request)
	require.NoError(b.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(b.t, err)
	return pageReply{response.StatusCode, response.Header, string(text), response.Header.Get("Location")}
}

// uploaded uploads a file that is checked, and returns its page.
func (b *browser) uploaded(name, text string) string {
	b.t.Helper()
	r := b.upload(name, strings.NewReader(text))
	require.Equal(b.t, http.StatusSeeOther, r.status, r.body)
	return r.goTo
}

// follows posts a form that leads to a page, and returns the page once the task has ended.
func (b *browser) follows(path string, form ...string) (body string) {
	b.t.Helper()
	r := b.post(path, form...)
	require.Equal(b.t, http.StatusSeeOther, r.status, r.body)
	require.Eventually(b.t, func() bool {
		body = b.get(r.goTo).body
		return !strings.Contains(body, `id="progress"`)
	}, soon, 20*time.Millisecond)
	return body
}

func TestConsoleImports_FromUploadToUndo(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	inBackground(t, b.importWorker().Run)
	const text = "Name,Handy,Kontakt,Stage\nAsha,98765 43210,x@example.com,won\n" +
		"Ravi,98765 43211,y@example.com,nowhere\nBad,12,z@example.com,\n"
	page := b.uploaded("leads <1>.csv", text)
	shown := b.get(page).body
	for _, want := range []string{
		"leads &lt;1&gt;.csv", "CSV in UTF-8", "98765 43210", `column &#34;Kontakt&#34; has emails in 3 of 3 cells`,
	} {
		require.Contains(t, shown, want)
	}
	require.Equal(t, http.StatusBadRequest, b.post(page, "do", "import").status, "the question is not answered")
	require.Equal(t, http.StatusNotFound, b.get(page+"/outcome.csv").status)

	// What is changed is shown before it is imported.
	r := b.post(page, "do", "import", "column.2", "leave-out")
	require.True(t, strings.HasSuffix(r.goTo, "?changed=true"), r.goTo)
	shown = b.follows(page, "do", "check", "column.2", "leave-out")
	require.NotContains(t, shown, "Contacts would become")
	require.Contains(t, shown, `<option value="leave-out" selected>`)

	shown = b.follows(page, "do", "try", "column.2", "leave-out")
	require.Contains(t, shown, "nothing was written")
	require.Contains(t, shown, "phone is not a valid phone number")
	b.caughtUp()
	require.Zero(t, b.count(`SELECT count(*) FROM views.lead WHERE account = $1`, b.account))

	shown = b.follows(page, "do", "import", "column.2", "leave-out")
	require.Contains(t, shown, "<dt>New leads</dt><dd>2</dd>")
	require.Contains(t, shown, "<dt>Invalid</dt><dd>1</dd>")
	outcome := b.get(page + "/outcome.csv")
	require.Contains(t, outcome.header.Get("Content-Disposition"), `filename="leads <1>.csv.outcome.csv"`)
	lines := strings.Split(strings.TrimSpace(outcome.body), "\n")
	require.Len(t, lines, 4)
	require.Contains(t, lines[2], ",STATUS_UNKNOWN,")
	require.Contains(t, lines[3], "4,1,400,,,phone is not a valid phone number")
	require.Zero(t, b.count(`SELECT count(*) FROM arrival.import_part WHERE file = 'upload' AND run_id = $1`,
		page[strings.LastIndexByte(page, '/')+1:]), "the file is deleted")
	b.caughtUp()
	require.Equal(t, 2, b.count(`SELECT count(*) FROM views.lead WHERE account = $1`, b.account))
	require.Contains(t, b.get("/console/audit/trail").body, "Import finished")
	require.Contains(t, b.get("/console/imports").body, "imported")

	// The same file again has no second effect. Taken back, the leads are erased.
	again := b.follows(b.uploaded("leads.csv", text), "do", "check", "column.2", "leave-out")
	require.Contains(t, again, "not imported")
	require.Contains(t, b.get(page+"/undo").body, "Take the import of")
	shown = b.follows(page + "/undo")
	require.Contains(t, shown, "<dt>Erased leads</dt><dd>2</dd>")
	b.caughtUp()
	require.Zero(t, b.count(`SELECT count(*) FROM views.lead WHERE account = $1`, b.account))
	require.Equal(t, http.StatusConflict, b.post(page, "do", "import").status)
}

func TestConsoleImports_Rejects(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	inBackground(t, b.importWorker().Run)
	require.Equal(t, http.StatusBadRequest, b.upload("", strings.NewReader("x")).status)
	require.Contains(t, b.upload("leads.csv", strings.NewReader("")).body, "the file is empty")
	require.Equal(t, http.StatusBadRequest, b.post("/console/imports", "file", "x").status)
	page := b.uploaded("leads.xlsx", "PK\x03\x04\x14\x00")
	require.Contains(t, b.get(page).body, "a spreadsheet (XLSX)")
	require.Equal(t, http.StatusConflict, b.post(page, "do", "import").status)
	page = b.uploaded("leads.csv", "name\nAsha\n")
	require.Contains(t, b.post(page, "do", "import").body, "No column is a phone or an email: choose one.")
	require.Contains(t, b.follows(page, "do", "check", "column.0", "tel"), "there is no field")
	require.Contains(t, b.follows(page, "do", "check", "skip", "-1"), "must be 0 or more")
	for range 8 {
		b.uploaded("leads.csv", "phone\n9876543210\n")
	}
	require.Contains(t, b.upload("leads.csv", strings.NewReader("phone\n")).body, "discard one first")
	require.Equal(t, "/console/imports", b.post(page+"/discard").goTo)
	require.Equal(t, http.StatusNotFound, b.get(page).status)
	b.uploaded("leads.csv", "phone\n9876543210\n")

	// Another account does not have it, and a session without leads:write has no imports.
	b.provision("globex", account.Settings{Features: []string{account.FeatureAPI}})
	other := b.browser().signIn(b.mint("globex", ""))
	require.Equal(t, http.StatusNotFound, other.get(page).status)
	reader := b.browser().signIn(b.mint(ownAccount, "leads:read"))
	require.Equal(t, http.StatusForbidden, reader.get("/console/imports").status)
	require.Equal(t, http.StatusForbidden, reader.upload("leads.csv", strings.NewReader("phone\n1\n")).status)
}

// stopping stops a process after some appends.
type stopping struct {
	eventstore.Store
	left atomic.Int32
	stop context.CancelFunc
}

func (s *stopping) Append(ctx context.Context, writes ...eventstore.Write) (eventstore.Position, error) {
	position, err := s.Store.Append(ctx, writes...)
	if s.left.Add(-1) == 0 {
		s.stop()
	}
	return position, err
}

// A process stops in the middle of an import, and another one continues it.
func TestConsoleImports_ResumesAfterStop(t *testing.T) {
	t.Parallel()
	s := startAlone(t) // a worker of another test would continue the run
	const rows = 3000
	var file strings.Builder
	file.WriteString("name,phone\n")
	for n := range rows {
		fmt.Fprintf(&file, "Asha,98%08d\n", n)
	}
	worker := s.importWorker()
	runID, err := worker.Upload(t.Context(), s.account, "user:ann", "leads.csv", strings.NewReader(file.String()))
	require.NoError(t, err)
	turn := func(ctx context.Context, worker importer.Worker) {
		t.Helper()
		require.Eventually(t, func() bool {
			_, _ = worker.Turn(ctx)
			found, err := worker.Get(t.Context(), s.account, runID)
			require.NoError(t, err)
			return found.Task == "" || ctx.Err() != nil
		}, soon, 20*time.Millisecond)
	}
	turn(t.Context(), worker)
	require.NoError(t, worker.Begin(t.Context(), s.account, "user:ann", runID, importer.Capture, nil))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	store := &stopping{Store: s.store, stop: stop}
	store.left.Store(100)
	killed := worker
	killed.Handlers = command.NewHandlers(command.Options{
		Store: store, Claims: claim.NewNames([]byte(jwtSecret)), Directory: worker.Directory, Log: worker.Log,
	})
	turn(ctx, killed)
	turn(t.Context(), worker)
	found, err := worker.Get(t.Context(), s.account, runID)
	require.NoError(t, err)
	require.Equal(t, importer.Imported, found.State, found.Error)
	require.EqualValues(t, rows, found.Result.Created)
	require.Positive(t, found.Result.Repeated)
	require.Less(t, found.Result.Repeated, uint64(rows))
	var outcome strings.Builder
	require.NoError(t, worker.WriteOutcome(t.Context(), &outcome, s.account, runID))
	require.Equal(t, rows+1, strings.Count(outcome.String(), "\n"), "the outcome begins again")
}
