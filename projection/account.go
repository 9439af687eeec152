package projection

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/schema"
)

// AccountView keeps the plans and settings of accounts.
type AccountView struct{}

// Name implements Projector.
func (AccountView) Name() string { return schema.Account }

// Version implements Projector.
func (AccountView) Version() int { return 1 }

// Tables implements Projector.
func (AccountView) Tables() []string { return []string{"account"} }

// Filter implements Projector.
func (AccountView) Filter() eventstore.Filter {
	return eventstore.Filter{StreamPrefixes: []string{event.AccountPrefix}}
}

// configuration is what a batch says of one account: the latest settings, and when the first of the batch were made,
// which counts when the account is new.
type configuration struct {
	event.AccountConfigured
	first, latest time.Time
	settings      bool       // the batch has some
	revoked       *time.Time // the latest of the batch
}

// Apply implements Projector.
func (AccountView) Apply(ctx context.Context, tx pgx.Tx, batch []Event) error {
	configured := map[string]configuration{}
	for _, e := range batch {
		id := event.AccountID(e.Stream)
		c, again := configured[id]
		if !again {
			c.first = e.At
		}
		switch data := e.Data.(type) {
		case event.AccountConfigured:
			c.AccountConfigured, c.settings = data, true
		case event.JWTsRevoked:
			c.revoked = &data.NotBefore
		default:
			continue
		}
		c.latest = e.At
		configured[id] = c
	}
	if err := saveAccounts(ctx, tx, configured); err != nil {
		return err
	}
	return saveRevocations(ctx, tx, configured)
}

func saveAccounts(ctx context.Context, tx pgx.Tx, configured map[string]configuration) error {
	var ids, names, regions []string
	var features, stages [][]byte
	var rates []*float64
	var bursts []*int64
	var created, updated []time.Time
	for _, id := range slices.Sorted(maps.Keys(configured)) {
		c := configured[id]
		if !c.settings {
			continue
		}
		f, err := json.Marshal(c.Features)
		if err != nil {
			return fmt.Errorf("features of account %s: %w", id, err)
		}
		s, err := json.Marshal(c.Stages)
		if err != nil {
			return fmt.Errorf("stages of account %s: %w", id, err)
		}
		var burst *int64
		if c.RateBurst != nil {
			burst = new(int64(*c.RateBurst))
		}
		ids, names, regions = append(ids, id), append(names, c.Name), append(regions, c.Region)
		features, stages = append(features, f), append(stages, s)
		rates, bursts = append(rates, c.RateLimit), append(bursts, burst)
		created, updated = append(created, c.first), append(updated, c.latest)
	}
	if len(ids) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO account (account_id, name, features, stages, region, rate_limit, rate_burst, created_at, updated_at)
		SELECT * FROM unnest($1::text[], $2::text[], $3::jsonb[], $4::jsonb[], $5::text[], $6::float8[], $7::bigint[],
		                     $8::timestamptz[], $9::timestamptz[])
		    ON CONFLICT (account_id) DO UPDATE
		   SET name = excluded.name, features = excluded.features, stages = excluded.stages, region = excluded.region,
		       rate_limit = excluded.rate_limit, rate_burst = excluded.rate_burst, updated_at = excluded.updated_at`,
		ids, names, features, stages, regions, rates, bursts, created, updated)
	return err
}

// saveRevocations notes from when on JWTs count. An account has settings before it has that.
func saveRevocations(ctx context.Context, tx pgx.Tx, configured map[string]configuration) error {
	var ids []string
	var notBefore, updated []time.Time
	for _, id := range slices.Sorted(maps.Keys(configured)) {
		if c := configured[id]; c.revoked != nil {
			ids, notBefore, updated = append(ids, id), append(notBefore, *c.revoked), append(updated, c.latest)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, `
		UPDATE account SET jwt_not_before = n.not_before, updated_at = n.updated_at
		  FROM unnest($1::text[], $2::timestamptz[], $3::timestamptz[]) AS n (account_id, not_before, updated_at)
		 WHERE account.account_id = n.account_id`, ids, notBefore, updated)
	return err
}
