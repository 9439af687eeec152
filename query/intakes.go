package query

import (
	"cmp"
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/command/intake"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/schema"
)

// Intake is an intake's record, without its secrets.
type Intake struct {
	intake.Record
	CreatedAt     Timestamp `json:"createdAt"`
	OldUntil      Timestamp `json:"oldSecretUntil"` // null: the secret before the latest rotation does not hold
	LastArrivalAt Timestamp `json:"lastArrivalAt"`
	FailingSince  Timestamp `json:"failingSince"` // null: it does not fail
	// why the latest fetch or arrival failed, until one succeeds; absent: none
	LastError string `json:"lastError,omitzero"`
	// the latest arrival that was quarantined since the last one was captured; absent: none
	LastFailedID string `json:"lastFailedArrivalId,omitzero"`
}

// NewIntake returns the record of an intake from the fold of its stream, given its latest arrival.
func NewIntake(id string, s intake.State, lastArrival time.Time) Intake {
	i := Intake{
		Record: s.Record(id), CreatedAt: Timestamp(s.CreatedAt), OldUntil: Timestamp(s.OldUntil),
		LastArrivalAt: Timestamp(lastArrival),
	}
	if s.Failing {
		i.FailingSince = Timestamp(s.FailingSince)
	}
	return i
}

// activity is what the views have of an intake beside its own events.
type activity struct {
	arrivedAt      *time.Time
	error, failure string
	failedID       string
}

// activityColumns are the columns of an activity of the intake i. The error of a fetch that is tried again comes first.
const activityColumns = lastArrival + `,
	  coalesce((SELECT error FROM delivery.fetch_failure f WHERE f.intake_id = i.intake_id), ''),
	  coalesce((SELECT error FROM views.intake_run r WHERE r.intake_id = i.intake_id AND failed > 0), ''),
	  coalesce((SELECT arrival_id FROM views.intake_run r WHERE r.intake_id = i.intake_id AND failed > 0), '')`

func (a *activity) columns() []any { return []any{&a.arrivedAt, &a.error, &a.failure, &a.failedID} }

func (a activity) record(id string, s intake.State) Intake {
	i := NewIntake(id, s, orZero(a.arrivedAt))
	i.LastError, i.LastFailedID = cmp.Or(a.error, a.failure), a.failedID
	return i
}

// lastArrival is the latest arrival at the intake i.
const lastArrival = `(SELECT received_at FROM views.arrival a WHERE a.intake_id = i.intake_id ORDER BY a.position DESC
	LIMIT 1)`

const intakeColumns = `
	SELECT i.intake_id, settings, created_at, silent_since IS NOT NULL, failing_since, old_until, ` +
	activityColumns + `
	  FROM views.intake i`

func scanIntake(row pgx.CollectableRow) (Intake, error) {
	var id string
	var s event.IntakeSettings
	var created time.Time
	var failingSince, oldUntil *time.Time
	var silent bool
	var a activity
	err := row.Scan(append([]any{&id, jsonOf{&s}, &created, &silent, &failingSince, &oldUntil}, a.columns()...)...)
	state := intake.State{
		Settings: s, CreatedAt: created, Silent: silent, OldUntil: orZero(oldUntil), Failing: failingSince != nil,
		FailingSince: orZero(failingSince),
	}
	return a.record(id, state), err
}

// Intakes lists an account's intakes, newest first. The error is ErrCursor for a cursor of another list.
func (r *Reader) Intakes(ctx context.Context, account string, p Page) (List[Intake], error) {
	s := selection{from: intakeColumns, order: `created_at DESC, i.intake_id DESC`}
	s.and(`account = ?`, account)
	s.and(`NOT deleted`)
	if _, err := s.olderThan(`i.intake_id`, cursorOf(intakeCursor, account), p.Cursor); err != nil {
		return List[Intake]{}, err
	}
	return page(ctx, r, s, p.Limit, scanIntake, func(i Intake) string {
		return newestCursor{time.Time(i.CreatedAt), i.IntakeID}.encode(cursorOf(intakeCursor, account))
	})
}

// Intake returns one intake's record. The error is ErrNotFound when the account has no such intake or no longer has it.
func (r *Reader) Intake(ctx context.Context, account, id string) (Intake, error) {
	if !event.ValidID(id) {
		return Intake{}, ErrNotFound
	}
	return one(ctx, r, scanIntake, intakeColumns+` WHERE i.intake_id = $1 AND account = $2 AND NOT deleted`,
		id, account)
}

// IntakeAfter returns the record of an intake that a command has just changed, which the view may not show yet.
func (r *Reader) IntakeAfter(ctx context.Context, id string, s intake.State) (Intake, error) {
	var a activity
	err := r.pool.QueryRow(ctx, `SELECT `+activityColumns+` FROM (SELECT $1::text AS intake_id) AS i`, id).
		Scan(a.columns()...)
	return a.record(id, s), schema.Unavailable(err)
}

// DemoData is the state of an account's demo data.
type DemoData struct {
	IntakeID string // of its intake; empty: there is none, or it is deleted
	Leads    []DemoLead
}

// DemoLead is a lead of demo data.
type DemoLead struct {
	LeadID string
	Status string // in lower case
}

// DemoData returns an account's demo data: the leads whose every arrival came by its intakes of demo data, deleted ones
// included, in the order in which they came. Leads that have arrivals by joins or splits are left out.
func (r *Reader) DemoData(ctx context.Context, account string) (d DemoData, err error) {
	rows, err := r.pool.Query(ctx, `
		WITH demo AS MATERIALIZED (SELECT intake_id FROM views.intake WHERE account = $1 AND demo)
		SELECT l.lead_id, l.status
		  FROM demo JOIN views.arrival a USING (intake_id) JOIN views.lead l USING (lead_id)
		 WHERE NOT EXISTS (SELECT FROM views.touch t WHERE t.lead_id = l.lead_id AND t.lead_id <> ''
		   AND t.intake_id NOT IN (SELECT intake_id FROM demo))
		   AND NOT EXISTS (SELECT FROM views.touch_owner o WHERE o.owner = l.lead_id)
		 GROUP BY l.lead_id ORDER BY min(a.position)`, account)
	if err != nil {
		return d, schema.Unavailable(err)
	}
	if d.Leads, err = pgx.CollectRows(rows, pgx.RowToStructByPos[DemoLead]); err != nil {
		return d, schema.Unavailable(err)
	}
	err = r.pool.QueryRow(ctx, `
		SELECT coalesce(min(intake_id), '') FROM views.intake WHERE account = $1 AND demo
		AND NOT deleted`, account).Scan(&d.IntakeID)
	return d, schema.Unavailable(err)
}

// IntakesToWatch returns the intakes that have fallen silent and are not reported, those whose silence has ended, and
// the number of those that are silent. Arrivals that the views do not have yet are not counted, so the caller waits for
// the views first.
func (r *Reader) IntakesToWatch(ctx context.Context, now time.Time) (
	due []intake.Watched, silent int, err error,
) {
	rows, err := r.pool.Query(ctx, `
		SELECT i.intake_id, arrived, i.silent_since IS NOT NULL,
		       CASE WHEN i.silent_since IS NULL THEN greatest(arrived, created_at, enabled_at) + expect <= $1
		       ELSE arrived > silent_since END
		  FROM views.intake i LEFT JOIN LATERAL `+lastArrival+` AS last (arrived) ON true
		 WHERE enabled AND NOT deleted AND (expect IS NOT NULL OR silent_since IS NOT NULL)`, now)
	if err != nil {
		return nil, 0, schema.Unavailable(err)
	}
	var one intake.Watched
	var arrived *time.Time
	var isSilent bool
	var isDue *bool
	_, err = pgx.ForEachRow(rows, []any{&one.ID, &arrived, &isSilent, &isDue}, func() error {
		if isSilent {
			silent++
		}
		one.ArrivedAt = orZero(arrived)
		if isDue != nil && *isDue {
			due = append(due, one)
		}
		return nil
	})
	return due, silent, schema.Unavailable(err)
}

// IntakeRuns returns the intakes that fail and are not reported, those whose failure has ended, and the number of those
// that are reported as failing. Arrivals that the views do not have yet are not counted, so the caller waits for the
// views first.
func (r *Reader) IntakeRuns(ctx context.Context) (due []intake.Watched, failing int, err error) {
	rows, err := r.pool.Query(ctx, `
		SELECT intake_id, failed, since, arrival_id, error, captured_at, false
		  FROM views.intake_run JOIN views.intake USING (intake_id)
		 WHERE failed >= 3 AND failing_since IS NULL AND NOT deleted
		UNION ALL
		SELECT intake_id, failed, since, arrival_id, error, captured_at, true
		  FROM views.intake JOIN views.intake_run USING (intake_id)
		 WHERE failing_since IS NOT NULL AND NOT deleted`)
	if err != nil {
		return nil, 0, schema.Unavailable(err)
	}
	var id string
	var run intake.Run
	var since, captured *time.Time
	var reported bool
	columns := []any{&id, &run.Failed, &since, &run.ArrivalID, &run.Error, &captured, &reported}
	_, err = pgx.ForEachRow(rows, columns, func() error {
		if reported {
			failing++
		}
		run.Since, run.CapturedAt = orZero(since), orZero(captured)
		due = append(due, intake.Watched{ID: id, Run: new(run)})
		return nil
	})
	return due, failing, schema.Unavailable(err)
}

func orZero(at *time.Time) time.Time {
	if at == nil {
		return time.Time{}
	}
	return *at
}

// IntakeIDs returns the ids of the intakes of all accounts that follow an id and are not deleted, in order.
func (r *Reader) IntakeIDs(ctx context.Context, after string) ([]string, error) {
	rows, err := r.pool.Query(ctx,
		`SELECT intake_id FROM views.intake WHERE intake_id > $1 AND NOT deleted ORDER BY intake_id`, after)
	if err != nil {
		return nil, schema.Unavailable(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return ids, schema.Unavailable(err)
}
