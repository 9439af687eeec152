package importer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/worker/forget"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/projection/schema"
)

// Worker does the tasks of uploaded files. Any number of workers may run on one database; an account has one task at a
// time.
type Worker struct {
	Runs
	Store     eventstore.Store
	Handlers  *command.Handlers
	Directory *command.Directory
	// Draft returns handlers that work on a draft of the log, for a dry run.
	Draft  func() (*command.Handlers, *command.Directory)
	Eraser forget.Eraser
	Log    *slog.Logger
	Now    func() time.Time
}

const (
	poll = 500 * time.Millisecond
	// workers is how many tasks a process does at a time.
	workers = 2
	// claim is how long the task of a killed process waits. Rows that are imported again have no second effect.
	claim = 30 * time.Second
	// saved is how often the progress is saved, and the claim renewed.
	saved = time.Second
	// saveTimeout bounds saving the end of a task, also of a process that stops.
	saveTimeout = 2 * time.Second

	tryRows    = 20_000 // of a dry run: a draft of the log is in memory
	shownRows  = 200    // refused ones, of a dry run
	shownLeads = 1000   // that stay

	// Uploaded files are kept for a day, imports without the file for a month.
	keptDays = 30
)

// Run does tasks until the context is done.
func (w Worker) Run(ctx context.Context) {
	var running sync.WaitGroup
	for range workers {
		work := eventstore.Background{Work: "import uploaded files", Interval: poll, Log: w.Log}
		running.Go(func() { work.Run(ctx, w.Turn) })
	}
	expiry := eventstore.Background{Work: "delete expired uploads", Interval: 10 * time.Minute, Log: w.Log}
	running.Go(func() { expiry.Run(ctx, w.expire) })
	running.Wait()
}

func (w Worker) expire(ctx context.Context) (bool, error) {
	_, err := w.Pool.Exec(ctx, `DELETE FROM arrival.import WHERE expires_at <= now() AND claimed_until <= now()`)
	return false, schema.Unavailable(err)
}

// Turn does the oldest task that waits. Worked is false if there is none.
func (w Worker) Turn(ctx context.Context) (worked bool, err error) {
	t := task{Worker: w, claim: ulid.Make().String()}
	if err := t.acquire(ctx); errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	} else if err != nil {
		return false, schema.Unavailable(err)
	}
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var renewing sync.WaitGroup
	renewing.Go(func() { t.renew(working, stop) })
	err = t.do(working)
	cause := context.Cause(working)
	stop(nil)
	renewing.Wait()
	if errors.Is(cause, errClaimLost) {
		return true, nil // another process does it, or the file was discarded
	}
	if ctx.Err() != nil || isTransient(err) {
		return false, errors.Join(err, t.release(ctx)) // it is done again
	}
	return true, t.end(ctx, err)
}

// task is a task that a worker does.
type task struct {
	Worker
	Upload
	claim string
	began eventstore.Position

	mu          sync.Mutex
	done, total uint64
	state       string // after the task
}

// acquire claims a task. The error is pgx.ErrNoRows if there is none.
func (t *task) acquire(ctx context.Context) error {
	rows, err := t.Pool.Query(ctx, `
		UPDATE arrival.import SET claim = $1, claimed_until = now() + $2
		 WHERE task <> '' AND claimed_until <= now() AND run_id = (
		       SELECT run_id FROM arrival.import waits
		        WHERE task <> '' AND claimed_until <= now() AND NOT EXISTS (
		              SELECT FROM arrival.import other
		               WHERE other.account = waits.account AND other.task <> '' AND other.claimed_until > now())
		        ORDER BY run_id LIMIT 1)
		RETURNING `+columnsOfUpload, t.claim, claim)
	if err != nil {
		return err
	}
	if t.Upload, err = pgx.CollectExactlyOneRow(rows, scanUpload); err != nil {
		return err
	}
	t.state = t.State
	var began int64
	err = t.Pool.QueryRow(ctx, `SELECT began FROM arrival.import WHERE run_id = $1`, t.RunID).Scan(&began)
	t.began = eventstore.Position(began)
	return err
}

var errClaimLost = errors.New("the claim was lost")

// renew saves the progress and renews the claim until the context is done. It ends the work if the claim is lost.
func (t *task) renew(ctx context.Context, stop context.CancelCauseFunc) {
	for last := time.Now(); ; {
		if eventstore.Sleep(ctx, saved) != nil {
			return
		}
		t.mu.Lock()
		done, total := t.done, t.total
		t.mu.Unlock()
		tag, err := t.Pool.Exec(ctx, `
			UPDATE arrival.import SET claimed_until = now() + $3, rows = $4, total = $5 WHERE run_id = $1 AND claim = $2`,
			t.RunID, t.claim, claim, int64(done), int64(total))
		switch {
		case err == nil && tag.RowsAffected() == 0, err != nil && time.Since(last) > claim/2:
			stop(errClaimLost)
			return
		case err == nil:
			last = time.Now()
		}
	}
}

func (t *task) progress(done, total uint64) {
	t.mu.Lock()
	t.done, t.total = done, total
	t.mu.Unlock()
}

// release lets the task be done again.
func (t *task) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
	defer cancel()
	_, err := t.Pool.Exec(ctx, `UPDATE arrival.import SET claimed_until = now() + interval '2 seconds' WHERE run_id = $1
		AND claim = $2`, t.RunID, t.claim)
	return schema.Unavailable(err)
}

// end saves the end of the task.
func (t *task) end(ctx context.Context, failed error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
	defer cancel()
	message := ""
	if failed != nil {
		message = failed.Error()
		t.Log.Warn("task of an import failed", slog.String("run", t.RunID), slog.String("task", t.Task))
	}
	report, err := optional(t.Report)
	if err != nil {
		return err
	}
	result, err := optional(t.Result)
	if err != nil {
		return err
	}
	return schema.Unavailable(pgx.BeginFunc(ctx, t.Pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `
			UPDATE arrival.import SET task = '', claimed_until = '-infinity', state = $3, error = $4, report = $5, result = $6,
			       rows = $7, total = $8
			 WHERE run_id = $1 AND claim = $2`, t.RunID, t.claim, t.state, message, report, result, int64(t.done),
			int64(t.total))
		if err == nil && tag.RowsAffected() > 0 && t.state == Imported {
			_, err = tx.Exec(ctx, `DELETE FROM arrival.import_part WHERE run_id = $1 AND file = $2`, t.RunID, uploadFile)
		}
		return err
	}))
}

func optional[T any](value *T) ([]byte, error) {
	if value == nil {
		return nil, nil
	}
	return json.Marshal(value)
}

func (t *task) do(ctx context.Context) error {
	switch t.Task {
	case Check:
		return t.check(ctx)
	case Try:
		return t.try(ctx)
	case Capture:
		return t.capture(ctx)
	}
	return t.undo(ctx)
}

// open opens and surveys the file.
func (t *task) open(
	ctx context.Context, handlers *command.Handlers, directory *command.Directory,
) (*Source, Target, Report, error) {
	source, err := Open(t.reader(ctx, t.RunID, uploadFile), t.Name, t.Settings.Options)
	if err != nil {
		return nil, Target{}, Report{}, err
	}
	target, err := NewTarget(ctx, handlers, directory, t.Account, t.RunID)
	if err != nil {
		return nil, target, Report{}, err
	}
	target.Actor, target.Merge = t.Actor, t.Settings.Merge
	report, err := source.Survey(target.Settings(), t.Now())
	return source, target, report, err
}

func (t *task) check(ctx context.Context) error {
	t.Report, t.state = nil, Uploaded
	_, _, report, err := t.open(ctx, t.Handlers, t.Directory)
	if err != nil {
		return err
	}
	t.Report, t.state = &report, Checked
	return nil
}

var errEnough = errors.New("enough rows were tried")

func (t *task) try(ctx context.Context) error {
	handlers, directory := t.Draft()
	source, target, _, err := t.open(ctx, handlers, directory)
	if err != nil {
		return err
	}
	result := &Result{DryRun: true}
	result.Header, result.Blank = source.OtherLines()
	ledger := NewDryRun(func(line int, reason string) error {
		if len(result.RefusedRows) < shownRows {
			result.RefusedRows = append(result.RefusedRows, RefusedRow{line, reason})
		}
		return nil
	})
	err = Run(ctx, source, target, limited{ledger, tryRows}, t.progress)
	if result.Cut = errors.Is(err, errEnough); err != nil && !result.Cut {
		return err
	}
	result.Tally = ledger.Tally
	t.Result = result
	return nil
}

// limited ends a dry run after so many rows.
type limited struct {
	*DryRun
	most uint64
}

func (l limited) add(arrived command.BatchOutcome) error {
	if l.Rows() == l.most {
		return errEnough
	}
	return l.DryRun.add(arrived)
}

func (t *task) capture(ctx context.Context) error {
	source, target, report, err := t.open(ctx, t.Handlers, t.Directory)
	if err != nil {
		return err
	}
	if report.NoContact {
		return errors.New("no column is a phone or an email")
	}
	if t.began == 0 {
		if err := t.begin(ctx); err != nil {
			return err
		}
	}
	parts := &partWriter{ctx: ctx, pool: t.Pool, runID: t.RunID, file: outcomeFile}
	ledger := NewOutcomes(func() (io.Writer, error) {
		_, err := t.Pool.Exec(ctx, `DELETE FROM arrival.import_part WHERE run_id = $1 AND file = $2`, t.RunID, outcomeFile)
		return parts, schema.Unavailable(err)
	})
	err = Run(ctx, source, target, ledger, t.progress)
	if err = errors.Join(err, ledger.Close(), parts.Close()); err != nil {
		if unfinished, is := errors.AsType[*command.ImportUnfinishedError](err); is && unfinished.RunID != t.RunID {
			return fmt.Errorf("%w: upload it again and choose the columns as then, or take that run back", unfinished)
		}
		return err
	}
	t.Result = &Result{Tally: ledger.Tally}
	t.Result.Header, t.Result.Blank = source.OtherLines()
	t.state = Imported
	return nil
}

// begin notes where the log ends before the import, and how long the import is kept.
func (t *task) begin(ctx context.Context) error {
	head, err := t.Store.Head(ctx)
	if err != nil {
		return err
	}
	_, err = t.Pool.Exec(ctx, `
		UPDATE arrival.import SET began = $3, expires_at = now() + make_interval(days => $4)
		 WHERE run_id = $1 AND claim = $2`,
		t.RunID, t.claim, int64(head), keptDays)
	return schema.Unavailable(err)
}

func (t *task) undo(ctx context.Context) error {
	found, err := FindRun(ctx, t.Store, t.Account, t.RunID, t.began)
	if err != nil {
		return err
	}
	undone, err := found.Run(ctx, t.Handlers, t.Eraser, command.Caller{
		Account: t.Account, Actor: t.Actor, RequestID: t.RunID,
	}, t.progress)
	if err != nil {
		return err
	}
	if t.Result == nil {
		t.Result = &Result{}
	}
	t.Result.ErasedLeads += undone.Leads
	t.Result.Stay, t.Result.Stayed = undone.Stayed, nil
	for id, why := range found.Stay() {
		if len(t.Result.Stayed) == shownLeads {
			break
		}
		t.Result.Stayed = append(t.Result.Stayed, StayedLead{id, why})
	}
	t.state = Undone
	return nil
}
