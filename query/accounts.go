package query

import (
	"context"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/command/account"
)

// Account returns an account's plan and settings. The error is ErrNotFound when nobody provisioned it.
func (r *Reader) Account(ctx context.Context, id string) (Account, error) {
	if !account.ValidID(id) {
		return Account{}, ErrNotFound
	}
	return one(ctx, r, scanAccount, `
		SELECT account_id, name, features, stages, region, rate_limit, rate_burst, jwt_not_before, created_at, updated_at
		  FROM views.account
		 WHERE account_id = $1`, id)
}

func scanAccount(row pgx.CollectableRow) (Account, error) {
	var a Account
	var features, stages []byte
	var notBefore *time.Time
	err := row.Scan(&a.AccountID, &a.Name, &features, &stages, &a.Region, &a.RateLimit, &a.RateBurst, &notBefore,
		stamp(&a.CreatedAt), stamp(&a.UpdatedAt))
	if err != nil {
		return a, err
	}
	a.JWTNotBefore = orNone(notBefore)
	if err := json.Unmarshal(features, &a.Features); err != nil {
		return a, fmt.Errorf("features of an account: %w", err)
	}
	if err := json.Unmarshal(stages, &a.Stages); err != nil {
		return a, fmt.Errorf("stages of an account: %w", err)
	}
	return a, nil
}
