package view

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/command/intake"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
)

// outcome is an event that may change the run of an intake.
type outcome struct {
	arrivalID string
	intakeID  string // empty: the row of the arrival has it
	account   string
	data      event.Data
	at        time.Time
}

// outcomeOf returns the outcome of an event; false if it has no influence on runs. An arrival that is quarantined again
// has a later revision than that of its first outcome, which may follow a fetch.
func outcomeOf(e *projection.Event) (o outcome, is bool) {
	o = outcome{arrivalID: event.ArrivalID(e.Stream), account: e.Metadata.Account, data: e.Data, at: e.At}
	switch data := e.Data.(type) {
	case event.ArrivalQuarantined:
		o.intakeID = data.IntakeID
		return o, data.IntakeID != "" && e.Revision <= 2
	case event.ArrivalCaptured, event.ArrivalRefused:
		return o, true
	}
	return o, false
}

// applyOutcomes folds outcomes into the runs of their intakes. The rows of the arrivals are there.
func applyOutcomes(ctx context.Context, tx pgx.Tx, outcomes []outcome) error {
	if err := findIntakes(ctx, tx, outcomes); err != nil {
		return err
	}
	intakes := map[string]struct{}{}
	for _, o := range outcomes {
		if o.intakeID != "" {
			intakes[o.intakeID] = struct{}{}
		}
	}
	if len(intakes) == 0 {
		return nil
	}
	runs := map[string]intake.Run{}
	rows, err := tx.Query(ctx, `
		SELECT intake_id, failed, since, arrival_id, error, captured_at
		  FROM intake_run WHERE intake_id = ANY ($1)`, slices.Sorted(maps.Keys(intakes)))
	if err != nil {
		return err
	}
	var id string
	var run intake.Run
	var since, captured *time.Time
	_, err = pgx.ForEachRow(rows, []any{&id, &run.Failed, &since, &run.ArrivalID, &run.Error, &captured},
		func() error {
			one := run
			if since != nil {
				one.Since = *since
			}
			if captured != nil {
				one.CapturedAt = *captured
			}
			runs[id] = one
			return nil
		})
	if err != nil {
		return err
	}
	changed := map[string]string{} // their accounts
	for _, o := range outcomes {
		before := runs[o.intakeID]
		after := before
		switch data := o.data.(type) {
		case event.ArrivalQuarantined:
			after.Quarantine(o.arrivalID, data.Reasons, o.at)
		case event.ArrivalCaptured:
			after.Capture(o.at)
		case event.ArrivalRefused:
			after.Refuse()
		}
		if after != before && o.intakeID != "" {
			runs[o.intakeID] = after
			changed[o.intakeID] = o.account
		}
	}
	var statements pgx.Batch
	for _, id := range slices.Sorted(maps.Keys(changed)) {
		run := runs[id]
		statements.Queue(`
			INSERT INTO intake_run (intake_id, account, failed, since, arrival_id, error, captured_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7)
			ON CONFLICT (intake_id) DO UPDATE SET failed = excluded.failed, since = excluded.since,
			  arrival_id = excluded.arrival_id, error = excluded.error, captured_at = excluded.captured_at`,
			id, changed[id], run.Failed, whenSet(run.Since), run.ArrivalID, run.Error, whenSet(run.CapturedAt))
	}
	if statements.Len() == 0 {
		return nil
	}
	return tx.SendBatch(ctx, &statements).Close()
}

// findIntakes sets the intakes of outcomes of arrivals that have a row.
func findIntakes(ctx context.Context, tx pgx.Tx, outcomes []outcome) error {
	var missing []string
	for _, o := range outcomes {
		if o.intakeID == "" {
			missing = append(missing, o.arrivalID)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	found := map[string]string{}
	rows, err := tx.Query(ctx, `SELECT arrival_id, intake_id FROM arrival WHERE arrival_id = ANY ($1)`, missing)
	if err != nil {
		return err
	}
	var id, intakeID string
	_, err = pgx.ForEachRow(rows, []any{&id, &intakeID}, func() error { found[id] = intakeID; return nil })
	if err != nil {
		return err
	}
	for i := range outcomes {
		if outcomes[i].intakeID == "" {
			outcomes[i].intakeID = found[outcomes[i].arrivalID]
		}
	}
	return nil
}
