package view

import (
	"context"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leadlog/leadlog/command/intake"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/schema"
)

// Intake is the view of intakes. It keeps deleted ones, so that their remaining secrets can be found.
type Intake struct{}

func (Intake) Name() string     { return schema.Intake }
func (Intake) Version() int     { return 1 }
func (Intake) Tables() []string { return []string{"intake"} }
func (Intake) Filter() eventstore.Filter {
	return eventstore.Filter{StreamPrefixes: []string{event.IntakePrefix}}
}

// Apply sends a statement for each event, all in one round trip: intakes rarely change.
func (Intake) Apply(ctx context.Context, tx pgx.Tx, batch []projection.Event) error {
	var statements pgx.Batch
	for _, e := range batch {
		if err := queueIntake(&statements, event.IntakeID(e.Stream), e); err != nil {
			return fmt.Errorf("events of intake %s: %w", event.IntakeID(e.Stream), err)
		}
	}
	return tx.SendBatch(ctx, &statements).Close()
}

func queueIntake(to *pgx.Batch, id string, e projection.Event) error {
	var change *pgx.QueuedQuery // of an intake that must exist
	switch data := e.Data.(type) {
	case event.IntakeCreated:
		settings, err := json.Marshal(data.IntakeSettings, json.Deterministic(true))
		if err != nil {
			return err
		}
		to.Queue(`
			INSERT INTO intake (intake_id, account, settings, enabled, expect, secret_id, created_at, enabled_at, demo)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $7, $8)`,
			id, e.Metadata.Account, settings, data.Enabled, expected(data.IntakeSettings),
			e.ID.String(), e.At, data.Demo)
		return nil
	case event.IntakeChanged:
		settings, err := json.Marshal(data.IntakeSettings, json.Deterministic(true))
		if err != nil {
			return err
		}
		// A silence ends by the same rule as in intake.Evolve.
		change = to.Queue(`
			UPDATE intake
			   SET settings = $2, enabled = $3, expect = $4,
			       secret_id = CASE WHEN $5 THEN $6 ELSE secret_id END, old_until = CASE WHEN NOT $5 THEN old_until END,
			       enabled_at = CASE WHEN $3 AND NOT enabled THEN $7 ELSE enabled_at END,
			       silent_since = CASE WHEN $7 - silent_since >= $4 THEN silent_since END
			 WHERE intake_id = $1`,
			id, settings, data.Enabled, expected(data.IntakeSettings), intake.SetsSecrets(data), e.ID.String(), e.At)
	case event.IntakeRotated:
		change = to.Queue(`UPDATE intake SET secret_id = $2, old_until = $3 WHERE intake_id = $1`, id,
			e.ID.String(), whenSet(data.OldUntil))
	case event.IntakeSilent:
		change = to.Queue(`UPDATE intake SET silent_since = $2 WHERE intake_id = $1`, id, data.Since)
	case event.IntakeResumed:
		change = to.Queue(`UPDATE intake SET silent_since = NULL WHERE intake_id = $1`, id)
	case event.IntakeFailing:
		change = to.Queue(`UPDATE intake SET failing_since = $2 WHERE intake_id = $1`, id, data.Since)
	case event.IntakeRecovered:
		change = to.Queue(`UPDATE intake SET failing_since = NULL WHERE intake_id = $1`, id)
	case event.IntakeDeleted:
		change = to.Queue(`UPDATE intake SET deleted = true WHERE intake_id = $1`, id)
	default:
		return fmt.Errorf("%s at revision %d: unexpected %s", e.Stream, e.Revision, e.Data.EventType())
	}
	change.Exec(func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() == 0 {
			return fmt.Errorf("%s at revision %d: %w", e.Stream, e.Revision, errGap)
		}
		return nil
	})
	return nil
}

// whenSet returns a time for a column that is NULL without one.
func whenSet(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

// expected returns the time after which an intake without an arrival is silent; nil: never.
func expected(s event.IntakeSettings) *time.Duration {
	every, err := time.ParseDuration(s.ExpectEvery)
	if err != nil {
		return nil
	}
	return &every
}
