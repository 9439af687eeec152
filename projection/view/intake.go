package view

import (
	"context"
	"fmt"
	"slices"
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

// Intake is the view of intakes. Deleted ones stay in it, so that secrets which are left of them can be found.
type Intake struct{}

func (Intake) Name() string     { return schema.Intake }
func (Intake) Version() int     { return 1 }
func (Intake) Tables() []string { return []string{"intake"} }
func (Intake) Filter() eventstore.Filter {
	return eventstore.Filter{StreamPrefixes: []string{event.IntakePrefix}}
}

// Apply sends a statement for each event, all in one round trip: intakes change seldom.
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
	var change *pgx.QueuedQuery // of an intake that must be there
	switch data := e.Data.(type) {
	case event.IntakeCreated:
		columns, err := intakeColumns(data.IntakeSettings)
		if err != nil {
			return err
		}
		to.Queue(`
			INSERT INTO intake (intake_id, name, kind, source, enabled, origins, redirect, honeypot, challenge, rate_limit, expect_every, expect,
			                    mapping, signature, graph_url, account, secret_id, created_at, enabled_at, demo)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $18, $19)`,
			slices.Concat([]any{id}, columns, []any{e.Metadata.Account, e.ID.String(), e.At, data.Demo})...)
		return nil
	case event.IntakeChanged:
		columns, err := intakeColumns(data.IntakeSettings)
		if err != nil {
			return err
		}
		// What ends a silence is as intake.Evolve has it.
		change = to.Queue(`
			UPDATE intake
			   SET name = $2, kind = $3, source = $4, enabled = $5, origins = $6, redirect = $7, honeypot = $8, challenge = $9, rate_limit = $10,
			       expect_every = $11, expect = $12, mapping = $13, signature = $14, graph_url = $15,
			       secret_id = CASE WHEN $16 THEN $17 ELSE secret_id END,
			       enabled_at = CASE WHEN $5 AND NOT enabled THEN $18 ELSE enabled_at END,
			       silent_since = CASE WHEN $18 - silent_since >= $12 THEN silent_since END
			 WHERE intake_id = $1`,
			slices.Concat([]any{id}, columns, []any{intake.SetsSecrets(data), e.ID.String(), e.At})...)
	case event.IntakeRotated:
		change = to.Queue(`UPDATE intake SET secret_id = $2 WHERE intake_id = $1`, id, e.ID.String())
	case event.IntakeSilent:
		change = to.Queue(`UPDATE intake SET silent_since = $2 WHERE intake_id = $1`, id, data.Since)
	case event.IntakeResumed:
		change = to.Queue(`UPDATE intake SET silent_since = NULL WHERE intake_id = $1`, id)
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

// intakeColumns returns the columns of an intake's settings.
func intakeColumns(s event.IntakeSettings) ([]any, error) {
	origins, err := json.Marshal(s.Origins)
	if err != nil {
		return nil, err
	}
	mapping, err := json.Marshal(s.Mapping, json.Deterministic(true))
	if err != nil {
		return nil, err
	}
	signature, err := json.Marshal(s.Signature)
	if err != nil {
		return nil, err
	}
	var expect *time.Duration
	if every, err := time.ParseDuration(s.ExpectEvery); err == nil {
		expect = &every
	}
	return []any{
		s.Name, s.Kind, s.Source, s.Enabled, origins, s.Redirect, s.Honeypot, s.Challenge, s.RateLimit, s.ExpectEvery, expect,
		mapping, signature, s.GraphURL,
	}, nil
}
