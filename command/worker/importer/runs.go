package importer

import (
	"context"
	"errors"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/projection/schema"
)

// Runs are uploaded files and their imports. They are rows of the database, so that any process can show them and
// continue what another has begun.
type Runs struct{ Pool *pgxpool.Pool }

// States of an upload.
const (
	Uploading = "uploading"
	Uploaded  = "uploaded" // not read yet, or it cannot be read as the options say
	Checked   = "checked"  // and not imported
	Imported  = "imported"
	Undone    = "undone"
)

// Tasks of a worker.
const (
	Check    = "check"
	Try      = "try" // a dry run
	Capture  = "import"
	UndoTask = "undo"
)

// Upload is an uploaded file, and what became of it.
type Upload struct {
	RunID, Account, Actor string
	Name                  string // of the file
	Size                  int64  // bytes
	Settings              Settings
	State                 string
	Task                  string  // that a worker does; empty: none
	Report                *Report // nil: not checked
	Result                *Result // nil: nothing was tried or imported
	Rows, Total           uint64  // that the task has done, and in all; a total of 0 is not known
	Error                 string  // of the last task
	ExpiresAt             time.Time
}

// At is when it was uploaded.
func (u Upload) At() time.Time {
	id, err := ulid.ParseStrict(u.RunID)
	if err != nil {
		return time.Time{}
	}
	return id.Timestamp().UTC()
}

// Settings are how a person wants an uploaded file to be imported.
type Settings struct {
	Options
	Merge bool // what would be refused as a duplicate
}

// Result is the outcome of a dry run, an import, or taking it back.
type Result struct {
	DryRun bool
	Tally
	Header, Blank int          // lines of the file that are in no row
	Cut           bool         // the dry run ended before the last row
	RefusedRows   []RefusedRow // of a dry run: the first rows that would not be imported
	ErasedLeads   int          // by taking the import back
	Stay          int          // leads that stay then
	Stayed        []StayedLead // the first of them
}

// RefusedRow is a row that an import would refuse.
type RefusedRow struct {
	Line   int
	Reason string
}

// StayedLead is a lead that stays when an import is taken back.
type StayedLead struct{ LeadID, Why string }

// Errors of tasks.
var (
	ErrBusy  = errors.New("the file is being worked on: wait for the end, and try again")
	ErrState = errors.New("this is no longer possible: open the page again")
)

const columnsOfUpload = `run_id, account, actor, name, size, options, state, task, report, result, rows, total, error,
	expires_at`

func scanUpload(row pgx.CollectableRow) (u Upload, err error) {
	var settings, report, result []byte
	var rows, total int64
	err = row.Scan(&u.RunID, &u.Account, &u.Actor, &u.Name, &u.Size, &settings, &u.State, &u.Task, &report, &result, &rows,
		&total, &u.Error, &u.ExpiresAt)
	u.Rows, u.Total = uint64(rows), uint64(total)
	if err == nil {
		err = json.Unmarshal(settings, &u.Settings)
	}
	if err == nil && report != nil {
		err = json.Unmarshal(report, &u.Report)
	}
	if err == nil && result != nil {
		err = json.Unmarshal(result, &u.Result)
	}
	return u, err
}

// Get returns an upload of an account. The errors are ErrNoRun and those of the database.
func (r Runs) Get(ctx context.Context, account, runID string) (Upload, error) {
	rows, err := r.Pool.Query(ctx, `SELECT `+columnsOfUpload+` FROM arrival.import
		 WHERE run_id = $1 AND account = $2 AND state <> $3`, runID, account, Uploading)
	if err != nil {
		return Upload{}, schema.Unavailable(err)
	}
	found, err := pgx.CollectExactlyOneRow(rows, scanUpload)
	if errors.Is(err, pgx.ErrNoRows) {
		return Upload{}, ErrNoRun
	}
	return found, schema.Unavailable(err)
}

// Latest returns the latest uploads of an account, the newest first.
func (r Runs) Latest(ctx context.Context, account string, limit int) ([]Upload, error) {
	rows, err := r.Pool.Query(ctx, `SELECT `+columnsOfUpload+` FROM arrival.import
		 WHERE account = $1 AND state <> $2 ORDER BY run_id DESC LIMIT $3`, account, Uploading, limit)
	if err != nil {
		return nil, schema.Unavailable(err)
	}
	found, err := pgx.CollectRows(rows, scanUpload)
	return found, schema.Unavailable(err)
}

// Begin has a task done in the background, for an actor. Settings, unless nil, replace those of the upload. The errors
// are ErrNoRun, ErrBusy, ErrState and those of the database.
func (r Runs) Begin(ctx context.Context, account, actor, runID, task string, settings *Settings) error {
	found, err := r.Get(ctx, account, runID)
	if err != nil {
		return err
	}
	if settings == nil {
		settings = &found.Settings
	}
	before := []string{Checked}
	switch task {
	case Check:
		before = []string{Uploaded, Checked}
	case UndoTask:
		before = []string{Imported, Undone}
	}
	options, err := json.Marshal(settings)
	if err != nil {
		return err
	}
	tag, err := r.Pool.Exec(ctx, `
		UPDATE arrival.import SET task = $3, options = $4, actor = $6, error = '', rows = 0, total = 0,
		       claimed_until = '-infinity', result = CASE WHEN $3 = 'check' THEN NULL ELSE result END
		 WHERE run_id = $1 AND account = $2 AND task = '' AND state = ANY ($5)`, runID, account, task, options, before,
		actor)
	switch {
	case err != nil:
		return schema.Unavailable(err)
	case tag.RowsAffected() > 0:
		return nil
	case found.Task != "":
		return ErrBusy
	}
	return ErrState
}

// Wait waits until the task of an upload has ended, or the context ends.
func (r Runs) Wait(ctx context.Context, account, runID string) {
	for {
		found, err := r.Get(ctx, account, runID)
		if err != nil || found.Task == "" || eventstore.Sleep(ctx, poll/5) != nil {
			return
		}
	}
}

// Discard deletes an uploaded file that is not imported. The errors are those of Begin.
func (r Runs) Discard(ctx context.Context, account, runID string) error {
	found, err := r.Get(ctx, account, runID)
	if err != nil {
		return err
	}
	tag, err := r.Pool.Exec(ctx, `
		DELETE FROM arrival.import WHERE run_id = $1 AND account = $2 AND task <> $3 AND state IN ($4, $5)`,
		runID, account, Capture, Uploaded, Checked)
	switch {
	case err != nil:
		return schema.Unavailable(err)
	case tag.RowsAffected() > 0:
		return nil
	case found.Task != "":
		return ErrBusy
	}
	return ErrState
}
