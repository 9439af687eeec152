package query

import (
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
	// of kind meta_lead_ads: why the latest lead could not be fetched
	LastError string `json:"lastError,omitzero"`
}

// NewIntake returns the record of an intake from the fold of its stream, given its latest arrival.
func NewIntake(id string, s intake.State, lastArrival time.Time) Intake {
	return Intake{
		Record: s.Record(id), CreatedAt: Timestamp(s.CreatedAt), OldUntil: Timestamp(s.OldUntil),
		LastArrivalAt: Timestamp(lastArrival),
	}
}

// lastArrival is the latest arrival at the intake i.
const lastArrival = `(SELECT received_at FROM views.arrival a WHERE a.intake_id = i.intake_id ORDER BY a.position DESC
	LIMIT 1)`

// lastError is why the latest fetch of the intake i failed; empty after a success.
const lastError = `coalesce((SELECT error FROM delivery.fetch_failure f WHERE f.intake_id = i.intake_id), '')`

const intakeColumns = `
	SELECT i.intake_id, settings, created_at, silent_since IS NOT NULL,
	  old_until, ` + lastArrival + `, ` + lastError + `
	  FROM views.intake i`

func scanIntake(row pgx.CollectableRow) (Intake, error) {
	var id string
	var s event.IntakeSettings
	var created time.Time
	var arrived, oldUntil *time.Time
	var silent bool
	var failure string
	err := row.Scan(&id, jsonOf{&s}, &created, &silent, &oldUntil, &arrived, &failure)
	state := intake.State{Settings: s, CreatedAt: created, Silent: silent}
	if oldUntil != nil {
		state.OldUntil = *oldUntil
	}
	if arrived == nil {
		arrived = new(time.Time)
	}
	i := NewIntake(id, state, *arrived)
	i.LastError = failure
	return i, err
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
	var arrived *time.Time
	var failure string
	err := r.pool.QueryRow(ctx, `SELECT `+lastArrival+`, `+lastError+` FROM (SELECT $1::text AS intake_id) AS i`,
		id).Scan(&arrived, &failure)
	if err != nil {
		return Intake{}, schema.Unavailable(err)
	}
	if arrived == nil {
		arrived = new(time.Time)
	}
	i := NewIntake(id, s, *arrived)
	i.LastError = failure
	return i, nil
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

// WatchedIntake is an intake that may have fallen silent, or whose silence may have ended.
type WatchedIntake struct {
	IntakeID  string
	ArrivedAt time.Time // the latest arrival; zero: there was none
}

// IntakesToWatch returns the intakes that have fallen silent and are not reported, those whose silence has ended, and
// the number of those that are silent. Arrivals that the views do not have yet are not counted, so the caller waits for
// the views first.
func (r *Reader) IntakesToWatch(ctx context.Context, now time.Time) (due []WatchedIntake, silent int, err error) {
	rows, err := r.pool.Query(ctx, `
		SELECT i.intake_id, arrived, i.silent_since IS NOT NULL,
		       CASE WHEN i.silent_since IS NULL THEN greatest(arrived, created_at, enabled_at) + expect <= $1
		       ELSE arrived > silent_since END
		  FROM views.intake i LEFT JOIN LATERAL `+lastArrival+` AS last (arrived) ON true
		 WHERE enabled AND NOT deleted AND (expect IS NOT NULL OR silent_since IS NOT NULL)`, now)
	if err != nil {
		return nil, 0, schema.Unavailable(err)
	}
	var one WatchedIntake
	var arrived *time.Time
	var isSilent bool
	var isDue *bool
	_, err = pgx.ForEachRow(rows, []any{&one.IntakeID, &arrived, &isSilent, &isDue}, func() error {
		if isSilent {
			silent++
		}
		if one.ArrivedAt = (time.Time{}); arrived != nil {
			one.ArrivedAt = *arrived
		}
		if isDue != nil && *isDue {
			due = append(due, one)
		}
		return nil
	})
	return due, silent, schema.Unavailable(err)
}
