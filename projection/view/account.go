package view

import (
	"context"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/schema"
)

// Account is the view of accounts: their plans and settings.
type Account struct{}

func (Account) Name() string     { return schema.Account }
func (Account) Version() int     { return 1 }
func (Account) Tables() []string { return []string{"account"} }
func (Account) Filter() eventstore.Filter {
	return eventstore.Filter{StreamPrefixes: []string{event.AccountPrefix}}
}

// Apply sends a statement for each event, all in one round trip: accounts rarely change.
func (Account) Apply(ctx context.Context, tx pgx.Tx, batch []projection.Event) error {
	var statements pgx.Batch
	for _, e := range batch {
		id := event.AccountID(e.Stream)
		switch data := e.Data.(type) {
		case event.AccountConfigured:
			if err := queueSettings(&statements, id, e, data); err != nil {
				return fmt.Errorf("settings of account %s: %w", id, err)
			}
		case event.JWTsRevoked:
			statements.Queue(`UPDATE account SET jwt_not_before = $2, updated_at = $3 WHERE account_id = $1`,
				id, data.NotBefore, e.At)
		}
	}
	return tx.SendBatch(ctx, &statements).Close()
}

func queueSettings(to *pgx.Batch, id string, e projection.Event, data event.AccountConfigured) error {
	features, err := json.Marshal(data.Features)
	if err != nil {
		return err
	}
	stages, err := json.Marshal(data.Stages)
	if err != nil {
		return err
	}
	wonStages, err := json.Marshal(data.WonStagesOrDefault())
	if err != nil {
		return err
	}
	keepStages, err := json.Marshal(data.KeepStagesOrDefault())
	if err != nil {
		return err
	}
	to.Queue(`
		INSERT INTO account (account_id, name, features, stages, region, currency, rate_limit, rate_burst,
		  tokens_see_leads, visitor_days,
		                     quarantine, quarantine_days, won_stages, storage_per_day, ignored_contacts, shared_after,
		                     retention_days, keep_stages, mask_in_console, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $20)
		    ON CONFLICT (account_id) DO UPDATE
		   SET name = excluded.name, features = excluded.features, stages = excluded.stages, region = excluded.region,
		   currency = excluded.currency,
		       rate_limit = excluded.rate_limit, rate_burst = excluded.rate_burst,
		       tokens_see_leads = excluded.tokens_see_leads, visitor_days = excluded.visitor_days,
		       quarantine = excluded.quarantine, quarantine_days = excluded.quarantine_days,
		       won_stages = excluded.won_stages,
		       storage_per_day = excluded.storage_per_day, ignored_contacts = excluded.ignored_contacts,
		       shared_after = excluded.shared_after,
		       retention_days = excluded.retention_days, keep_stages = excluded.keep_stages,
		       mask_in_console = excluded.mask_in_console,
		       updated_at = excluded.updated_at`,
		id, data.Name, features, stages, data.Region, data.Currency, data.RateLimit, data.RateBurst,
		data.TokensSeeLeadsOrDefault(), data.VisitorDaysOrDefault(),
		data.Quarantine, data.QuarantineDaysOrDefault(), wonStages, data.StoragePerDayOrDefault(),
		append([]string{}, data.IgnoredContacts...), data.SharedAfterOrDefault(), data.RetentionDays, keepStages,
		data.MaskInConsoleOrDefault(), e.At)
	return nil
}
