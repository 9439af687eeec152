package query

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/projection/schema"
)

// Retention is how long an account keeps leads, and how many are due to be erased.
type Retention struct {
	RetentionDays  int      `json:"retentionDays"` // 0: without end
	DueNow         int64    `json:"dueNow"`
	DueWithin7Days int64    `json:"dueWithin7Days"` // with those that are due now
	KeepStages     []string `json:"keepStages"`
}

// activeAt is when a lead in the view last arrived or was changed: lead.State.ActiveAt.
const activeAt = `coalesce((state ->> 'arrivedAt')::timestamptz, (state ->> 'updatedAt')::timestamptz, created_at)`

// Retention counts the leads of an account that are due. It reads all its leads: an index would cost every capture.
// The error is ErrNotFound when the account is not provisioned.
func (r *Reader) Retention(ctx context.Context, account string) (Retention, error) {
	settings, err := r.Account(ctx, account)
	found := Retention{RetentionDays: settings.RetentionDays, KeepStages: settings.KeepStages}
	if err != nil || found.RetentionDays == 0 {
		return found, err
	}
	before := r.now().AddDate(0, 0, -found.RetentionDays)
	err = r.pool.QueryRow(ctx, `
		SELECT count(*) FILTER (WHERE active_at < $2), count(*)
		  FROM (SELECT `+activeAt+` AS active_at FROM views.lead WHERE account = $1 AND status <> ALL ($4)) AS l
		 WHERE active_at < $3`, account, before, before.AddDate(0, 0, 7), lower(settings.KeepStages)).
		Scan(&found.DueNow, &found.DueWithin7Days)
	return found, schema.Unavailable(err)
}

func lower(stages []string) []string {
	folded := make([]string, len(stages))
	for i, stage := range stages {
		folded[i] = strings.ToLower(stage)
	}
	return folded
}

// DueLead is a lead whose retention has ended.
type DueLead struct {
	LeadID   string
	ActiveAt time.Time
}

// RetainingAccounts returns the accounts that do not keep leads without end.
func (r *Reader) RetainingAccounts(ctx context.Context) ([]string, error) {
	rows, err := r.pool.Query(ctx, `SELECT account_id FROM views.account WHERE retention_days > 0 ORDER BY account_id`)
	if err != nil {
		return nil, schema.Unavailable(err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return found, schema.Unavailable(err)
}

// DueLeads returns leads of an account that are due, after one, those that were inactive for longest first. It
// returns the retention that it applied too.
func (r *Reader) DueLeads(
	ctx context.Context, account string, after DueLead, limit int,
) (due []DueLead, by lead.Retention, err error) {
	settings, err := r.Account(ctx, account)
	if errors.Is(err, ErrNotFound) || err == nil && settings.RetentionDays == 0 {
		return nil, by, nil
	}
	if err != nil {
		return nil, by, err
	}
	by = lead.Retention{Before: r.now().AddDate(0, 0, -settings.RetentionDays), Exempt: settings.KeepStages}
	rows, err := r.pool.Query(ctx, `
		SELECT lead_id, active_at
		  FROM (SELECT lead_id, `+activeAt+` AS active_at FROM views.lead WHERE account = $1
		  	AND status <> ALL ($3)) AS l
		 WHERE active_at < $2 AND (active_at, lead_id) > ($4, $5 COLLATE "C")
		 ORDER BY active_at, lead_id LIMIT $6`, account, by.Before, lower(by.Exempt), after.ActiveAt, after.LeadID, limit)
	if err != nil {
		return nil, by, schema.Unavailable(err)
	}
	due, err = pgx.CollectRows(rows, pgx.RowToStructByPos[DueLead])
	return due, by, schema.Unavailable(err)
}

// ErasedByRetention returns the leads of an account that an actor erased last, since a time.
func (r *Reader) ErasedByRetention(
	ctx context.Context, account, actor string, since time.Time, limit int,
) ([]string, error) {
	rows, err := r.pool.Query(ctx, `
		SELECT subject FROM views.trail
		 WHERE account = $1 AND at > $3 AND actor = $2 AND type = 'lead.erased' ORDER BY position DESC LIMIT $4`,
		account, actor, since, limit)
	if err != nil {
		return nil, schema.Unavailable(err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return found, schema.Unavailable(err)
}
